"""How clients train at the scales of the experiments."""

from scool_ppl.workflow import Settings

SMOKE = Settings(rounds=2, warmup_epochs=3, local_epochs=1, executor="stacked")
"""Seconds on digits: that everything runs, nothing to conclude from."""

SMALL_MLP = Settings(network="mlp", executor="stacked")
"""MNIST on two cores: the defaults of the library with an MLP of 64 units."""

SMALL_CNN = Settings(network="cnn", width=0.125, executor="loop", rounds=10, warmup_epochs=20, learning_rate=0.05)
"""CIFAR-10 on two cores: the two-layer CNN at an eighth of its width, half as many epochs; the rate is the best of 0.02,
0.05, 0.1 and 0.2 for local training by validation accuracy (seed 100)."""

"""How clients train at the scales of the experiments."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from scool_ppl.base.codec import Row
from scool_ppl.errors import unknown
from scool_ppl.reproduce.experiment import Method
from scool_ppl.workbench.settings import Settings

SMOKE = Settings(rounds=2, warmup_epochs=3, local_epochs=1, executor="stacked")
"""Seconds on digits: that everything runs, nothing to conclude from."""

SMALL_MLP = Settings(network="mlp", executor="stacked")
"""MNIST on two cores: the defaults of the library with an MLP of 64 units."""

SMALL_CNN = Settings(network="cnn", width=0.125, executor="loop", rounds=10, warmup_epochs=20, learning_rate=0.05)
"""CIFAR-10 on two cores: the two-layer CNN at an eighth of its width, half as many epochs; the rate is the best of 0.02,
0.05, 0.1 and 0.2 for local training by validation accuracy (seed 100)."""

PAPER_CNN = Settings(network="cnn", executor="stacked", rounds=100, warmup_epochs=5, learning_rate=0.01)
"""SCooL and L2C: 100 rounds of 5 epochs, the two-layer CNN, SGD at 0.01 with decay 5e-4, batches of 10."""

MEDIUM_CNN = replace(PAPER_CNN, executor="loop", rounds=20, precision="bf16")
"""The papers' CNN at full width, trained as they do but for bf16, in a fifth of their rounds: hours on two cores."""

PAPER_RESNET = Settings(
    network="resnet9", executor="stacked", rounds=100, local_steps=400, learning_rate=0.01, batch_size=128
)
"""CoBo: ResNet-9, SGD at 0.01, batches of 128, 40,000 steps."""

PAPER_FEDERICO = Settings(executor="stacked", rounds=150, local_epochs=1, warmup_epochs=1, batch_size=50)
"""FedeRiCo on CIFAR: 150 rounds of an epoch, batches of 50. It has Adam and other networks, here SGD and the CNN."""


def as_printed(
    methods: Sequence[Method], printed: Mapping[str, Row], rates: Sequence[float] = ()
) -> tuple[Method, ...]:
    """Methods with what all of their candidates have in common and a paper's hyperparameters, by label; all choose among
    the same learning rates, if any are given.
    """
    for label in printed:
        if label not in [method.label for method in methods]:
            raise unknown("method", label, [method.label for method in methods])
    return tuple(
        method._replace(
            candidates=tuple(
                {**_common(method), **printed.get(method.label, {}), **choice}
                for choice in [{"--learning-rate": rate} for rate in rates] or [{}]
            )
        )
        for method in methods
    )


def _common(method: Method) -> Row:
    """What belongs to the row, whichever candidate is chosen."""
    first, *others = method.candidates
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}

"""The reference networks: the papers' sizes, no batch statistics, and what a client's network must be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from scool_ppl.errors import InputError
from scool_ppl.train.examine import examine
from scool_ppl.train.networks import CNN, MLP, NETWORKS, ResNet9, network_for


def parameters(module: nn.Module) -> int:
    return sum(leaf.numel() for leaf in module.parameters())


def test_cnn_has_the_size_printed_by_mcmahan() -> None:
    assert parameters(CNN(1, 28, 10)) == 1_663_370


def test_mlp_has_the_expected_size_and_flattens() -> None:
    module = MLP(12, 3, hidden=(5, 4))
    assert parameters(module) == (12 * 5 + 5) + (5 * 4 + 4) + (4 * 3 + 3)
    assert module(torch.zeros(2, 3, 2, 2)).shape == (2, 3)


def test_width_scales_the_cnn() -> None:
    assert parameters(CNN(1, 28, 10, width=0.25)) < parameters(CNN(1, 28, 10)) / 10


@pytest.mark.parametrize(
    ("shape", "name"), [((7,), "mlp"), ((3, 9, 8), "mlp"), ((1, 8, 8), "cnn"), ((3, 32, 32), "resnet9")]
)
def test_outputs_of_one_sample_do_not_depend_on_the_others(shape: tuple[int, ...], name: str) -> None:
    options = {} if name == "mlp" else {"width": 0.125}
    module = network_for(shape, 4, name, **options)().double().train()
    x = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(module(x)[:1], module(x[:1]))
    assert module(x).shape == (3, 4)


def test_auto_takes_the_cnn_for_images_and_the_mlp_for_vectors() -> None:
    assert isinstance(network_for((64,), 10)(), MLP)
    assert isinstance(network_for((1, 28, 28), 10)(), CNN)
    assert isinstance(network_for((3, 32, 32), 10, "resnet9", width=0.1)(), ResNet9)
    assert isinstance(network_for((2, 2, 2), 10)(), MLP)


def test_a_network_is_fresh_every_time() -> None:
    make = network_for((4,), 2)
    assert make() is not make()


def test_unknown_names_and_options_and_shapes_are_explained() -> None:
    with pytest.raises(InputError, match="did you mean 'resnet9'"):
        network_for((3, 32, 32), 10, "resnet")
    with pytest.raises(InputError, match=r"'widht'.*did you mean 'width'"):
        network_for((3, 32, 32), 10, "cnn", widht=2)
    with pytest.raises(InputError, match=r"expected \(channels, height, width\)"):
        network_for((64,), 10, "cnn")
    with pytest.raises(InputError, match="positive factor"):
        network_for((3, 32, 32), 10, "cnn", width=0)()
    assert set(NETWORKS) == {"linear", "mlp", "cnn", "resnet9", "chars"}


def test_examine_reports_noise_and_the_widest_layer() -> None:
    x = torch.zeros(2, 3)
    quiet = examine(lambda: MLP(3, 2, hidden=(50,)), x, (2,))
    assert quiet[1:] == (False, 50)
    assert examine(lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), x, (2,))[1] is True


def test_examine_refuses_what_cannot_be_a_clients_network() -> None:
    x, image = torch.zeros(2, 3), torch.ones(2, 3, 4, 4)
    with pytest.raises(InputError, match=r"'1' is a BatchNorm1d.*GroupNorm"):
        examine(lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), x, (2,))
    tracking = nn.InstanceNorm2d(3, track_running_stats=True)
    with pytest.raises(InputError, match=r"running_mean.*changes in training"):
        examine(lambda: nn.Sequential(tracking, nn.Flatten(), nn.Linear(48, 2)), image, (2,))
    with pytest.raises(InputError, match=r"does not take the federation's inputs of shape \(3,\)"):
        examine(lambda: MLP(4, 2), x, (2,))
    with pytest.raises(InputError, match="one column per class"):
        examine(lambda: MLP(3, 5), x, (2,))
    with pytest.raises(InputError, match="no trainable parameters"):
        examine(nn.Flatten, x, (3,))
    with pytest.raises(InputError, match=r"expected what builds a torch.nn.Module"):
        examine(lambda: torch.relu, x, (2,))  # type: ignore[arg-type,return-value]

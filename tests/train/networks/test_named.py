"""The reference networks: the papers' sizes, no batch statistics, and how they are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from scool_ppl.errors import InputError
from scool_ppl.train.networks import CNN, MLP, NETWORKS, Chars, ResNet9, network_for, network_of
from tests.helpers.tasks import federation, integers


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
    assert set(NETWORKS) == {"linear", "mlp", "cnn", "resnet9", "chars", "lora"}


def test_chars_never_look_ahead() -> None:
    module = Chars(9, context=3).double()
    tokens = integers(9, 2, 8)
    before = module(tokens)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 9
    after = module(changed)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert ((after - before)[:, 5:].abs().amax((0, 2)) > 0).tolist() == [True, True, True]
    assert before.shape == (2, 8, 9)


def test_networks_are_chosen_by_their_inputs_and_refuse_the_others() -> None:
    assert isinstance(network_for((7,), 9, tokens=True)(), Chars)
    assert [tuple(p.shape) for p in network_for((2, 3), 4, "linear")().parameters()] == [(4, 6), (4,)]
    with pytest.raises(InputError, match="'mlp' got tokens"):
        network_for((7,), 9, "mlp", tokens=True)
    with pytest.raises(InputError, match="'chars' got numbers"):
        network_for((7,), 9, "chars")
    with pytest.raises(InputError, match="at least 1 token"):
        network_for((7,), 9, tokens=True, context=0)()


@pytest.mark.parametrize(("name", "kind", "width"), [("classes", MLP, 3), ("vectors", MLP, 3), ("text", Chars, None)])
def test_a_federations_network_has_an_output_for_each_of_its_tasks(name: str, kind: type, width: int | None) -> None:
    data = federation(name)
    module = network_of(data)()
    assert isinstance(module, kind)
    assert module(data.inputs[:2]).shape[-1] == (width or int(data.targets.max()) + 1)
    assert network_of(data)() is not module


OWN = "from torch import nn\ndef build(input_shape, outputs, *, hidden: int = 5):\n"
OWN += "    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], hidden), nn.Linear(hidden, outputs))\n"


def test_a_network_of_the_users_own_is_a_file_with_build(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    assert parameters(network_for((4,), 2, str(path))()) == 4 * 5 + 5 + 5 * 2 + 2
    assert parameters(network_for((4,), 2, str(path), hidden=1)()) == 4 + 1 + 2 + 2
    with pytest.raises(InputError, match=r"unknown option of network .*'width'; known: hidden"):
        network_for((4,), 2, str(path), width=2)


def test_a_network_file_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no network file at .*none.py'.*one of: linear, mlp"):
        network_for((4,), 2, str(tmp_path / "none.py"))
    (tmp_path / "bad.py").write_text(OWN.replace("input_shape[0]", "input_shape[3]"))
    with pytest.raises(InputError, match=r"^[^:]*bad.py, line 3: IndexError: .*; correct that line"):
        network_for((4,), 2, str(tmp_path / "bad.py"))()

"""Exported networks give other programs the answers that they give here."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn

from scool_ppl.data.federation import Federation
from scool_ppl.data.preparation import Category, Numeric, Preparation, Scaling, with_labels
from scool_ppl.deploy import exporting
from scool_ppl.deploy.blueprint import Blueprint, client_network
from scool_ppl.deploy.exporting import FORMATS, export
from scool_ppl.deploy.network import ClientNetwork
from scool_ppl.em.state import Deployment
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.tasks.regression import Regression
from scool_ppl.train.clients import Clients
from scool_ppl.train.networks import network_for
from scool_ppl.train.questions import Ensemble, Predictor
from tests.helpers.refusals import refuses
from tests.helpers.small import normal
from tests.helpers.tasks import federation, integers, shifted

K = 3
LABELS = ("cat", "dog", "newt")
TABLE = Preparation(
    (Numeric("age", (50.0,), (10.0,)), Category("sex", ("f", "m"))), Numeric("days", (4.0,), (2.0,)), ()
)


def ensemble(data: Federation, network: Callable[[], nn.Module] | None = None) -> ClientNetwork:
    """Of client 1: its network, and a mixture of everybody's, with offsets where there are classes."""
    whose = Clients(data, network, executor="stacked")
    start = whose.init(0)
    params = {name: value.to(start[name]) for name, value in shifted(start).items()}
    mixture = (normal(K, K).softmax(1), Peers.everybody(K, includes_self=True))
    predictors = (Predictor({name: value.flip(0) for name, value in params.items()}), Predictor(params, mixture))
    offsets = normal(K, data.num_classes).clamp(max=0) if data.num_classes else None
    deployment = Deployment(("local", "all"), Ensemble(predictors, torch.tensor([[0.3, 0.7]] * K), offsets))
    return client_network(deployment, Blueprint.of(whose), "client 1")


def owners(count: int) -> Tensor:
    return torch.arange(count) % K


def images() -> ClientNetwork:
    """Of bytes, which the network standardises."""
    scaling = Scaling((10.0, 100.0, 128.0), (20.0, 50.0, 30.0), of_bytes=True)
    data = Federation.from_arrays(
        normal(12, 3, 8, 8),
        integers(3, 12),
        owners(12),
        num_classes=3,
        preparation=with_labels(LABELS, scaling=scaling),
    )
    return ensemble(data, network_for((3, 8, 8), 3, "cnn", width=0.1))


def numbers() -> ClientNetwork:
    """Regression of a table, with the unit of its target."""
    task = Regression(variance=1.0)
    return ensemble(Federation.from_arrays(normal(12, 3), normal(12), owners(12), task=task, preparation=TABLE))


def tokens() -> ClientNetwork:
    return ensemble(federation("text", clients=K, groups=1))


def inputs_of(network: ClientNetwork, rows: int = 7) -> Tensor:
    if network.tokens:
        return integers(5, rows, *network.input_shape)
    if network.takes_bytes:
        return integers(256, rows, *network.input_shape).to(torch.uint8)
    return 50 + 10 * normal(rows, *network.input_shape).float()


def answers(network: ClientNetwork, x: Tensor) -> np.ndarray:
    with torch.no_grad():
        return network(x).numpy()


def written(network: ClientNetwork, folder: Path, format: str) -> tuple[Path, dict]:
    (file,) = export([network], folder, format)
    return file, json.loads(file.with_suffix(".json").read_text())


@pytest.mark.parametrize("make", [images, numbers, tokens])
def test_onnxruntime_answers_as_we_do(
    make: Callable[[], ClientNetwork], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    network = make()
    file, told = written(network, tmp_path, "onnx")
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    session = onnxruntime.InferenceSession(file)
    (asked,), (answered,) = session.get_inputs(), session.get_outputs()
    assert asked.shape == told["inputs"]["shape"] == ["batch", *network.input_shape]
    assert answered.shape == told["outputs"]["shape"]
    assert (asked.name, answered.name) == ("inputs", told["outputs"]["name"])
    for rows in (1, 2, 7):
        x = inputs_of(network, rows)
        (found,) = session.run(None, {"inputs": x.numpy()})
        np.testing.assert_allclose(found, answers(network, x), atol=1e-5)
    if network.labels:
        assert told["labels"] == list(LABELS)
        assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == list(LABELS)
        np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


PROGRAM = """
import sys
sys.modules["scool_ppl"] = None  # importing it would fail
import json, torch
for folder in sys.argv[1:]:
    program = torch.export.load(f"{folder}/client_1.pt2").module()
    inputs = torch.load(f"{folder}/inputs.pt")
    torch.save([program(inputs), program(inputs[:1])], f"{folder}/answers.pt")
assert not [name for name in sys.modules if name.startswith("scool_ppl.")]
"""


def test_a_fresh_python_without_this_library_runs_the_program(tmp_path: Path) -> None:
    made = {tmp_path / make.__name__: make() for make in (images, numbers, tokens)}
    for folder, network in made.items():
        written(network, folder, "torch")
        torch.save(inputs_of(network), folder / "inputs.pt")
    subprocess.run([sys.executable, "-c", PROGRAM, *made], check=True, timeout=120, capture_output=True)
    for folder, network in made.items():
        whole, first = torch.load(folder / "answers.pt")
        expected = torch.from_numpy(answers(network, inputs_of(network)))
        torch.testing.assert_close(whole.detach(), expected)
        torch.testing.assert_close(first.detach(), expected[:1])


def test_parameters_and_what_they_are_for_are_in_one_file(tmp_path: Path) -> None:
    network = images()
    file, told = written(network, tmp_path, "safetensors")
    found = safetensors.torch.load_file(file)
    assert found.keys() == network.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in network.state_dict().items())
    with safe_open(file, "pt") as opened:
        assert {**json.loads(opened.metadata()["scool_ppl"]), "file": file.name} == told
    assert told["inputs"] == {
        "name": "inputs",
        "dtype": "uint8",
        "shape": ["batch", 3, 8, 8],
        "features": [],
        "scaled by the network": True,
    }
    assert told["relies on"] == pytest.approx({"local": 0.3, "all": 0.7})


def test_the_columns_and_their_scale_are_told(tmp_path: Path) -> None:
    _, told = written(numbers(), tmp_path, "safetensors")
    assert told["inputs"]["features"] == ["age", "sex=f", "sex=m"]
    assert Preparation.from_json(json.dumps(told["preparation"])) == TABLE
    assert told["labels"] == []
    assert told["outputs"]["name"] == "predictions"


def test_every_name_is_a_file_of_its_own(tmp_path: Path) -> None:
    network = numbers()
    names = ["a/b", "a b", "A_B", "..", "Zürich"]
    told: list[str] = []
    files = export((_named(network, name) for name in names), tmp_path / "new" / "folder", "safetensors", told.append)
    assert [json.loads(file.with_suffix(".json").read_text())["client"] for file in files] == names
    assert told == [file.name for file in files]
    assert told == [f"{stem}.safetensors" for stem in ("a_b", "a_b-2", "A_B-3", "client", "Zürich")]


def _named(network: ClientNetwork, name: str) -> ClientNetwork:
    network.client = name
    return network


def test_what_the_user_has_set_is_as_it_was(tmp_path: Path) -> None:
    logging.getLogger("torch").setLevel(logging.ERROR)
    before = (list(warnings.filters), sys.stdout, sys.stderr, logging.getLogger("torch").level)
    written(numbers(), tmp_path, "torch")
    assert (list(warnings.filters), sys.stdout, sys.stderr, logging.getLogger("torch").level) == before


class Forked(nn.Module):
    """Control flow that reads its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if float(x.sum()) > 0 else -self.linear(x)


def test_what_cannot_be_exported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = numbers()
    refuses(lambda: export([network], tmp_path, "pickle"), "unknown format 'pickle'; known: onnx, safetensors, torch")
    (tmp_path / "file").write_text("")
    refuses(lambda: export([network], tmp_path / "file", "torch"), "choose another --out")
    data = federation("classes")
    whose = Clients(data, Forked, executor="loop")
    deployment = Deployment(("mixed",), Ensemble((Predictor(whose.init(0)),), torch.ones(4, 1)))
    forked = client_network(deployment, Blueprint.of(whose), "client 0", network=Forked)
    refuses(lambda: export([forked], tmp_path, "torch"), "--format safetensors writes its parameters")
    assert not list(tmp_path.glob("client_0*"))

    def missing(real: Callable[[str], object], name: str) -> object:
        if name == "onnxscript":
            raise ImportError("No module named 'onnxscript'")
        return real(name)

    monkeypatch.setattr(exporting, "import_module", partial(missing, exporting.import_module))
    with pytest.raises(InputError, match=r"needs onnxscript, .*; pip install 'scool_ppl\[export\]'"):
        export([network], tmp_path, "onnx")
    assert list(FORMATS) == ["safetensors", "torch", "onnx"]

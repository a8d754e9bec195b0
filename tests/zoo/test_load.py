"""Models by name and by path: the same file, the same rights, and one clear line for what cannot be loaded."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from scool_ppl import Federation, InputError, load_federation, load_model
from scool_ppl.base import plugins
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.peers import Top
from scool_ppl.zoo import load as zoo

MINE = """
import torch
from scool_ppl import CooperationModel, likelihoods, mixing, priors

def build(num_clients: int, samples: torch.Tensor, truth: torch.Tensor | None = None, weight: float = 0.5):
    assert weight < 1, "weight is too much"
    graph = torch.zeros(num_clients, num_clients) + weight * samples
    graph = graph if truth is None else graph * truth
    return CooperationModel(priors.Dirac(graph), likelihoods.Ignored(), mixing.MixUpdates())
"""


@pytest.fixture(scope="module")
def iid() -> Federation:
    return load_federation("iid:digits:clients=3,train=20")


@pytest.fixture(scope="module")
def dirichlet() -> Federation:
    return load_federation("dirichlet:digits:clients=3,train=100")


def weights(model: object) -> torch.Tensor:
    """The graph of a Dirac prior."""
    buffers = list(model.prior.state().values())  # type: ignore[attr-defined]
    assert len(buffers) == 1
    return buffers[0]


def written(tmp_path: Path, text: str, name: str = "mine.py") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_built_in_models_lie_in_the_package_or_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("package", "models"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, "", f"of_{folder}.py")
    monkeypatch.setattr(plugins, "__file__", str(tmp_path / "package" / "base" / "plugins.py"))
    assert zoo.models_folder() == tmp_path / "models"
    assert zoo.model_names() == ["of_models"]
    (tmp_path / "package" / "_models").mkdir()
    written(tmp_path / "package" / "_models", "", "installed.py")
    assert zoo.models_folder() == tmp_path / "package" / "_models"
    assert zoo.model_path("installed") == tmp_path / "package" / "_models" / "installed.py"


def test_every_file_is_a_name() -> None:
    assert zoo.model_names() == sorted(path.stem for path in zoo.models_folder().glob("*.py"))
    assert {"local", "fedavg", "oracle", "scool_sbm", "ring"} <= set(zoo.model_names())


def test_a_name_and_a_path_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    path = zoo.models_folder() / "scool_sbm.py"
    by_name, by_path, by_text = (load_model(model, 5, blocks=3) for model in ("scool_sbm", path, str(path)))
    monkeypatch.chdir(path.parent)
    here = load_model("scool_sbm.py", 5, blocks=3)
    for model in (by_path, by_text, here):
        assert isinstance(model.prior, SBM)
        assert model[1:] == by_name[1:] or repr(model[1:]) == repr(by_name[1:])
        assert {k: v.tolist() for k, v in model.prior.state().items()} == {
            k: v.tolist() for k, v in by_name.prior.state().items()
        }


def test_a_users_file_elsewhere_has_the_same_rights(tmp_path: Path, iid: Federation) -> None:
    path = written(tmp_path, MINE)
    before = list(sys.path)
    model = load_model(path, 3, federation=iid, weight=0.25)
    assert torch.equal(weights(model), 0.25 * iid.sizes("train") * (1 - torch.eye(3)))
    assert list(zoo.hyperparameters(path)) == ["weight"]
    assert zoo.parse_hyperparameters(path, ["weight=0.125"]) == {"weight": 0.125}
    assert sys.path == before
    other = tmp_path / "other"
    other.mkdir()
    same_name = written(other, MINE.replace("weight: float = 0.5", "depth: int = 2, weight: float = 0.5"))
    assert list(zoo.hyperparameters(same_name)) == ["depth", "weight"]
    assert list(zoo.hyperparameters(path)) == ["weight"]


def test_the_home_folder_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = written(tmp_path, MINE, "ours.py")
    assert zoo.model_path("~/ours.py") == path


def test_facts_come_from_the_federation(iid: Federation, dirichlet: Federation) -> None:
    samples = dirichlet.sizes("train").double()
    assert len(samples.unique()) > 1
    assert torch.allclose(weights(load_model("fedavg", 3, federation=dirichlet)).double(), (samples / samples.sum()))
    assert torch.allclose(weights(load_model("fedavg", 3)).double(), torch.full((3, 3), 1 / 3, dtype=torch.float64))
    oracle = load_model("oracle", 3, federation=iid)
    assert torch.allclose(weights(oracle).double(), torch.full((3, 3), 1 / 3, dtype=torch.float64))
    given = load_model("oracle", 3, federation=iid, truth=torch.zeros(3, 3))
    assert torch.equal(weights(given).double(), torch.eye(3).double()), "what the caller passes goes first"


@pytest.mark.parametrize("name", ["scool_sbm", "oracle"])
def test_updates_are_weighed_by_sample_sizes_where_asked(name: str, dirichlet: Federation) -> None:
    truth: dict[str, Any] = {"truth": torch.ones(3, 3) - torch.eye(3)} if name == "oracle" else {}
    sizes = dirichlet.sizes("train")
    for choices, expected in (({}, None), ({"weigh": False}, None), ({"weigh": True}, sizes)):
        mixing = load_model(name, 3, federation=dirichlet, **truth, **choices).mixing
        found = mixing.samples  # type: ignore[attr-defined]
        assert found is None if expected is None else torch.equal(found, expected)
    with pytest.raises(InputError, match=f"{name} has weigh=True and no samples; pass federation="):
        load_model(name, 3, **truth, weigh=True)


def test_a_fact_that_is_missing_is_named(tmp_path: Path, dirichlet: Federation) -> None:
    for federation in (dirichlet, None):
        with pytest.raises(InputError, match="'oracle' needs truth"):
            load_model("oracle", 3, federation=federation)
    with pytest.raises(InputError, match="needs samples"):
        load_model(written(tmp_path, MINE), 3)
    graph = weights(load_model(written(tmp_path, MINE), 3, federation=dirichlet))
    assert bool(graph.any()), "a truth with a default is optional"


def test_hyperparameters_reach_the_parts() -> None:
    model = load_model("scool_sbm", 5, blocks=3, keep=2, after=1, n_eff=2.5)
    assert isinstance(model.peers, Top)
    assert (model.peers.keep, model.peers.after) == (2, 1)
    assert model.likelihood.n_eff == 2.5  # type: ignore[attr-defined]
    assert zoo.parse_hyperparameters("scool_sbm", ["keep=none", "spectral=false"]) == {"keep": None, "spectral": False}
    offered = set(zoo.hyperparameters("oracle")) | set(zoo.hyperparameters("fedavg"))
    assert not {"num_clients", "samples", "truth"} & offered


@pytest.mark.parametrize(
    ("model", "choices", "words"),
    [
        ("scool", {}, "unknown model 'scool'.*did you mean"),
        ("elsewhere/mine.py", {}, "no model file at 'elsewhere/mine.py'"),
        ("scool_sbm", {"block": 3}, "unknown hyperparameter of scool_sbm 'block'.*did you mean 'blocks'"),
        ("local", {"blocks": 3}, "unknown hyperparameter of local 'blocks'; known: none; leave it out"),
    ],
)
def test_unknown_names_are_refused(model: str, choices: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_model(model, 5, **choices)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"has no function `build\(num_clients, \*\*hyperparameters\)`"),
        ("build = 3", "has no function `build"),
        ("def build(num_clients:\n", "line 1: SyntaxError"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("from scool_ppl import GraphPriors", "ImportError.*GraphPriors"),
        ("import torch\ntorch.ones(2) @ torch.ones(3)", "RuntimeError"),
        ("open('/no/such/file')", "FileNotFoundError"),
        ("def build(num_clients):\n    return 3", "returned int, expected a CooperationModel"),
        ("def build(num_clients):\n    return num_clients / 0", "^[^:]*mine.py, line 2: ZeroDivisionError"),
        ("def build(num_clients, depth):\n    return depth", "build of '.*' failed: TypeError.*depth"),
        ("def build():\n    return 3", "build of '.*' failed: TypeError"),
    ],
)
def test_files_that_are_no_models_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_model(written(tmp_path, text), 3)
    assert "mine.py" in str(caught.value)


def test_the_cause_of_a_failure_stays_attached(tmp_path: Path, iid: Federation) -> None:
    with pytest.raises(InputError, match="weight is too much") as caught:
        load_model(written(tmp_path, MINE), 3, federation=iid, weight=2)
    assert isinstance(caught.value.__cause__, AssertionError)
    with pytest.raises(InputError, match=r"^SBM\(num_blocks=0") as caught:
        load_model("scool_sbm", 3, blocks=0)
    assert caught.value.__cause__ is None


def test_loading_does_not_touch_the_users_random_numbers() -> None:
    before = torch.get_rng_state()
    for name in zoo.model_names():
        zoo.load_module(name)
    load_model("scool_sbm", 5)
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(load_model("local", 3).prior, Dirac)


@pytest.mark.slow
def test_the_wheel_carries_every_module_and_the_models(tmp_path: Path) -> None:
    builders = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed, no wheel is built")
    root = Path(__file__).parents[2]
    (wheel,) = builders.WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        packed = {name: archive.read(name) for name in names if name.startswith("scool_ppl/_models/")}
    expected = {f"scool_ppl/_models/{path.name}": path.read_bytes() for path in (root / "models").glob("*.py")}
    assert {name: text for name, text in packed.items() if name.endswith(".py")} == expected
    modules = {str(path.relative_to(root)) for path in (root / "scool_ppl").rglob("*.py")}
    assert {"scool_ppl/py.typed", *modules} <= set(names), "does a rule of .gitignore keep a room out?"
    assert any(name.endswith("entry_points.txt") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith(".pyc") or name.startswith(("tests", "models", "inference"))]


def test_a_model_and_its_choices_are_written_as_on_the_command_line() -> None:
    assert zoo.as_typed("scool_sbm", {"blocks": 3, "--momentum": 0.5}) == "scool_sbm blocks=3 --momentum 0.5"
    assert zoo.as_typed("scool_sbm", {}) == "scool_sbm"

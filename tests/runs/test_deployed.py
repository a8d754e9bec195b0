"""What clients ship, as files: it is read back bit for bit, and damage is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from scool_ppl import EM, Schedule, load_model
from scool_ppl.base.codec import encode
from scool_ppl.data.preparation import Category, Numeric, Preparation
from scool_ppl.deploy.blueprint import Blueprint
from scool_ppl.em.state import Deployment
from scool_ppl.errors import RunError
from scool_ppl.graph.candidates import Peers
from scool_ppl.runs import deployed
from scool_ppl.runs.folder import Run
from scool_ppl.train.networks import network_for
from scool_ppl.train.questions import Ensemble, Predictor
from tests.helpers.refusals import refuses
from tests.helpers.runs import StoppedHereError, driver, finished, stop_after
from tests.helpers.small import CLASSES, clients, networks, normal

K = 4
TABLE = Peers(torch.ones(K, 2, dtype=torch.bool), torch.tensor([[1, 2], [0, 3], [3, 0], [2, 1]]))
OPEN = Peers(~torch.eye(K, dtype=torch.bool), None, torch.eye(K, dtype=torch.bool))
FILES = ("networks.safetensors", "deployment.json")


def one_of_everything() -> Deployment:
    """Plain networks, mixtures over a table and over everybody, networks that share their memory, and offsets."""
    params = networks(clients(K))
    predictors = (
        Predictor(params),
        Predictor(params, (normal(K, 2).softmax(1), TABLE)),
        Predictor({name: value.float() for name, value in networks(clients(K), 5).items()}),
        Predictor({name: value[:1].expand(value.shape) for name, value in params.items()}, (normal(K, K).exp(), OPEN)),
    )
    weights = normal(K, 4, seed=1).softmax(1)
    return Deployment(
        ("local", "mine, tuned", "a/b", "ü"), Ensemble(predictors, weights, normal(K, CLASSES).clamp(max=0))
    )


def tensors(value: Any, path: str = "") -> dict[str, Tensor]:
    """All tensors in a value, by path, found without the code under test."""
    if isinstance(value, Tensor):
        return {path: value}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in tensors(item, f"{path}/{key}").items()}
    return {}


def equal(found: Deployment, expected: Deployment) -> None:
    ours, theirs = tensors(found), tensors(expected)
    assert list(ours) == list(theirs), "the order of names matters to sums over them"
    for path, value in theirs.items():
        assert (ours[path].dtype, ours[path].shape) == (value.dtype, value.shape), path
        assert torch.equal(ours[path], value), path
    assert found.candidates == expected.candidates
    for one, other in zip(found.ensemble.predictors, expected.ensemble.predictors, strict=True):
        assert (one.mixture is None) == (other.mixture is None)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has ended and that deploys one of everything."""
    finished(tmp_path / "run", 1).deploy(one_of_everything())
    return tmp_path / "run"


def test_what_is_deployed_is_read_back_bit_for_bit(run: Path) -> None:
    equal(Run.open(run).deployment, one_of_everything())
    assert sorted(path.name for path in (run / "deployed").iterdir()) == sorted(FILES)


def test_what_is_read_back_predicts_the_same(run: Path) -> None:
    whose, double = clients(K), one_of_everything()
    chosen = [0, 1, 3]  # networks of one type
    before, after = (
        Ensemble(tuple(each.ensemble.predictors[c] for c in chosen), each.weights[:, chosen], each.ensemble.offsets)
        for each in (double, Run.open(run).deployment)
    )
    assert torch.equal(whose.predict(before)[0], whose.predict(after)[0])


def test_without_offsets_there_are_none(tmp_path: Path) -> None:
    params = networks(clients(K))
    plain = Deployment(("mixed",), Ensemble((Predictor(params),), torch.ones(K, 1)))
    deployed.save(tmp_path, plain)
    found = deployed.load(tmp_path).deployment
    equal(found, plain)
    assert found.ensemble.offsets is None
    assert not found.chosen


def test_other_programs_can_read_the_files(run: Path) -> None:
    """Networks by candidate, parameter and client, and names and places in JSON."""
    networks, told = ((run / "deployed" / name).read_bytes() for name in FILES)
    arrays, content, expected = safetensors.torch.load(networks), json.loads(told), one_of_everything()
    assert content["sha256"] == sha256(networks).hexdigest()
    choice = content["deployment"]
    assert choice["candidates"] == list(expected.candidates)
    for place, predictor in enumerate(expected.ensemble.predictors):
        for name, value in predictor.networks.items():
            entry = choice["ensemble"]["predictors"][place]["networks"][name]["tensor"]
            assert torch.equal(arrays[entry], value)
    assert torch.equal(arrays[choice["ensemble"]["weights"]["tensor"]], expected.weights)


def test_what_was_deployed_before_is_replaced(run: Path) -> None:
    """As by a run that goes on to more rounds."""
    later = one_of_everything()
    later = Deployment(("local",), Ensemble(later.ensemble.predictors[:1], torch.ones(K, 1)))
    Run.open(run).deploy(later)
    equal(Run.open(run).deployment, later)
    assert sorted(path.name for path in (run / "deployed").iterdir()) == sorted(FILES)


def test_how_networks_are_built_is_read_back(tmp_path: Path) -> None:
    told = Blueprint(
        clients=("a", "b", "c", "ü"),
        input_shape=(3, 8, 8),
        tokens=False,
        network=network_for((3, 8, 8), 2, "cnn", width=0.5),
        task="classification:num_classes=2",
        preparation=Preparation(
            (Numeric("age", (1.5,), (2.0,)), Category("sex", ("f", "m"))), Category("died", ("no",))
        ),
    )
    deployed.save(tmp_path, one_of_everything(), told)
    assert deployed.load(tmp_path).blueprint == told


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": {"name": "cnm", "input_shape": [4], "outputs": 3, "options": {}}}, "unknown network 'cnm'"),
        ({"network": {"name": "mlp", "input_shape": [4], "outputs": 3, "options": {"width": 2}}}, "unknown option"),
        ({"network": {"name": "mlp", "input_shape": [5], "outputs": 3, "options": {}}}, "has a parameter '1.bias'"),
        ({"task": "nonsense"}, "unknown task 'nonsense'"),
    ],
)
def test_a_network_that_cannot_be_built_is_one_line(run: Path, changes: dict[str, Any], words: str) -> None:
    built = {"name": "mlp", "input_shape": [4], "outputs": 3, "options": {"hidden": [3]}}
    blueprint(**{"network": built, **changes})(run / "deployed")
    refuses(lambda: Run.open(run).network("client 0"), words)


def test_a_run_that_has_not_ended_says_so(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"model": "mine"})
    for _ in range(2):
        refuses(lambda: run.deployment, "expected a run that has ended; finish it")
        refuses(lambda: run.deployment, f"by `scool resume {tmp_path / 'run'}`")
        (tmp_path / "run" / "deployed").mkdir(exist_ok=True)


def test_every_fit_into_a_folder_deploys(tmp_path: Path) -> None:
    for model, candidates in (("ring", 1), ("hedge", 5)):
        fit = driver(model).fit(1, run=tmp_path / model, progress=False)
        found = Run.open(tmp_path / model).deployment
        equal(found, fit.deployment)
        assert len(found.candidates) == candidates


def test_a_run_that_goes_on_has_not_ended(tmp_path: Path) -> None:
    """What it deployed after fewer rounds is not what it comes to."""
    driver().fit(1, run=tmp_path / "run", progress=False)
    with pytest.raises(StoppedHereError):
        driver().fit(3, run=tmp_path / "run", resume=True, progress=False, callbacks=[stop_after(2)])
    refuses(lambda: Run.open(tmp_path / "run").deployment, "expected a run that has ended")
    rest = driver().fit(3, run=tmp_path / "run", resume=True, progress=False)
    equal(Run.open(tmp_path / "run").deployment, rest.deployment)


def test_what_cannot_be_written_can_be_written_later(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    (tmp_path / "run" / "deployed").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write to '.*run'.*make room and resume the run"):
        run.deploy(one_of_everything())
    (tmp_path / "run" / "deployed").unlink()
    run.deploy(one_of_everything())
    equal(run.deployment, one_of_everything())


# Damage.


def bytes_of(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def flipped(place: float) -> Callable[[Path], None]:
    """A byte of the networks at this share of their length with all its bits the other way."""

    def flip(content: bytes) -> bytes:
        at = int(place * (len(content) - 1))
        return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]

    return bytes_of(FILES[0], flip)


def choice(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Other JSON: what the function returns, or what it has made of its argument."""

    def replaced(content: bytes) -> bytes:
        data = json.loads(content)
        other = change(data["deployment"])
        return json.dumps(data if other is None else {**data, "deployment": other}).encode()

    return bytes_of(FILES[1], replaced)


def arrays(**changes: Tensor) -> Callable[[Path], None]:
    """Other tensors under names that the JSON has, with a sum that agrees: sums alone do not protect."""

    def damage(folder: Path) -> None:
        known = safetensors.torch.load((folder / FILES[0]).read_bytes())
        (path,) = (name for name in known if name.endswith("ensemble/weights"))
        names = {name: path.replace("weights", name) for name in changes}
        content = safetensors.torch.save(known | {names[name]: value for name, value in changes.items()})
        (folder / FILES[0]).write_bytes(content)
        told = json.loads((folder / FILES[1]).read_text())
        (folder / FILES[1]).write_text(json.dumps({**told, "sha256": sha256(content).hexdigest()}))

    return damage


def linked(folder: Path) -> None:
    (folder / FILES[1]).rename(folder.parent / "elsewhere.json")
    (folder / FILES[1]).symlink_to(folder.parent / "elsewhere.json")


def weights_of(**told: Any) -> Callable[[Path], None]:
    """Other words on where the weights are."""
    return choice(lambda data: data["ensemble"]["weights"].update(told))


def a_candidate_less(data: Any) -> None:
    del data["ensemble"]["predictors"][-1]


def without_networks(data: Any) -> None:
    for predictor in data["ensemble"]["predictors"]:
        predictor["networks"] = {}


def other_weights(data: Any) -> None:
    data["ensemble"]["weights"] = data["ensemble"]["offsets"]


def blueprint(**changes: Any) -> Callable[[Path], None]:
    """Other words on how the networks are built."""

    def replaced(content: bytes) -> bytes:
        data = json.loads(content)
        told = encode(Blueprint.of(clients(K)), {}, "")
        return json.dumps({**data, "blueprint": {**told, **changes}}).encode()

    return bytes_of(FILES[1], replaced)


BLUEPRINTS: dict[str, dict[str, Any]] = {
    "a client too few": {"clients": ["a"]},
    "numbers as names": {"clients": [1, 2, 3, 4]},
    "no shape": {"input_shape": None},
    "more than there is": {"more": 1},
    "a preparation of nothing": {"preparation": {}},
    "a network of nothing": {"network": {}},
}


DAMAGE: dict[str, Callable[[Path], None]] = {
    **{f"no {name}": lambda folder, name=name: (folder / name).unlink() for name in FILES},  # type: ignore[misc]
    **{f"empty {name}": bytes_of(name, lambda content: b"") for name in FILES},
    **{f"half {name}": bytes_of(name, lambda content: content[: len(content) // 2]) for name in FILES},
    **{f"noise {name}": bytes_of(name, lambda content: b"\xff\x00" * 200) for name in FILES},
    "first byte flipped": flipped(0.0),
    "byte of a network flipped": flipped(0.6),
    "last byte flipped": flipped(1.0),
    "a link": linked,
    "a list": bytes_of(FILES[1], lambda content: b"[1]"),
    "nothing": bytes_of(FILES[1], lambda content: b"{}"),
    "nested": bytes_of(FILES[1], lambda content: b"[" * 100_000),
    "a list as deployment": choice(lambda data: [1]),
    "no deployment": choice(lambda data: {}),
    "no names": choice(lambda data: data.update(candidates=None)),
    "a name too few": choice(lambda data: data.update(candidates=["local"])),
    "numbers as names": choice(lambda data: data.update(candidates=[1, 2, 3, 4])),
    "more than there is": choice(lambda data: data.update(more=1)),
    "a candidate too few": choice(a_candidate_less),
    "no candidates": choice(lambda data: data.update(candidates=[], ensemble={**data["ensemble"], "predictors": []})),
    "no networks": choice(without_networks),
    "no such tensor": weights_of(tensor="none"),
    "no tensor": choice(lambda data: data["ensemble"].update(weights=0.5)),
    "another tensor": choice(other_weights),
    "no such device": weights_of(device="nonsense"),
    "another order": weights_of(order=[0, 0]),
    **{f"blueprint with {words}": blueprint(**changes) for words, changes in BLUEPRINTS.items()},
    "one weight": arrays(weights=torch.tensor(1.0)),
    "weights of fewer clients": arrays(weights=torch.ones(K - 1, 4)),
    "weights of fewer candidates": arrays(weights=torch.ones(K, 3)),
    "offsets of fewer clients": arrays(offsets=torch.ones(K - 1, CLASSES)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line(damage: str, run: Path) -> None:
    DAMAGE[damage](run / "deployed")
    refuses(lambda: Run.open(run).deployment, str(run))


def test_a_mixture_of_components_is_deployed_as_it_predicts(tmp_path: Path) -> None:
    whose = clients(K)
    em = EM(load_model("fedem", K, federation=whose.federation, components=2), whose, Schedule(1, 1))
    fit = em.fit(1, run=tmp_path / "run", progress=False)
    module = Run.open(tmp_path / "run").network(whose.names[2], network=whose.network)
    rows = whose.federation.test[2]
    predictor = em.predictor(fit.state)
    outputs, mask = whose.predict(predictor.networks, "test", predictor.mixture)
    found = module.from_prepared(whose.federation.inputs[rows].double())
    torch.testing.assert_close(found, outputs[2][mask[2]].softmax(1), rtol=0, atol=1e-12)

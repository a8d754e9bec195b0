"""What clients ship, as files: it is read back bit for bit, and damage is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from scool_ppl.em.state import Deployment
from scool_ppl.errors import RunError
from scool_ppl.graph.candidates import Peers
from scool_ppl.runs import deployed
from scool_ppl.runs.folder import Run
from scool_ppl.train.questions import Ensemble, Predictor
from tests.helpers.refusals import refuses
from tests.helpers.runs import finished
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
    found = deployed.load(tmp_path)
    equal(found, plain)
    assert found.ensemble.offsets is None
    assert not found.chosen


def test_other_programs_can_read_the_files(run: Path) -> None:
    """Networks by candidate, parameter and client, and names and places in JSON."""
    arrays = safetensors.torch.load_file(run / "deployed" / FILES[0])
    choice = json.loads((run / "deployed" / FILES[1]).read_text())
    expected = one_of_everything()
    assert choice["candidates"] == list(expected.candidates)
    for place, predictor in enumerate(expected.ensemble.predictors):
        for name, value in predictor.networks.items():
            told = choice["ensemble"]["predictors"][place]["networks"][name]["tensor"]
            assert torch.equal(arrays[told], value)
    assert torch.equal(arrays[choice["ensemble"]["weights"]["tensor"]], expected.weights)


def test_what_was_deployed_before_is_replaced(run: Path) -> None:
    """As by a run that goes on to more rounds."""
    later = one_of_everything()
    later = Deployment(("local",), Ensemble(later.ensemble.predictors[:1], torch.ones(K, 1)))
    Run.open(run).deploy(later)
    equal(Run.open(run).deployment, later)
    assert sorted(path.name for path in (run / "deployed").iterdir()) == sorted(FILES)


def test_a_run_that_has_not_ended_says_so(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"model": "mine"})
    for _ in range(2):
        refuses(lambda: run.deployment, "expected a run of `scool fit` that has ended")
        refuses(lambda: run.deployment, f"finish it by `scool resume {tmp_path / 'run'}`")
        (tmp_path / "run" / "deployed").mkdir(exist_ok=True)


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
        other = change(data)
        return json.dumps(data if other is None else other).encode()

    return bytes_of(FILES[1], replaced)


def arrays(**changes: Tensor) -> Callable[[Path], None]:
    """Other tensors under names that the JSON has."""

    def replaced(content: bytes) -> bytes:
        known = safetensors.torch.load(content)
        return safetensors.torch.save(known | {name.replace("__", "/"): value for name, value in changes.items()})

    return bytes_of(FILES[0], replaced)


def linked(folder: Path) -> None:
    (folder / FILES[1]).rename(folder.parent / "elsewhere.json")
    (folder / FILES[1]).symlink_to(folder.parent / "elsewhere.json")


def weights_of(told: Any) -> Callable[[Path], None]:
    return choice(lambda data: data["ensemble"].update(weights=told))


DAMAGE: dict[str, Callable[[Path], None]] = {
    **{f"no {name}": lambda folder, name=name: (folder / name).unlink() for name in FILES},  # type: ignore[misc]
    **{f"empty {name}": bytes_of(name, lambda content: b"") for name in FILES},
    **{f"half {name}": bytes_of(name, lambda content: content[: len(content) // 2]) for name in FILES},
    **{f"noise {name}": bytes_of(name, lambda content: b"\xff\x00" * 200) for name in FILES},
    "first byte flipped": flipped(0.0),
    "byte of a network flipped": flipped(0.6),
    "last byte flipped": flipped(1.0),
    "a link": linked,
    "a list": choice(lambda data: [1]),
    "nothing": choice(lambda data: {}),
    "nested": bytes_of(FILES[1], lambda content: b"[" * 100_000),
    "no names": choice(lambda data: data.update(candidates=None)),
    "a name too few": choice(lambda data: data.update(candidates=["local"])),
    "numbers as names": choice(lambda data: data.update(candidates=[1, 2, 3, 4])),
    "more than there is": choice(lambda data: data.update(more=1)),
    "a candidate too few": choice(lambda data: data["ensemble"]["predictors"].pop()),
    "no candidates": choice(lambda data: data.update(candidates=[], ensemble={**data["ensemble"], "predictors": []})),
    "a candidate without networks": choice(lambda data: data["ensemble"]["predictors"][0].update(networks={})),
    "no such tensor": weights_of({"tensor": "none"}),
    "no tensor": weights_of(0.5),
    "another tensor": weights_of({"tensor": "ensemble/offsets"}),
    "no such device": weights_of({"tensor": "ensemble/weights", "device": "nonsense"}),
    "order": weights_of({"tensor": "ensemble/weights", "order": [0, 0]}),
    "one weight": arrays(ensemble__weights=torch.tensor(1.0)),
    "weights of fewer clients": arrays(ensemble__weights=torch.ones(K - 1, 4)),
    "weights of fewer candidates": arrays(ensemble__weights=torch.ones(K, 3)),
    "offsets of fewer clients": arrays(ensemble__offsets=torch.ones(K - 1, CLASSES)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line(damage: str, run: Path) -> None:
    DAMAGE[damage](run / "deployed")
    refuses(lambda: Run.open(run).deployment, str(run))

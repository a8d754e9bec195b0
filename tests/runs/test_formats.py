"""A checkpoint of format 1 is read as one of today, and damage in one is a line."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from scool_ppl import load_federation
from scool_ppl.errors import InputError
from scool_ppl.runs import checkpoints
from scool_ppl.runs.checkpoints import DATA, MANIFEST, TENSORS
from scool_ppl.runs.formats import FORMAT, upgraded
from scool_ppl.runs.journal import newest
from tests.helpers import golden

OLD = golden.FOLDER / "federico"
ROUND = Path("checkpoints") / "round-000002"

pytestmark = pytest.mark.filterwarnings("ignore:checkpoint .* was written by")


def written() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the version of format 1 wrote, read without the code under test."""
    folder = OLD / ROUND
    return json.loads((folder / DATA).read_text()), safetensors.torch.load_file(folder / TENSORS)


def test_the_kept_checkpoint_is_of_the_first_format() -> None:
    assert json.loads((OLD / ROUND / MANIFEST).read_text())["format"] == 1 < FORMAT


def test_its_state_is_there_bit_for_bit_and_its_memory_has_axes() -> None:
    found, (_, tensors) = checkpoints.load(OLD / ROUND), written()
    for field in ("params", "optimizer", "moments", "q", "prior"):
        for name, value in getattr(found.state, field).items():
            assert torch.equal(value, tensors[f"state/{field}/{name}"])
    assert found.state.memory.keys() == {"affinity", "mixture"}
    for name, (value, axes) in found.state.memory.items():
        assert axes == (0, 1), "of pairs of clients"
        assert torch.equal(value.nan_to_num(-9), tensors[f"state/memory/{name}"].nan_to_num(-9))
    assert found.trained is not None
    assert torch.equal(found.trained.score, tensors["trained/accuracy"])
    assert torch.equal(found.trained.task_score, tensors["trained/task_accuracy"])


def test_it_tells_less_than_a_run_of_today_and_goes_on_as_far_as_it_tells() -> None:
    found = checkpoints.load(OLD / ROUND)
    assert found.partial
    assert found.facts["peers"] == [
        *("EpsilonGreedy", "count=3", "epsilon=0.3", "decay=0.0", "accumulate=False", "remember=True")
    ]
    assert found.facts["prior"] == ["ModelMixture"]
    assert found.facts["schedule"] == ["Schedule(local_epochs=1, warmup_epochs=5, local_steps=None)"], "is no part"


def test_theta_0_is_dropped_where_the_model_does_not_need_it() -> None:
    federation = load_federation(golden.SMALL, seed=3)
    em = golden.driver("federico", federation, network=golden.small_network, executor="stacked")
    last, (_, tensors) = newest(em, OLD), written()
    assert last is not None
    assert last.state.initial == {}
    kept = checkpoints.load(OLD / ROUND).state.initial
    assert torch.equal(kept["weight"], tensors["state/start/weight"])


def test_axes_of_the_first_format_are_those_of_as_many_as_there_are_clients() -> None:
    shapes = {
        "pairs": (3, 3),
        "rows": (3, 5),
        "columns": (5, 3),
        "deep": (3, 2, 3),
        "global/joined": (),
        "global/x": (3,),
    }
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items()} | {"weight": torch.zeros(3, 7)}
    memory: dict[str, Any] = {name: {"tensor": name} for name in shapes}
    memory["turned"] = {"tensor": "rows", "order": [1, 0]}  # in the file as (3, 5), for the library (5, 3)
    state = {"params": {"weight": {"tensor": "weight"}}, "memory": memory}
    before = copy.deepcopy(state)
    found = upgraded({"state": state, "facts": {}}, tensors, 1)["state"]["memory"]
    assert {name: entry["axes"] for name, entry in found.items()} == {
        "pairs": [0, 1],
        "rows": [0],
        "columns": [1],
        "deep": [0],
        "turned": [1],
        "joined": [],
        "global/x": [],
    }
    assert state == before, "what was read is left as it was"


def test_what_is_of_today_is_left_alone() -> None:
    data = {"state": {"start": 1}}
    assert upgraded(data, {}, FORMAT) is data


DAMAGE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no memory": (lambda data: data["state"].pop("memory"), "no state, memory and facts"),
    "no state": (lambda data: data.pop("state"), "no state, memory and facts"),
    "no facts": (lambda data: data.pop("facts"), "no state, memory and facts"),
    "memory is a list": (lambda data: data["state"].update(memory=[1]), "no state, memory and facts"),
    "no networks": (lambda data: data["state"].pop("params"), "state/params"),
    "networks are a list": (lambda data: data["state"].update(params=[1]), "state/params"),
    "no network": (lambda data: data["state"].update(params={}), "state/params"),
    "a network is a number": (lambda data: data["state"]["params"].update(weight=3), "name of a tensor"),
    "a network without clients": (
        lambda data: data["state"]["params"].update(weight={"tensor": "nowhere"}),
        "name of a tensor",
    ),
    "memory of a number": (lambda data: data["state"]["memory"].update(mixture=3), "name of a tensor"),
    "memory of nothing": (lambda data: data["state"]["memory"].update(mixture={"tensor": "x"}), "name of a tensor"),
    "memory of a list": (lambda data: data["state"]["memory"].update(mixture={"tensor": []}), "name of a tensor"),
    "memory of nobody": (lambda data: data["state"]["memory"].update({"global/x": 3}), "name of a tensor"),
    "trained is a text": (lambda data: data.update(trained="x"), "trained"),
    "facts of numbers": (lambda data: data["facts"].update(prior=[1]), "facts"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_in_an_old_checkpoint_is_one_line(case: str, tmp_path: Path) -> None:
    """Sums agree, so that it is the content that is looked at."""
    damage, words = DAMAGE[case]
    folder = Path(shutil.copytree(OLD / ROUND, tmp_path / ROUND.name))
    data, manifest = json.loads((folder / DATA).read_text()), json.loads((folder / MANIFEST).read_text())
    damage(data)
    content = json.dumps(data).encode()
    (folder / DATA).write_bytes(content)
    manifest["files"][DATA] = {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=rf"checkpoint '.*round-000002' cannot be used: .*{words}") as refusal:
        checkpoints.load(folder)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("mixing", "expected"),
    [
        (["MixUpdates", "clip=None"], ["MixUpdates", "clip=None", "samples=None"]),
        (["MixUpdates", "clip=None", "samples=None"], ["MixUpdates", "clip=None", "samples=None"]),
        (["MixModels", "base='before'"], ["MixModels", "base='before'"]),
        (None, None),
    ],
)
def test_updates_of_format_2_counted_alike(mixing: object, expected: object) -> None:
    data = {"facts": {"mixing": mixing, "seed": ["1"]}, "state": {}}
    assert upgraded(data, {}, 2) == {**data, "facts": {"mixing": expected, "seed": ["1"]}}

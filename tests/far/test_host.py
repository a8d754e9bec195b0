"""Host: what it says of its clients, what it answers, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.far import Description, Host, Job, Networks
from scool_ppl.far.host import EXACT
from scool_ppl.far.wire import RELEASE, flat
from scool_ppl.train.clients import Clients
from scool_ppl.train.privacy.promise import Privacy
from tests.helpers.models import FEDERATION
from tests.helpers.tasks import federation as of_task
from tests.helpers.unequal import clients, federation

PROBED: dict[str, Any] = {"seed": 1, "round": 0, "split": "train"}


@pytest.mark.parametrize("name", ["sine", "vectors", "text", "classes"])
def test_a_description_is_plain_and_holds_no_row(name: str) -> None:
    data = of_task(name)
    told = Host(Clients(data, executor="loop")).describe()
    assert tuple(told) == data.names
    for i, each in enumerate(told.values()):
        assert isinstance(each, Description)
        assert each.rows == tuple(int(data.sizes(split)[i]) for split in ("train", "validation", "test"))
        assert torch.equal(torch.tensor(each.counts[0], dtype=torch.long), data.label_counts("train")[i])
        assert eval(repr(each._asdict())) == each._asdict(), "numbers, texts and lists of these only"
        assert "data" not in each.facts
        assert each.executor == "loop"
    assert len({each.fingerprint for each in told.values()}) == len(data.names)


def test_a_fingerprint_is_of_a_clients_own_rows_as_it_calls_them() -> None:
    one = Host(clients(federation())).describe()
    other = federation()
    other.targets[other.train[2][0]] = (other.targets[other.train[2][0]] + 1) % 3
    two = Host(clients(other)).describe()
    assert [one[name].fingerprint == two[name].fingerprint for name in one] == [True, True, False, True]
    renamed = Host(clients(federation(relabel=False))).describe()
    assert any(one[name].fingerprint != renamed[name].fingerprint for name in one)


def test_one_who_raises_does_not_take_the_others_with_it() -> None:
    host = Host(clients(federation()))
    stack = flat(host.clients.init(0))
    good = (Job("losses", PROBED, {}, Networks(stack, (0, 1))),)
    bad = (Job("losses", PROBED, {}, Networks(stack[:, :3], (0,))),)
    names = list(host.place)
    replies, faults = host.handle({names[0]: good, names[1]: bad, names[2]: good})
    assert set(replies) == {names[0], names[2]}
    assert set(faults) == {names[1]}
    assert "RuntimeError" in faults[names[1]]
    assert "\n" not in faults[names[1]]
    alone = host.handle({names[0]: good}).replies
    torch.testing.assert_close(replies[names[0]][0]["loss"], alone[names[0]][0]["loss"])


def test_a_host_answers_for_its_own_clients_and_knows_its_verbs() -> None:
    host = Host(clients(federation()))
    with pytest.raises(InputError, match="unknown client of this host 'client 9'"):
        host.handle({"client 9": ()})
    assert "unknown verb 'tell'" in host.handle({"client 0": (Job("tell", {}, {}),)}).faults["client 0"]
    assert "without networks" in host.handle({"client 0": (Job("losses", PROBED, {}),)}).faults["client 0"]


def test_the_task_that_all_agree_on_is_what_scores_are_of() -> None:
    data = of_task("sine")
    here, host = Clients(data, executor="loop"), Host(Clients(data.select([0]), executor="loop"))
    stack = flat(here.init(0))
    for variance in (data.task.variance, 9.0):  # type: ignore[attr-defined]
        options = {"split": "test", "predictors": 1, "task": f"regression:variance={variance}"}
        job = Job("evaluate", options, {}, Networks(stack, (0,)))
        (told,) = host.handle({data.names[0]: (job,)}).replies[data.names[0]]
        score = float(here.evaluate(here.init(0)).score[0])
        expected = 1 - (1 - score) * data.task.variance / variance  # type: ignore[attr-defined]
        assert float(told["numbers"][0]) == pytest.approx(expected, rel=1e-5)


MESSAGE = """
import sys
from scool_ppl.far import Host, Job
from scool_ppl.data import Federation
from scool_ppl.train import Clients

host = Host(Clients(Federation.from_npz(sys.argv[1], name="a"), executor="loop"))
host.describe()
ask = lambda verb, options, tensors: host.handle({"a": (Job(verb, options, tensors),)}).replies["a"][0]
start = ask("init", {"seed": 0}, {})["theta"]
moved = ask("train", {"epochs": 1, "seed": 0, "round": 0}, {"theta": start})["theta"]
assert moved.isfinite().all() and not moved.equal(start)
print(sorted({"pyro", "sklearn", "scipy", "matplotlib", "torchvision", "typer"} & set(sys.modules)))
"""


def test_a_process_of_a_silo_answers_without_pyro(tmp_path: Any) -> None:
    """Where the data are nothing is inferred: what is imported is paid for by every message."""
    FEDERATION.select([1]).save_npz(tmp_path / "mine.npz")
    words = [sys.executable, "-c", MESSAGE, str(tmp_path / "mine.npz")]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_file_of_one_silo_is_all_that_a_host_needs(tmp_path: Any) -> None:
    FEDERATION.select([1]).save_npz(tmp_path / "mine.npz")
    data = Federation.from_npz(tmp_path / "mine.npz", name="hospital a")
    (told,) = Host(Clients(data, executor="loop")).describe().items()
    assert told[0] == "hospital a"
    assert told[1].rows == tuple(FEDERATION.roster.rows[:, 1].tolist())


def test_a_private_host_hands_out_nothing_exact_whoever_asks() -> None:
    """Where evidence is noised: no gradients, losses image by image, scores or outputs; and never a step alone."""
    here = clients(federation(), privacy=Privacy(0.0, 1.0, evidence_noise=0.0, evidence_clip=4.0))
    host, name = Host(here), here.names[0]
    stack = flat(here.init(0))
    options = {"seed": 0, "round": 0, "split": "train"}
    for verb in EXACT:
        (fault,) = host.handle({name: (Job(verb, options, {}, Networks(stack, (0,))),)}).faults.values()
        assert "their evidence is noised, and this cannot be" in fault
    asked = Job("losses", options, {RELEASE: torch.zeros(())}, Networks(stack, (0,)))
    (told,) = host.handle({name: (asked,)}).replies.values()
    assert told[0]["loss"].shape == (1,)
    for verb in ("evaluate", "predict"):
        for split in ("train", "validation", "test"):
            job = Job(verb, {"split": split, "predictors": 1}, {}, Networks(stack, (0,)))
            assert bool(host.handle({name: (job,)}).faults) == (split != "test"), (
                "who tests a network is told how it does"
            )
    training = Host(clients(federation(), privacy=Privacy(0.0, 1.0)))
    for job in (
        Job("train", {"epochs": 1, "seed": 0, "round": 0, "at": 0}, {"theta": stack[0]}),
        Job("gradients", options, {"batch": torch.zeros(1, dtype=torch.long)}, Networks(stack, (0,))),
    ):
        (fault,) = training.handle({name: (job,)}).faults.values()
        assert "asked for a single step, expected rounds of training" in fault
    assert training.describe()[name].privacy == {
        "noise": 0.0,
        "clip": 1.0,
        "delta": 1e-5,
        "poisson": True,
        "evidence_noise": None,
        "evidence_clip": None,
    }

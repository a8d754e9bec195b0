"""Work: jobs of some clients as stacks of all clients of their host, and their answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scool_ppl.errors import InputError
from scool_ppl.far import Host, Job, Networks
from scool_ppl.far.home import SEAL, Home
from scool_ppl.far.wire import HOME, STATE, flat
from scool_ppl.far.work import Layout, Work
from scool_ppl.train.clients import Clients
from scool_ppl.train.executors.executor import STARTED
from scool_ppl.train.questions import Ensemble, Predictor
from tests.helpers.models import FEDERATION

PROBED: dict[str, Any] = {"seed": 1, "round": 0, "split": "train"}
PLACE = {"a": 0, "b": 1, "c": 2}
COMMON, OWN = {"body": torch.Size([2])}, {"head": torch.Size([1])}


def work(jobs: dict[str, Job], home: Home | None = None, private: bool = False) -> Work:
    return Work(Layout(PLACE, COMMON, OWN if private else {}, torch.float32, home), jobs)


def row(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


def test_stacks_have_a_row_for_everybody_and_zeros_for_those_who_were_not_asked() -> None:
    """Each row stands where its client does, whatever the order in which they were asked."""
    asked = work({"c": Job("train", {}, {"theta": row(5, 6)}), "a": Job("train", {}, {"theta": row(1, 2)})})
    assert asked.stack("theta").tolist() == [[1, 2], [0, 0], [5, 6]]
    assert asked.networks()["body"].tolist() == [[1, 2], [0, 0], [5, 6]]
    assert asked.stack_if_sent("centre") is None
    assert asked.pull() is None


def test_state_says_who_has_none() -> None:
    """Of a client who was not asked nothing is known, and one may have begun later than another."""
    key = f"{STATE}momentum/body"
    theta = {"theta": row(0, 0)}
    state = work({"a": Job("train", {}, theta), "b": Job("train", {}, {**theta, key: row(7, 8)})}).state()
    assert state["momentum/body"].tolist() == [[0, 0], [7, 8], [0, 0]]
    assert state[STARTED].tolist() == [False, True, False]
    assert work({"a": Job("train", {}, theta)}).state() == {}


@pytest.mark.parametrize("keeps", [True, False])
def test_what_is_private_comes_back_as_it_was_and_goes_to_the_driver_only_where_nobody_keeps_it(keeps: bool) -> None:
    networks = {"body": torch.arange(6.0).view(3, 2), "head": torch.tensor([[9.0], [8.0], [7.0]])}
    state = {"momentum/body": torch.ones(3, 2), "momentum/head": torch.full((3, 1), 4.0)}
    home = Home() if keeps else None
    asked = {name: Job("train", {}, {}) for name in ("c", "b")}
    told = work(asked, home, private=True).answered(networks, {**state, STARTED: torch.tensor([True, True, False])})
    assert set(told["b"]) == {"theta", HOME, f"{STATE}momentum/body", *([] if keeps else [f"{STATE}momentum/head"])}
    assert set(told["c"]) == {"theta", HOME}, "it has no state yet"
    assert told["b"][HOME].dtype == (torch.int64 if keeps else torch.float32), SEAL
    again = work({name: Job("train", {}, reply) for name, reply in told.items()}, home, private=True)
    assert again.networks()["body"].tolist() == [[0, 0], [2, 3], [4, 5]]
    assert again.networks()["head"].flatten().tolist() == [0, 8, 7]
    assert again.state()["momentum/head"].flatten().tolist() == [0, 4, 0]


def test_predictors_are_a_clients_own_network_and_behind_all_own_ones_those_that_are_mixed() -> None:
    stack = torch.arange(8.0).view(4, 2)
    share = {"share/1": torch.tensor([0.25, 0.75], dtype=torch.float64)}
    weights = {"weights": row(0.5, 0.5)}
    jobs = {
        "b": Job("evaluate", {"predictors": 2}, {**share, **weights}, Networks(stack, (1, 2, 3, 0))),
        "a": Job("evaluate", {"predictors": 2}, weights, Networks(stack.clone(), (0, 3))),
    }
    found = work(jobs).predictors()
    assert isinstance(found, Ensemble)
    assert found.weights.tolist() == [[0.5, 0.5], [0.5, 0.5], [0, 0]]
    one, two = found.predictors
    assert one.networks["body"].tolist() == [[0, 1], [2, 3], [0, 0]]
    assert one.mixture is None
    assert two.networks["body"].tolist() == [[6, 7], [4, 5], [0, 0], [6, 7], [0, 1]]
    assert two.mixture is not None
    mixed, peers = two.mixture
    assert mixed.tolist() == [[0, 0], [0.25, 0.75], [0, 0]]
    assert peers.columns()[1].tolist() == [3, 4]
    alone = work({"c": Job("evaluate", {}, {}, Networks(stack, (2,)))}).predictors()
    assert isinstance(alone, Predictor)
    assert alone.networks["body"].tolist() == [[0, 0], [0, 0], [4, 5]]


def test_a_job_without_networks_is_refused() -> None:
    with pytest.raises(InputError, match="a request to 'losses' came without networks, expected some"):
        work({"a": Job("losses", {}, {})}).sent()


def test_clients_who_look_at_the_same_networks_do_so_at_once_and_others_one_by_one() -> None:
    """The same numbers, whether most look at most, at few, or each was sent a stack of its own."""
    host = Host(Clients(FEDERATION, executor="stacked", dtype=torch.float64))
    stack = flat({name: value + 0.1 * torch.randn_like(value) for name, value in host.clients.init(0).items()})
    names = list(host.place)

    def asked(uses: list[tuple[int, ...]], own: bool = False) -> list[torch.Tensor]:
        requests = {
            name: (Job("losses", PROBED, {}, Networks(stack.clone() if own else stack, use)),)
            for name, use in zip(names, uses, strict=True)
        }
        return [host.handle(requests).replies[name][0]["loss"] for name in names]

    every = asked([(0, 1, 2, 3)] * 4)
    few, mixed = [(1,), (3, 0), (2,), (0,)], [(3, 1, 0, 2), (0, 1, 2, 3), (2, 0, 1), (1, 1, 0)]
    for uses, found in ((few, asked(few)), (few, asked(few, own=True)), (mixed, asked(mixed))):
        for row, (use, losses) in enumerate(zip(uses, found, strict=True)):
            torch.testing.assert_close(losses, every[row][list(use)], rtol=0, atol=1e-12)

"""LocalFabric: whose host is asked, and what would have travelled."""

from __future__ import annotations

import torch
from torch import nn

from scool_ppl.far import Host, Job, LocalFabric, Networks
from scool_ppl.far.wire import flat
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Plan
from tests.helpers.far import hosts, remote
from tests.helpers.refusals import refuses
from tests.helpers.unequal import clients, federation


def test_a_client_has_one_host() -> None:
    here = clients(federation())
    refuses(lambda: LocalFabric(Host(here), Host(here)), "two hosts have a client 'client 0'")
    fabric = LocalFabric(*hosts(here, [[0, 2], [1, 3]]))
    assert list(fabric.describe()) == ["client 0", "client 2", "client 1", "client 3"]
    assert fabric.away(3) == {}


def big() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 3_000_000), nn.Linear(3_000_000, 3))


def test_networks_of_a_hundred_megabytes_travel() -> None:
    here = Clients(federation((4,)), big, executor="loop")
    there, start = remote(here), here.init(0)
    assert there.bytes_per_model > 100 * 2**20
    found, expected = (each.train(start, None, Plan(steps=1)).params for each in (there, here))
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_only_who_is_asked_is_sent_something_and_bytes_are_counted() -> None:
    here = clients(federation())
    fabric, stack = LocalFabric(*hosts(here)), flat(here.init(0))
    built: list[str] = []

    def build(name: str) -> tuple[Job, ...]:
        built.append(name)
        options = {"seed": 0, "round": 0, "split": "train"}
        return (Job("losses", options, {}, Networks(stack, (0, 2))), Job("init", {"seed": 0}, {}))

    replies, faults = fabric.ask(["client 1", "client 3"], build)
    assert (set(replies), faults, built) == ({"client 1", "client 3"}, {}, ["client 1", "client 3"])
    networks = stack.shape[1] * 8
    assert fabric.bytes == 2 * (2 * networks + 2 * 8 + networks), "two networks there, two losses and theta^0 back"
    assert fabric.trips == 1
    assert torch.equal(replies["client 1"][1]["theta"], stack[1])

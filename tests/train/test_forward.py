"""Losses of many networks on many clients' data, in pieces, equal one network and one client at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.clients import Clients
from scool_ppl.train.executors.executor import Executor
from scool_ppl.train.executors.loop import Loop
from scool_ppl.train.executors.stacked import Stacked
from scool_ppl.train.forward import Forward
from scool_ppl.train.questions import Params, Whose
from tests.helpers.unequal import SGD, clients, distinct, federation, module_of, own


def double_loop(network: Clients, params: Params) -> Tensor:
    """loss[i, j] of model i on client j's probe."""
    data, probe = network.federation, network.probe(0, 0)
    losses = torch.zeros(4, 4, dtype=torch.float64)
    for i in range(4):
        for j in range(4):
            x, y = own(data, j, probe.index[j][probe.mask[j]])
            losses[i, j] = F.cross_entropy(module_of(params, i)(x), y).detach()
    return losses


@pytest.mark.parametrize("executor", ["stacked", "loop"])
@pytest.mark.parametrize("at_once", [2**25, 1000])
def test_cross_loss_equals_a_double_loop(executor: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.train.forward._ELEMENTS_IN_CACHE", at_once)
    network = clients(federation(), executor, probe_size=10)
    params, probe = distinct(network), network.probe(0, 0)
    loss = double_loop(network, params)
    everybody = Peers.everybody(4, includes_self=True)
    torch.testing.assert_close(network.pair_loss(params, everybody, probe), loss)
    torch.testing.assert_close(network.pair_loss(params, everybody, probe, whose="sender"), loss.T)
    others = network.pair_loss(params, Peers.everybody(4), probe)
    torch.testing.assert_close(others, loss.clone().fill_diagonal_(0))

    table = Peers(torch.tensor([[1, 1], [1, 0], [1, 1], [0, 1]]).bool(), torch.tensor([[1, 3], [2, 0], [3, 0], [1, 2]]))
    rows = torch.arange(4)[:, None]
    expected = loss[rows, table.senders].where(table.mask, 0)
    torch.testing.assert_close(network.pair_loss(params, table, probe), expected)
    expected = loss[table.senders, rows].where(table.mask, 0)
    torch.testing.assert_close(network.pair_loss(params, table, probe, whose="sender"), expected)


def bench_of(network: Clients, executor: str) -> Forward:
    """Forward passes of 4 networks with 64 hidden units, with two workers in the loop."""
    module, cpu = network.network().double(), torch.device("cpu")
    loop = Loop(module, network.federation.task, SGD, False)
    stacked = Stacked(module, network.federation.task, SGD, False, cpu)
    chosen: Executor = stacked if executor == "stacked" else loop
    return Forward(chosen, loop, network.federation.task, network.inputs, 64)


def test_pieces_fit_the_activations_of_the_networks_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.train.forward._ELEMENTS_IN_CACHE", 1000)
    network = clients(federation())
    stacked = bench_of(network, "stacked")
    for length, networks in ((11, 4), (3, 4), (100, 2), (0, 4)):
        pieces = list(stacked.chunks(length, networks))
        covered = [column for piece in pieces for column in range(length)[piece]]
        assert covered == list(range(length))
        assert all(len(range(length)[piece]) * networks * 64 <= 1000 for piece in pieces)
    # The loop has one network at work on each core, so its pieces are longer; but never shorter than one input.
    assert len(list(bench_of(network, "loop").chunks(11, 4))) < len(list(stacked.chunks(11, 4)))
    assert len(list(stacked.chunks(5, 10**6))) == 5


@pytest.mark.parametrize("executor", ["stacked", "loop"])
@pytest.mark.parametrize("at_once", [2**25, 1000])
def test_own_loss_and_its_gradient_equal_plain_pytorch(
    executor: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scool_ppl.train.forward._ELEMENTS_IN_CACHE", at_once)
    network = clients(federation(), executor, probe_size=10)
    probe = network.probe(0, 0)
    leaves = {name: value.clone().requires_grad_() for name, value in distinct(network).items()}
    found = network.own_loss(leaves, probe)
    found.sum().backward()
    for client in range(4):
        module = module_of({name: value.detach() for name, value in leaves.items()}, client)
        x, y = own(network.federation, client, probe.index[client][probe.mask[client]])
        expected = F.cross_entropy(module(x), y)
        expected.backward()
        torch.testing.assert_close(found[client].detach(), expected.detach())
        for name, leaf in module.named_parameters():
            assert leaves[name].grad is not None
            torch.testing.assert_close(leaves[name].grad[client], leaf.grad)


@pytest.mark.parametrize("model", ["receiver", "sender"])
def test_masked_pairs_are_never_computed(model: str) -> None:
    network = clients(federation())
    params, probe = distinct(network), network.probe(0, 0)
    broken = {name: value.index_fill(0, torch.tensor([1]), torch.nan) for name, value in params.items()}
    senders = torch.tensor([[2, 1], [0, 0], [3, 99], [2, 1]])
    mask = torch.tensor([[True, False], [False, False], [True, False], [True, False]])
    losses = network.pair_loss(broken, Peers(mask, senders), probe, whose=model)  # type: ignore[arg-type]
    assert losses.isfinite().all()
    assert losses[~mask].eq(0).all()
    everybody = Peers.everybody(4)
    everybody.mask[1], everybody.mask[:, 1] = False, False
    assert network.pair_loss(broken, everybody, probe, whose=model).isfinite().all()  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "private"), [("sender", []), ("sender", ["3.*"]), ("receiver", ["3.*"])])
def test_only_pairs_that_are_asked_for_are_run(
    model: Whose, private: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = clients(federation(), "stacked", private=private)
    params, probe = distinct(network), network.probe(0, 0)
    stack, asked = Stacked.forward, []

    def counted(self: Stacked, models: Params, inputs: Tensor) -> Tensor:
        asked.append(len(inputs))
        return stack(self, models, inputs)

    monkeypatch.setattr(Stacked, "forward", counted)
    senders = torch.tensor([[2, 1], [0, 2], [3, 0], [2, 1]])
    mask = torch.tensor([[True, False], [False, False], [True, True], [True, False]])
    losses = network.pair_loss(params, Peers(mask, senders), probe, whose=model)
    assert sum(asked) == int(mask.sum())
    whole = network.pair_loss(params, Peers(torch.ones_like(mask), senders), probe, whose=model)
    torch.testing.assert_close(losses, whole.where(mask, 0))


def test_an_empty_probe_is_refused_unless_masked() -> None:
    network = clients(federation(empty_test=2))
    params, probe, peers = network.init(0), network.probe(0, 0, "test"), Peers.everybody(4)
    with pytest.raises(InputError, match="no images in the probe of: client 2"):
        network.pair_loss(params, peers, probe)
    peers.mask[:, 2] = False
    assert network.pair_loss(params, peers, probe).isfinite().all()

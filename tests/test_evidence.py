"""Evidence: what real clients show, against one network at a time, and what may be given by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.evidence import Evidence
from scool_ppl.look.likelihoods import CrossLoss
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Params
from scool_ppl.train.start import Turn

TABLE = Peers(
    torch.tensor([[True, True], [True, False], [True, True], [False, False], [True, True], [True, True]]),
    torch.tensor([[1, 3], [0, 2], [4, 5], [2, 0], [3, 5], [0, 4]]),
)


def one_sided() -> Peers:
    mask = ~torch.eye(6, dtype=torch.bool)
    mask[1, 0] = mask[4] = False
    return Peers(mask)


PEERS = {"everybody": Peers.everybody(6), "one_sided": one_sided(), "table": TABLE}
every_peers = pytest.mark.parametrize("peers", PEERS.values(), ids=PEERS.keys())


@pytest.fixture(scope="module")
def federation() -> Federation:
    return load_federation("permuted:digits:clients=6,groups=2,train=20,test=40,ragged=0.5")


@pytest.fixture(scope="module")
def clients(federation: Federation) -> Clients:
    return Clients(federation, executor="stacked", dtype=torch.float64, probe_size=11, common_start=False)


@pytest.fixture(scope="module")
def trained(clients: Clients) -> Params:
    return clients.train(clients.init(0), None, epochs=3, seed=0, round=0).params


def found(clients: Clients, trained: Params, peers: Peers, *, seed: int = 0, round: int = 2) -> Evidence:
    start = clients.init(0)
    turn = Turn(
        clients=clients,
        params=start,
        start=start,
        peers=None,
        weights=None,
        memory={},
        includes_self=False,
        epochs=1,
        steps=None,
        round=round,
        seed=seed,
    )
    return Evidence(turn, trained, peers)


def cross_loss(clients: Clients, params: Params, evidence: Evidence) -> Tensor:
    """loss[i, j] of model i on client j's probe, one network and one client at a time."""
    loss = torch.zeros(6, 6, dtype=torch.float64)
    for i in range(6):
        module = clients.network().double()
        module.load_state_dict({name: value[i] for name, value in params.items()})
        for j in range(6):
            index = evidence.probe.index[j][evidence.probe.mask[j]]
            labels = clients.federation.labels(j, index)
            loss[i, j] = F.cross_entropy(module(clients.federation.inputs[index].double()), labels).detach()
    return loss


@every_peers
def test_losses_are_those_of_receivers_and_of_senders(clients: Clients, trained: Params, peers: Peers) -> None:
    evidence = found(clients, trained, peers)
    loss = cross_loss(clients, trained, evidence)
    senders = torch.arange(6).expand(6, 6) if peers.senders is None else peers.senders
    assert evidence.loss.shape == evidence.loss_received.shape == peers.mask.shape
    for i, m in peers.mask.nonzero().tolist():
        j = int(senders[i, m])
        assert float(evidence.loss[i, m]) == pytest.approx(float(loss[i, j]), abs=1e-10)
        assert float(evidence.loss_received[i, m]) == pytest.approx(float(loss[j, i]), abs=1e-10)
    assert float((loss - loss.T).abs().max()) > 0.1  # the two are not the same matrix


@every_peers
def test_a_loss_that_was_not_looked_at_never_counts_as_perfect(clients: Clients, trained: Params, peers: Peers) -> None:
    """Each pair's evidence equals that from the full matrix of losses, whoever else looks at whom."""
    evidence = found(clients, trained, peers)
    full = cross_loss(clients, trained, evidence)
    whole = Evidence.given(loss=full, chance=math.log(10))
    for symmetric in (True, False):
        likelihood = CrossLoss(reference="uniform", symmetric=symmetric)
        expected = peers.take(likelihood(whole)).where(peers.mask, 0)
        torch.testing.assert_close(likelihood(evidence), expected, rtol=0, atol=1e-9)


def test_each_fact_is_computed_once_and_only_when_asked(
    clients: Clients, trained: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    cross, probe = clients.cross_loss, clients.probe

    def counted(*args: object, model: str = "receiver") -> Tensor:
        calls[model] += 1
        return cross(*args, model=model)  # type: ignore[arg-type]

    monkeypatch.setattr(clients, "cross_loss", counted)
    monkeypatch.setattr(clients, "probe", lambda *args: (calls.update(["probe"]), probe(*args))[1])
    for peers, senders in ((Peers.everybody(6), 0), (TABLE, 1), (one_sided(), 1)):
        calls.clear()
        evidence = found(clients, trained, peers)
        assert not calls
        for _ in range(2):
            CrossLoss(reference="marginal")(evidence)
            assert evidence.loss is evidence.loss
        assert calls == Counter(receiver=1, sender=senders, probe=1)


def test_the_probe_is_of_training_images_and_keyed_by_seed_and_round(clients: Clients, trained: Params) -> None:
    evidence = found(clients, trained, TABLE)
    sizes = clients.federation.sizes("train")
    assert sizes.unique().numel() > 1
    for j, rows in enumerate(clients.federation.train):
        own = evidence.probe.index[j][evidence.probe.mask[j]]
        assert set(own.tolist()) <= set(rows.tolist())
        assert len(set(own.tolist())) == len(own) == min(11, int(sizes[j]))
    assert torch.equal(found(clients, trained, TABLE).probe.index, evidence.probe.index)
    for when in ({"seed": 1}, {"round": 3}):
        assert not torch.equal(found(clients, trained, TABLE, **when).probe.index, evidence.probe.index)


def test_chance_and_entropy(clients: Clients, trained: Params) -> None:
    evidence = found(clients, trained, TABLE)
    assert float(evidence.chance) == pytest.approx(math.log(10))
    assert evidence.num_clients == 6
    for j, rows in enumerate(clients.federation.train):
        counts = Counter(clients.federation.labels(j, rows).tolist())
        shares = [count / len(rows) for count in counts.values()]
        assert float(evidence.label_entropy[j]) == pytest.approx(-sum(p * math.log(p) for p in shares))


def test_what_is_given_is_returned() -> None:
    loss = torch.rand(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    evidence = Evidence.given(loss=loss, chance=2.0, seed=4, round=7)
    assert evidence.loss is loss
    assert torch.equal(evidence.loss_received, loss.T)
    assert torch.equal(evidence.peers.mask, ~torch.eye(3, dtype=torch.bool))
    assert (evidence.num_clients, evidence.seed, evidence.round, float(evidence.chance)) == (3, 4, 7, 2.0)
    assert bool(Evidence.given(loss=loss, includes_self=True).peers.mask.all())
    other = Evidence.given(loss=loss, loss_received=loss + 1, label_entropy=torch.ones(3))
    assert torch.equal(other.loss_received, loss + 1)
    assert torch.equal(other.label_entropy, torch.ones(3))


def test_given_losses_of_wrong_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(3,\), expected floating-point \(clients, candidates\)"):
        Evidence.given(loss=torch.zeros(3))
    with pytest.raises(InputError, match=r"shape \(3, 2\), expected \(3, 3\)"):
        Evidence.given(loss=torch.zeros(3, 2))
    with pytest.raises(InputError, match=r"shape \(6, 6\), expected \(6, 2\)"):
        Evidence.given(loss=torch.zeros(6, 6), peers=TABLE)
    with pytest.raises(InputError, match=r"loss_received has shape \(6, 1\), expected \(6, 2\)"):
        Evidence.given(loss=torch.zeros(6, 2), loss_received=torch.zeros(6, 1), peers=TABLE)


@pytest.mark.parametrize("peers", [TABLE, one_sided()], ids=["table", "one_sided"])
def test_given_evidence_says_what_it_misses(peers: Peers) -> None:
    evidence = Evidence.given(loss=torch.ones(peers.mask.shape), peers=peers)
    with pytest.raises(InputError, match="pass loss_received="):
        CrossLoss()(evidence)
    evidence = Evidence.given(loss=torch.ones(6, 6))
    with pytest.raises(InputError, match="label_entropy="):
        CrossLoss(reference="marginal")(evidence)

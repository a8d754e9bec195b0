"""Evidence: what real clients show, against one network at a time, and what may be given by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.evidence import NEEDS, Distance, Evidence, Need, RoundEvidence
from scool_ppl.look.likelihoods import CrossLoss
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Plan, Wrapper
from scool_ppl.train.questions import Params, Question
from scool_ppl.train.round_start import RoundStart
from tests.helpers import small

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
    return load_federation("permuted:digits:clients=6,groups=2,train=20,test=40,ragged=0.5,order=listed")


@pytest.fixture(scope="module")
def clients(federation: Federation) -> Clients:
    return Clients(federation, executor="stacked", dtype=torch.float64, probe_size=11, common_start=False)


@pytest.fixture(scope="module")
def trained(clients: Clients) -> Params:
    return clients.train(clients.init(0), None, Plan(epochs=3, seed=0, round=0)).params


LOSSES = ("loss", "loss_received", "label_entropy")


def found(
    clients: AnyClients,
    trained: Params,
    peers: Peers,
    needs: Collection[Need] = LOSSES,
    *,
    seed: int = 0,
    round: int = 2,
) -> Evidence:
    start = clients.init(0)
    begin = RoundStart(
        clients=clients,
        params=start,
        initial=start,
        peers=None,
        weights=None,
        memory={},
        includes_self=False,
        epochs=1,
        steps=None,
        round=round,
        seed=seed,
    )
    return RoundEvidence(begin, trained, peers, needs)


def cross_loss(clients: Clients, params: Params) -> Tensor:
    """loss[i, j] of model i on client j's probe, one network and one client at a time."""
    loss, probe = torch.zeros(6, 6, dtype=torch.float64), clients.probe(0, 2)
    for i in range(6):
        module = clients.network().double()
        module.load_state_dict({name: value[i] for name, value in params.items()})
        for j in range(6):
            index = probe.index[j][probe.mask[j]]
            labels = clients.federation.labels(j, index)
            loss[i, j] = F.cross_entropy(module(clients.federation.inputs[index].double()), labels).detach()
    return loss


@every_peers
def test_losses_are_those_of_receivers_and_of_senders(clients: Clients, trained: Params, peers: Peers) -> None:
    evidence = found(clients, trained, peers)
    loss = cross_loss(clients, trained)
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
    full = cross_loss(clients, trained)
    whole = Evidence.given(loss=full, chance=math.log(10))
    for symmetric in (True, False):
        likelihood = CrossLoss(reference="uniform", symmetric=symmetric)
        expected = peers.take(likelihood(whole)).where(peers.mask, 0)
        torch.testing.assert_close(likelihood(evidence), expected, rtol=0, atol=1e-9)


class Asked(Wrapper):
    """Clients that note what they are asked, exchange by exchange."""

    def __init__(self, clients: AnyClients) -> None:
        super().__init__(clients)
        self.exchanges: list[dict[str, str]] = []

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        self.exchanges.append({name: type(question).__name__ for name, question in questions.items()})
        return super().answer(questions, seed=seed, round=round)


def test_all_needs_are_one_exchange_and_reading_asks_nobody(clients: Clients, trained: Params) -> None:
    everything = ("loss", "loss_received", "label_entropy", "alignment", Distance(1.0))
    for peers, pairs in ((Peers.everybody(6), 1), (TABLE, 2), (one_sided(), 2)):
        asked = Asked(clients)
        evidence = found(asked, trained, peers, everything)
        assert len(asked.exchanges) == 1
        assert sorted(asked.exchanges[0].values()) == ["Alignment", "LabelEntropy", *["PairLoss"] * pairs]
        for _ in range(2):
            CrossLoss(reference="marginal")(evidence)
            assert evidence.loss is evidence.loss
        assert len(asked.exchanges) == 1


def test_what_nobody_declared_is_not_there(clients: Clients, trained: Params) -> None:
    asked = Asked(clients)
    evidence = found(asked, trained, TABLE, (Distance(2.0),))
    assert not asked.exchanges, "distances need no data"
    with pytest.raises(InputError, match="evidence has no 'loss', which nobody declared; add it to the `needs`"):
        CrossLoss()(evidence)
    with pytest.raises(InputError, match=r"no Distance\(norm=1.0, trained=False\), which nobody declared"):
        evidence.distance(1.0)
    with pytest.raises(InputError, match=r"unknown need 'losses'.*did you mean 'loss'\?"):
        found(clients, trained, TABLE, ("losses",))


def test_the_probe_is_of_training_images_and_keyed_by_seed_and_round(clients: Clients, trained: Params) -> None:
    probe = clients.probe(0, 0)
    sizes = clients.federation.sizes("train")
    assert sizes.unique().numel() > 1
    for j, rows in enumerate(clients.federation.train):
        own = probe.index[j][probe.mask[j]]
        assert set(own.tolist()) <= set(rows.tolist())
        assert len(set(own.tolist())) == len(own) == min(11, int(sizes[j]))
    first, again = (found(clients, trained, TABLE).loss for _ in range(2))
    assert torch.equal(first, again)
    for when in ({"seed": 1}, {"round": 3}):
        assert not torch.equal(found(clients, trained, TABLE, **when).loss, first)


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


GIVEN = ("loss", "loss_received", "chance", "label_entropy")


def test_given_evidence_offers_what_that_of_a_round_offers(clients: Clients, trained: Params) -> None:
    """A prior that runs by hand runs on clients: the same names, and the same numbers under them."""
    real = found(clients, trained, TABLE)
    given = Evidence.given(
        loss=real.loss,
        loss_received=real.loss_received,
        peers=TABLE,
        chance=float(real.chance),
        label_entropy=real.label_entropy,
        round=2,
    )
    public = [{name for name in dir(each) if not name.startswith("_")} for each in (given, real)]
    assert public[0] - public[1] == set()
    assert public[1] - public[0] == {"clients", "before", "trained", "seats", "unmixed", "looks_twice"}, (
        "of which given evidence has none"
    )
    for name in ("num_clients", "seed", "round", "memory"):
        assert getattr(given, name) == getattr(real, name)
    assert torch.equal(given.present, real.present)
    assert torch.equal(given.planned.mask, real.planned.mask)
    for name in GIVEN:
        torch.testing.assert_close(getattr(given, name), getattr(real, name), rtol=0, atol=0)
    for reference in ("midpoint", "marginal"):
        likelihood = CrossLoss(reference=reference)
        torch.testing.assert_close(likelihood(given), likelihood(real), rtol=0, atol=0)


@pytest.mark.parametrize("need", NEEDS)
def test_every_need_has_its_property_and_given_evidence_says_how_to_give_it(need: str) -> None:
    evidence = Evidence.given(loss=torch.ones(6, 2), peers=TABLE)
    if need == "loss":
        assert torch.equal(evidence.loss, torch.ones(6, 2))
        return
    with pytest.raises(InputError, match=f"given without clients and has no {need}; pass"):
        evidence.mixed_validation(torch.ones(6, 2)) if need == "mixed_validation" else getattr(evidence, need)


# Evidence that is a function of the graph.


class Entered:
    """Counts how often clients may be asked, and how deep that is at the moment."""

    def __init__(self) -> None:
        self.times, self.inside = 0, 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.times, self.inside = self.times + 1, self.inside + 1
        yield
        self.inside -= 1


class OnlyInside(Wrapper):
    """Clients that answer only while they may be asked."""

    def __init__(self, clients: AnyClients, entered: Entered) -> None:
        super().__init__(clients)
        self.entered = entered

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        assert self.entered.inside == 1
        return super().answer(questions, seed=seed, round=round)


FOUR = small.clients(4)
CHOSEN = Peers(
    torch.tensor([[True, True], [True, False], [True, True], [True, True]]),
    torch.tensor([[1, 3], [0, 2], [1, 0], [2, 1]]),
)


def later(peers: Peers, absent: tuple[int, ...] = ()) -> tuple[Evidence, Entered]:
    """Evidence of four clients who are asked once the graph is known."""
    entered = Entered()
    params = small.networks(FOUR)
    begin = RoundStart(
        OnlyInside(FOUR, entered), params, {}, None, None, {}, False, epochs=1, steps=1, round=0, seed=0, absent=absent
    )
    trained = {name: value + 0.5 * small.normal(*value.shape, seed=len(name)) for name, value in params.items()}
    return RoundEvidence(begin, trained, peers, ["mixed_validation"], entered), entered


@pytest.mark.parametrize("peers", [Peers.everybody(4), CHOSEN], ids=["everybody", "table"])
def test_mixed_validation_has_the_gradient_of_finite_differences(peers: Peers) -> None:
    """Of a sum over clients of which each counts differently; value and gradient are computed where clients are asked."""
    evidence, entered = later(peers)
    weight, step = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64), 1e-5
    graph = small.uniform(*peers.mask.shape, seed=3)
    leaf = graph.clone().requires_grad_()
    value = evidence.mixed_validation(leaf)
    assert entered.times == 1
    (weight * value).sum().backward()
    assert entered.times == 2, "once for the value and once for its gradient"
    assert leaf.grad is not None
    torch.testing.assert_close(value.detach(), evidence.mixed_validation(graph), rtol=0, atol=0)
    assert not evidence.mixed_validation(graph).requires_grad
    for i, m in torch.ones(graph.shape).nonzero().tolist():
        shift = torch.zeros_like(graph)
        shift[i, m] = step
        up, down = ((weight * evidence.mixed_validation(graph + sign * shift)).sum() for sign in (1, -1))
        assert float(leaf.grad[i, m]) == pytest.approx(float((up - down) / (2 * step)), abs=1e-7)
    assert bool((leaf.grad != 0)[peers.mask].all())
    assert not bool(leaf.grad[~peers.mask].any())
    assert entered.inside == 0


def test_the_absent_have_no_validation_loss_and_nobody_mixes_their_networks() -> None:
    evidence, _ = later(Peers.everybody(4), absent=(2,))
    leaf = small.uniform(4, 4, seed=3).requires_grad_()
    value = evidence.mixed_validation(leaf)
    value.sum().backward()
    assert (value != 0).tolist() == [True, True, False, True]
    assert leaf.grad is not None
    assert not bool(leaf.grad[2].any())
    assert not bool(leaf.grad[:, 2].any())


@pytest.mark.parametrize("norm", [1.0, 2.0])
@pytest.mark.parametrize("after", [False, True])
def test_distances_are_those_of_whole_networks(norm: float, after: bool) -> None:
    params = small.networks(FOUR)
    trained = {name: value + 0.5 * small.normal(*value.shape, seed=len(name)) for name, value in params.items()}
    begin = RoundStart(FOUR, params, {}, None, None, {}, False, epochs=1, steps=1, round=0, seed=0)
    evidence = RoundEvidence(begin, trained, CHOSEN, [Distance(norm, after)])
    distance = evidence.distance(norm, trained=after)
    for i, m in CHOSEN.mask.nonzero().tolist():
        j = int(CHOSEN.columns()[i, m])
        own = small.one(trained if after else params, i)
        small.close(distance[i, m], small.distance(small.one(trained, j), own, norm))

"""Likelihoods against their formulas, pair by pair, in plain floats."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection

import pytest
import torch
from torch import Tensor

from scool_ppl import CooperationModel
from scool_ppl.errors import ClientError, InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.look.evidence import Evidence, Need, RoundEvidence
from scool_ppl.look.likelihoods import (
    HOPELESS,
    CrossLoss,
    GradientAlignment,
    Ignored,
    MixedValidation,
    ModelDistance,
    ModelMixture,
    Reference,
    UpdateCosine,
)
from scool_ppl.mix.base import Alone
from scool_ppl.train.round_start import Memory, RoundStart
from tests.helpers.small import clients, close, distance, driver, gradient, loss, networks, one, uniform

CHANCE = math.log(10)
ENTROPY = torch.tensor([0.3, 1.1, 2.0, 0.0, 1.7], dtype=torch.float64)
LOSS = 3 * torch.rand(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def everybody() -> Peers:
    """Five clients; 2 is isolated, and 0 and 3 do not look at each other."""
    mask = ~torch.eye(5, dtype=torch.bool)
    mask[2] = mask[:, 2] = mask[0, 3] = mask[3, 0] = False
    return Peers(mask)


def one_sided() -> Peers:
    """Five clients; 0 looks at 1 but not the reverse, 2 looks at nobody and has only 4 looking."""
    mask = ~torch.eye(5, dtype=torch.bool)
    mask[2] = mask[:4, 2] = mask[1, 0] = False
    return Peers(mask)


def with_self() -> Peers:
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[1] = mask[:, 1] = False
    mask[1, 1] = True
    return Peers(mask)


def table() -> Peers:
    """Five clients with three candidates each, 2 looks at nobody, 4 at one, 3 also at itself."""
    senders = torch.tensor([[1, 2, 4], [0, 3, 4], [0, 1, 3], [1, 3, 2], [3, 0, 1]])
    mask = torch.ones(5, 3, dtype=torch.bool)
    mask[2] = mask[4, 1] = mask[4, 2] = False
    return Peers(mask, senders)


PEERS = {f.__name__: f() for f in (everybody, one_sided, with_self, table)}
every_peers = pytest.mark.parametrize("peers", PEERS.values(), ids=PEERS.keys())
REFERENCES: tuple[Reference, ...] = ("midpoint", "uniform", "marginal", "none")


def evidence(peers: Peers, junk: float = 0.0, matrix: Tensor = LOSS) -> Evidence:
    """What clients would find: L_ij and L_ji at looked-at pairs, and `junk` at masked ones."""
    loss, received = peers.take(matrix), peers.take(matrix.T)
    return Evidence.given(
        loss=loss.masked_fill(~peers.mask, junk),
        loss_received=received.masked_fill(~peers.mask, junk),
        peers=peers,
        chance=CHANCE,
        label_entropy=ENTROPY[: len(matrix)],
    )


def looked_at(peers: Peers) -> dict[int, list[tuple[int, int]]]:
    """Receiver -> (column, sender) of its candidates."""
    senders = torch.arange(peers.num_clients).expand(peers.mask.shape) if peers.senders is None else peers.senders
    rows = peers.mask.tolist()
    return {i: [(m, int(senders[i, m])) for m, looks in enumerate(row) if looks] for i, row in enumerate(rows)}


def best_by_hand(peers: Peers, loss: list[list[float]]) -> float:
    """Mean over clients j of the mean of the two lowest losses that the models of j's candidates have on D_j."""
    means = []
    for j, pairs in looked_at(peers).items():
        lowest = sorted(loss[model][j] for _, model in pairs if model != j)[:2]
        if lowest:
            means.append(sum(lowest) / len(lowest))
    return sum(means) / len(means) if means else CHANCE


def reference_by_hand(kind: Reference, peers: Peers, loss: list[list[float]]) -> list[float]:
    count = len(loss)
    if kind == "none":
        return [0.0] * count
    if kind == "uniform":
        return [CHANCE] * count
    chance = [CHANCE] * count if kind == "midpoint" else ENTROPY[:count].tolist()
    best = best_by_hand(peers, loss)
    return [0.5 * min(best, chance[j]) + 0.5 * chance[j] for j in range(count)]


@pytest.mark.parametrize(
    ("reference", "symmetric", "n_eff", "temperature"),
    [*itertools.product(REFERENCES, (True, False), (5.0,), (1.0,)), ("midpoint", True, 0.7, 3.0)],
)
@every_peers
def test_cross_loss_is_its_formula(
    peers: Peers, reference: Reference, symmetric: bool, n_eff: float, temperature: float
) -> None:
    loss = LOSS.tolist()
    known = reference_by_hand(reference, peers, loss)
    expected = torch.zeros(peers.mask.shape, dtype=torch.float64)
    for i, pairs in looked_at(peers).items():
        for m, j in pairs:
            here, there = known[j] - loss[i][j], known[i] - loss[j][i]
            expected[i, m] = n_eff * ((here + there) / 2 if symmetric else here) / temperature
    found = CrossLoss(n_eff, temperature, reference, symmetric)(evidence(peers))
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reference", REFERENCES)
@every_peers
def test_masked_pairs_have_no_influence(peers: Peers, reference: Reference) -> None:
    for symmetric in (True, False):
        likelihood = CrossLoss(reference=reference, symmetric=symmetric)
        expected = likelihood(evidence(peers))
        assert bool((expected[~peers.mask] == 0).all())
        assert bool((expected[peers.mask] != 0).all())
        for junk in (torch.nan, torch.inf, 1e9, -1e9):
            assert torch.equal(likelihood(evidence(peers, junk)), expected)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("includes_self", [False, True])
@pytest.mark.parametrize("num_clients", [1, 2])
def test_few_clients_give_finite_evidence(num_clients: int, includes_self: bool, reference: Reference) -> None:
    peers, loss = Peers.everybody(num_clients, includes_self), LOSS[:num_clients, :num_clients]
    found = CrossLoss(reference=reference)(evidence(peers, torch.nan, loss))
    assert bool(found.isfinite().all())
    known = reference_by_hand(reference, peers, loss.tolist())
    if includes_self:
        assert float(found[0, 0]) == pytest.approx(5 * (known[0] - float(loss[0, 0])))
    if num_clients == 2:
        both = (known[0] + known[1] - float(loss[0, 1]) - float(loss[1, 0])) / 2
        assert float(found[0, 1]) == pytest.approx(5 * both)
        assert float(found[1, 0]) == pytest.approx(5 * both)


@pytest.mark.parametrize("reference", REFERENCES)
def test_nobody_looks_at_anybody(reference: Reference) -> None:
    peers = Peers(torch.zeros(5, 5, dtype=torch.bool))
    assert torch.equal(CrossLoss(reference=reference)(evidence(peers, torch.nan)), torch.zeros(5, 5).double())


def test_losses_above_chance_do_not_raise_the_reference_above_it() -> None:
    peers = Peers.everybody(5)
    found = CrossLoss(1.0, symmetric=False)(evidence(peers, matrix=LOSS + 10))
    assert float((found - (CHANCE - LOSS - 10))[peers.mask].abs().max()) < 1e-12


def test_without_a_reference_cooperating_never_wins_and_with_one_it_does() -> None:
    group = torch.tensor([0, 0, 0, 1, 1])
    same = group[:, None] == group
    loss, peers = torch.where(same, 0.5, 7.0).double(), Peers.everybody(5)
    assert bool((CrossLoss(reference="none")(evidence(peers, matrix=loss)) <= 0).all())
    log_lik = CrossLoss()(evidence(peers, matrix=loss))
    assert torch.equal(log_lik > 0, same & peers.mask)


def test_symmetric_evidence_is_symmetric_and_one_sided_is_not() -> None:
    peers = Peers.everybody(5)
    log_lik = CrossLoss(symmetric=True)(evidence(peers))
    torch.testing.assert_close(log_lik, log_lik.T, rtol=0, atol=1e-12)
    one = CrossLoss(symmetric=False, reference="uniform")(evidence(peers))
    assert float((one - one.T).abs().max()) > 0.1


@every_peers
def test_ignored_favours_no_pair_and_does_not_look(peers: Peers) -> None:
    assert not Ignored().needs
    assert set(CrossLoss().needs) == {"loss", "loss_received"}
    assert set(CrossLoss(reference="uniform", symmetric=False).needs) == {"loss"}
    assert "label_entropy" in CrossLoss(reference="marginal").needs
    found = Ignored()(evidence(peers, torch.nan))
    assert found.shape == peers.mask.shape
    assert not bool(found.any())


def test_evidence_is_left_as_it_was() -> None:
    given = evidence(everybody(), torch.nan)
    before = given.loss.clone(), given.loss_received.clone()
    CrossLoss()(given)
    for now, then in zip((given.loss, given.loss_received), before, strict=True):
        assert torch.equal(now.nan_to_num(-1), then.nan_to_num(-1))


@pytest.mark.parametrize("options", [{"n_eff": 0.0}, {"n_eff": -1.0}, {"temperature": 0.0}, {"temperature": -2.0}])
def test_numbers_that_are_not_positive_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected both to be positive"):
        CrossLoss(**options)  # type: ignore[arg-type]


def test_an_unknown_reference_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'midpoint'"):
        CrossLoss(reference="midpoints")  # type: ignore[arg-type]


def test_diverged_losses_do_not_move_the_reference_nor_the_other_pairs() -> None:
    whose = clients(5)
    em, state = driver(CooperationModel(Dirac(torch.zeros(5, 5)), CrossLoss(), Alone()), whose)
    start = em.round_start(state)
    evidence, healthy, _ = em.look(start, state.params)
    broken = {name: value.clone() for name, value in state.params.items()}
    worst = int(evidence.loss.mean(1).argmax())  # whose losses are not among anybody's lowest
    broken["1.weight"][worst] = torch.nan
    with pytest.raises(ClientError, match=f"client {worst}: its network's loss is not finite"):
        em.look(start, broken)
    left, joint, _ = em.look(start._replace(absent=(worst,)), broken)
    assert healthy.table is not None
    assert joint.table is not None
    others = [i for i in range(5) if i != worst]
    close(joint.table[others][:, others], healthy.table[others][:, others])
    assert not left.peers.mask[worst].any()
    assert not left.peers.mask[:, worst].any()
    # One network that breaks on one client's data only is no fault, and no choice.
    odd = Evidence.given(loss=evidence.loss.clone(), chance=1.1)
    odd.loss[0, 1] = torch.nan
    assert float(CrossLoss()(odd)[0, 1]) < -1e5


def test_a_pair_that_is_not_looked_at_says_nothing() -> None:
    """It has no loss, and must not count as one of 0: neither for itself nor for the reference."""
    size = 4
    looked = ~torch.eye(size, dtype=torch.bool)
    looked[0, 1] = looked[1, 0] = False
    some = Peers(~torch.eye(size, dtype=torch.bool), None, looked)
    measured = torch.where(looked, 0.3 + uniform(size, size, seed=7), 0.0)
    for symmetric in (True, False):
        likelihood = CrossLoss(symmetric=symmetric)
        found = likelihood(Evidence.given(loss=measured, loss_received=measured.T, peers=some, chance=1.1))
        expected = likelihood(Evidence.given(loss=measured, loss_received=measured.T, peers=Peers(looked), chance=1.1))
        assert torch.equal(found, expected)
        assert found[0, 1] == found[1, 0] == 0
        assert bool((found != 0)[looked].all())


# Likelihoods of other methods.


def both_ways(peers: Peers, matrix: Tensor, looked: Tensor | None = None) -> Evidence:
    """Evidence of a round in which only some of the pairs are looked at."""
    seen = peers._replace(looked=looked)
    return Evidence.given(loss=peers.take(matrix), loss_received=peers.take(matrix.T), peers=seen)


@every_peers
def test_a_mixture_is_scored_by_what_senders_lose_on_the_receivers_data(peers: Peers) -> None:
    found = ModelMixture(n_eff=3, temperature=2)(both_ways(peers, LOSS))
    for i, pairs in looked_at(peers).items():
        for m, j in pairs:
            assert float(found[i, m]) == pytest.approx(-3 * float(LOSS[j, i]) / 2, abs=1e-12)
    assert not bool(found[~peers.mask].any())


def test_a_moving_average_counts_the_first_look_in_full_and_keeps_what_is_not_looked_at() -> None:
    """Three rounds by hand: all look, then nobody at 1 or 3, then all; a pair that was never looked at stays unknown."""
    likelihood, share = ModelMixture(n_eff=1, average=0.25), 0.25
    mask = ~torch.eye(5, dtype=torch.bool)
    some = mask.clone()
    some[:, [1, 3]] = False
    last: dict[tuple[int, int], float] = {}
    memory: Memory = {}
    for scale, (candidates, looked) in enumerate([(some, some), (mask, mask), (mask, some)], start=1):
        evidence = both_ways(Peers(candidates), scale * LOSS, looked)
        evidence.memory = memory
        found = likelihood(evidence)
        for i, j in candidates.nonzero().tolist():
            if looked[i, j]:
                new = -scale * float(LOSS[j, i])
                last[i, j] = (1 - share) * last[i, j] + share * new if (i, j) in last else new
            assert float(found[i, j]) == pytest.approx(last[i, j], abs=1e-12)
        memory = likelihood.to_remember(evidence, found)
        value, axes = memory["mixture"]
        assert axes == (0, 1)
        known = {(i, j): float(value[i, j]) for i, j in (~value.isnan()).nonzero().tolist()}
        assert known == pytest.approx(last)


@pytest.mark.parametrize("average", [0.0, 1.5, math.nan, "often"])
def test_an_average_that_is_no_share_is_refused(average: object) -> None:
    with pytest.raises(
        InputError, match=f"average={average}.: expected positive numbers and an average in .0, 1. or none"
    ):
        ModelMixture(average=average)  # type: ignore[arg-type]


def asked(needs: Collection[Need], peers: Peers) -> tuple[RoundEvidence, dict[str, Tensor]]:
    """Evidence of five small clients, and their trained networks."""
    whose = clients(5)
    params, trained = networks(whose), networks(whose, seed=40)
    begin = RoundStart(whose, params, {}, None, None, {}, False, epochs=1, steps=1, round=0, seed=0)
    return RoundEvidence(begin, trained, peers, needs), trained


@pytest.mark.parametrize("peers", [everybody(), table()], ids=["everybody", "table"])
def test_distances_count_in_units_of_their_mean_square(peers: Peers) -> None:
    likelihood = ModelDistance(kappa=3)
    evidence, trained = asked(likelihood.needs, peers)
    squares = {
        (i, m): float(distance(one(trained, i), one(trained, j))) ** 2
        for i, pairs in looked_at(peers).items()
        for m, j in pairs
    }
    found, mean = likelihood(evidence), sum(squares.values()) / len(squares)
    for pair, square in squares.items():
        assert float(found[pair]) == pytest.approx(-3 / 2 * square / mean, abs=1e-10)
    assert not bool(found[~peers.mask].any())


def test_alignment_is_divided_by_the_temperature_and_nothing_where_nobody_looks() -> None:
    looked = torch.zeros(5, 5, dtype=torch.bool)
    looked[0, 1] = looked[1, 0] = looked[3, 4] = looked[4, 3] = True
    evidence, trained = asked(GradientAlignment.needs, Peers.everybody(5)._replace(looked=looked))
    found = GradientAlignment(temperature=0.5)(evidence)
    assert torch.equal(found != 0, looked)
    whose = clients(5)
    for i, j in ((0, 1), (3, 4)):
        middle = {name: (value[i] + value[j]) / 2 for name, value in trained.items()}
        here, there = gradient(middle, whose, i), gradient(middle, whose, j)
        product = sum(float((here[name] * there[name]).sum()) for name in here)
        assert float(found[i, j]) == pytest.approx(product / 0.5, abs=1e-9)
        assert float(found[j, i]) == pytest.approx(product / 0.5, abs=1e-9)


@pytest.mark.parametrize("peers", [everybody(), table()], ids=["everybody", "table"])
def test_cosines_are_of_updates_and_who_stayed_or_broke_is_like_nobody(peers: Peers) -> None:
    shown = networks(clients(5))
    for value in shown.values():
        value[2] = 0
        value[3] = torch.nan
    found = UpdateCosine(3.0)(Evidence.given(loss=torch.zeros(peers.mask.shape), peers=peers, updates=shown))
    flat = torch.cat([value.flatten(1) for value in shown.values()], 1)
    for i, pairs in looked_at(peers).items():
        for m, j in pairs:
            expected = 0.0 if 2 in (i, j) else float(flat[i] @ flat[j] / (flat[i].norm() * flat[j].norm()))
            assert float(found[i, m]) == (pytest.approx(3 * expected, abs=1e-10) if 3 not in (i, j) else HOPELESS)
    assert not bool(found[~peers.mask].any())
    with pytest.raises(InputError, match=r"strength=0, expected a positive number"):
        UpdateCosine(0)


def test_mixed_validation_is_the_log_likelihood_of_the_mixed_networks() -> None:
    peers = table()
    evidence, trained = asked(MixedValidation.needs, peers)
    weights, whose = uniform(*peers.mask.shape, seed=3), clients(5)
    before, total = networks(whose), 0.0
    for i, pairs in looked_at(peers).items():
        mixed = one(before, i)
        for m, j in pairs:
            mixed = {
                name: value + weights[i, m] * (trained[name][j] - before[name][j]) for name, value in mixed.items()
            }
        total -= float(loss(mixed, whose, i, "validation"))
    assert float(MixedValidation(n_eff=4)(evidence)(weights)) == pytest.approx(4 * total, abs=1e-9)

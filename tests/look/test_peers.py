"""Peer policies: whom they choose, how often, and what they remember."""

from __future__ import annotations

import itertools
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.peers import JOINED, All, Components, EpsilonGreedy, Near, PeerPolicy, RandomPairs, Top, nearest
from scool_ppl.train.round_start import Memory, Remembered, RoundStart
from tests.helpers.refusals import Case, refused, refuses
from tests.helpers.small import normal, uniform

K = 6


DRAWS = 400


OTHERS = ~torch.eye(K, dtype=torch.bool)


def begin(
    round: int = 0,
    *,
    size: int = K,
    peers: Peers | None = None,
    weights: Tensor | None = None,
    memory: Memory | None = None,
    includes_self: bool = False,
    seed: int = 0,
) -> RoundStart:
    clients: Any = SimpleNamespace(num_clients=size)
    return RoundStart(clients, {}, {}, peers, weights, memory or {}, includes_self, 1, None, round, seed)


def affinity(seed: int = 0) -> Tensor:
    return uniform(K, K, seed=seed)


def known(values: Tensor) -> Memory:
    """The memory of a policy that has found these affinities."""
    return {"affinity": Remembered(values, (0, 1))}


def best(values: Tensor, count: int) -> list[set[int]]:
    """The others with the highest values, row by row."""
    return [
        set(sorted((j for j in range(len(values)) if j != i), key=lambda j: -float(values[i, j]))[:count])
        for i in range(len(values))
    ]


def looked_at(peers: Peers) -> list[set[int]]:
    return [set(row.nonzero().flatten().tolist()) for row in peers.fresh.mask]


def frequency(policy: PeerPolicy, **options: Any) -> Tensor:
    """How often each pair is looked at, over seeds."""
    options.setdefault("round", 0)
    return torch.stack([policy(begin(seed=seed, **options)).fresh.mask.double() for seed in range(DRAWS)]).mean(0)


def within(found: Tensor | float, expected: float) -> bool:
    """Is a frequency of DRAWS draws within five standard errors?"""
    error = math.sqrt(max(expected * (1 - expected), 1e-12) / DRAWS)
    return bool(((torch.as_tensor(found) - expected).abs() <= 5 * error).all())


def test_all_keeps_everybody_and_any_table_it_is_given() -> None:
    first = All()(begin(size=3))
    assert torch.equal(first.mask, ~torch.eye(3, dtype=torch.bool))
    assert bool(All()(begin(size=3, includes_self=True)).mask.all())
    for peers in (first, Peers(torch.ones(4, 2, dtype=torch.bool), torch.tensor([[1, 3], [0, 2], [3, 0], [2, 1]]))):
        weights = normal(*peers.mask.shape)
        assert All()(begin(99, size=peers.num_clients, peers=peers, weights=weights)) is peers


@pytest.mark.parametrize("includes_self", [False, True])
@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_without_exploration_the_best_are_looked_at(count: int, includes_self: bool) -> None:
    policy = EpsilonGreedy(count, epsilon=0.0)
    peers = policy(begin(memory=known(affinity()), includes_self=includes_self))
    expected = best(affinity(), count)
    assert looked_at(peers) == [row | {i} if includes_self else row for i, row in enumerate(expected)]
    assert peers.senders is None


@pytest.mark.parametrize("accumulate", [True, False])
def test_affinity_is_the_sum_of_the_graphs_or_the_last_one(accumulate: bool) -> None:
    policy, memory, peers = EpsilonGreedy(2, 0.0, accumulate=accumulate), {}, None
    last = expected = torch.zeros(K, K).double()
    for round in range(4):
        given = begin(round, peers=peers, weights=None if round == 0 else last, memory=memory, seed=3)
        before = dict(memory)
        found, memory = policy(given), policy.to_remember(given)
        assert before == given.memory, "what is to be remembered is returned, not written"
        assert torch.allclose(memory["affinity"].value, expected)
        assert memory["affinity"].axes == (0, 1)
        if round:
            # Where pairs were not looked at there is no weight, and ties are broken at random.
            for i, row in enumerate(looked_at(found)):
                least = min(float(expected[i, j]) for j in row)
                assert all(float(expected[i, j]) <= least + 1e-8 for j in set(range(K)) - row - {i})
        peers = Peers(OTHERS)
        last = (uniform(K, K, seed=round) - 0.2).fill_diagonal_(0)
        expected = expected + last if accumulate else last


def test_nothing_known_of_a_newcomer_is_no_affinity() -> None:
    values = affinity()
    values[2] = values[:, 2] = torch.nan
    found = EpsilonGreedy(2, 0.0).affinity(begin(memory=known(values)))
    assert not found[2].any()
    assert not found[:, 2].any()
    assert torch.equal(found[3:, 3:], values[3:, 3:])


def test_the_first_graph_of_a_prior_is_no_affinity() -> None:
    """Before the first round a graph is what the prior starts from, not what the clients found."""
    given = begin(0, peers=Peers(OTHERS), weights=affinity())
    assert not bool(EpsilonGreedy(2, 0.0).affinity(given).any())


@pytest.mark.parametrize("policy", [All(), Top(2), RandomPairs()], ids=str)
def test_most_policies_remember_nothing(policy: PeerPolicy) -> None:
    assert policy.to_remember(begin(3, peers=Peers(OTHERS), weights=affinity())) == {}


def test_a_policy_without_a_choice_says_what_to_write() -> None:
    with pytest.raises(InputError, match="Mine has no `__call__`; write one that returns the round's Peers"):
        type("Mine", (PeerPolicy,), {})()(begin())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_full_exploration_is_uniform(count: int) -> None:
    found = frequency(EpsilonGreedy(count, epsilon=1.0), memory=known(affinity()))
    assert within(found[OTHERS], count / (K - 1))
    assert not bool(found.diagonal().any())


def test_without_affinity_the_first_look_is_uniform() -> None:
    assert within(frequency(EpsilonGreedy(2, epsilon=0.0))[OTHERS], 2 / (K - 1))


@pytest.mark.parametrize(("round", "epsilon"), [(0, 0.6), (2, 0.4), (6, 0.0), (50, 0.0)])
def test_exploration_decays(round: int, epsilon: float) -> None:
    values = affinity()
    found = frequency(EpsilonGreedy(1, 0.6, decay=0.1), round=round, memory=known(values))
    top = torch.tensor([next(iter(row)) for row in best(values, 1)])
    chance = 1 - epsilon + epsilon / (K - 1)
    assert within(found[torch.arange(K), top], chance)
    rest = OTHERS.clone()
    rest[torch.arange(K), top] = False
    assert within(found[rest], epsilon / (K - 1))


@pytest.mark.parametrize("includes_self", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_exactly_count_others_and_always_itself_where_it_may(epsilon: float, size: int, includes_self: bool) -> None:
    for seed in range(20):
        peers = EpsilonGreedy(3, epsilon)(begin(size=size, seed=seed, includes_self=includes_self))
        mask = peers.mask
        assert bool((mask.diagonal() == includes_self).all())
        assert (mask.sum(1) - mask.diagonal().long()).tolist() == [min(3, size - 1)] * size


def test_it_remembers_whom_it_has_looked_at() -> None:
    policy, peers, seen = EpsilonGreedy(2, 1.0, remember=True), None, torch.zeros(K, K, dtype=torch.bool)
    forgets = EpsilonGreedy(2, 1.0)
    for round in range(4):
        given = begin(round, peers=peers, weights=None if peers is None else peers.mask.double(), includes_self=True)
        peers = policy(given)
        assert peers.looked is not None
        assert torch.equal(peers.looked, forgets(given._replace(memory={})).mask)
        assert peers.looked.sum(1).tolist() == [3] * K
        seen = seen | peers.looked
        assert torch.equal(peers.mask, seen)
        assert torch.equal(peers.fresh.mask, peers.looked)
    assert int(seen.sum()) > 18


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RandomPairs("clients"), [1 / K] * 5),
        (RandomPairs("time"), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
        (RandomPairs("mixed", warmup=2), [1 / K, 1 / K, 1 / 3, 1 / 4, 1 / 5]),
        (RandomPairs("mixed", warmup=0), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
    ],
    ids=str,
)
def test_pairs_are_looked_at_with_the_probability_of_their_schedule(policy: RandomPairs, expected: list[float]) -> None:
    for round, probability in enumerate(expected):
        assert policy.probability(K, round) == pytest.approx(probability)
        found = frequency(policy, round=round)
        assert within(found[OTHERS], probability)
        assert not bool(found.diagonal().any())
    # Pairs are independent of one another.
    draws = torch.stack([policy(begin(1, seed=seed)).fresh.mask.double() for seed in range(DRAWS)])
    assert within((draws[:, 0, 1] * draws[:, 2, 3]).mean(), expected[1] ** 2)


def test_both_of_a_pair_look_or_neither_and_the_others_stay_in_the_graph() -> None:
    for seed in range(20):
        peers = RandomPairs("clients")(begin(seed=seed))
        assert peers.looked is not None
        assert torch.equal(peers.looked, peers.looked.T)
        assert torch.equal(peers.mask, OTHERS)
        assert torch.equal(peers.fresh.mask, peers.looked)


def shrunk(
    policy: Top, weights: Tensor | None, peers: Peers | None = None, *, round: int = 5, itself: bool = False
) -> Peers:
    """What Top makes of these candidates, by default of everybody, and this graph."""
    size = 4 if weights is None else len(weights)
    peers = Peers.everybody(size, itself) if peers is None and weights is not None else peers
    return policy(begin(round, size=size, peers=peers, weights=weights, includes_self=itself))


def test_top_starts_with_everybody_and_waits() -> None:
    policy = Top(keep=2, after=3)
    everybody = shrunk(policy, None, round=0)
    assert everybody.senders is None
    assert torch.equal(everybody.mask, ~torch.eye(4, dtype=torch.bool))
    for round in (1, 2):
        assert shrunk(policy, uniform(4, 4), everybody, round=round) is everybody
    assert shrunk(policy, uniform(4, 4), everybody, round=3).mask.shape == (4, 2)


def test_top_begins_again_when_clients_have_joined() -> None:
    everybody = Peers.everybody(4)
    given = begin(5, size=4, peers=everybody, weights=uniform(4, 4), memory={JOINED: Remembered(torch.tensor(3), ())})
    assert Top(keep=2, after=3)(given) is everybody
    assert Top(keep=2, after=2)(given).mask.shape == (4, 2)


def test_top_keeps_the_heaviest_senders() -> None:
    weights = torch.tensor([[9.0, 0.1, 0.4, 0.3], [0.2, 9.0, 0.1, 0.3], [0.5, 0.6, 9.0, 0.7], [0.3, 0.2, 0.1, 9.0]])
    peers = shrunk(Top(keep=2, after=1), weights)
    # The diagonal is heaviest but not a candidate; senders stay in ascending order.
    assert peers.senders is not None
    assert peers.senders.tolist() == [[2, 3], [0, 3], [1, 3], [0, 1]]
    assert bool(peers.mask.all())
    # A shrunken table is not shrunk again, but a smaller `keep` shrinks it further, by the table's own columns.
    assert shrunk(Top(keep=2, after=1), peers.take(weights), peers) is peers
    single = shrunk(Top(keep=1, after=1), peers.take(weights), peers)
    assert single.senders is not None
    assert single.senders.tolist() == [[2], [3], [3], [0]]


def test_top_never_turns_a_masked_pair_into_a_candidate() -> None:
    mask = ~torch.eye(4, dtype=torch.bool)
    mask[2] = mask[1, 3] = False
    few = shrunk(Top(keep=2, after=0), torch.full((4, 4), 0.9).masked_fill(mask, 0.1), Peers(mask))
    rows, _, senders = few.pairs()
    assert bool(mask[rows, senders].all())
    assert few.mask.sum(1).tolist() == [2, 2, 0, 2]


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_top_keeps_the_client_itself_where_it_may_choose_itself(keep: int) -> None:
    weights = affinity()
    weights.fill_diagonal_(0)
    weights[0, 0] = 0.99  # nor does it count itself among the others
    for itself in (True, False):
        peers = shrunk(Top(keep, after=5), weights, itself=itself)
        assert peers.senders is not None
        assert bool(peers.mask.all())
        for i, row in enumerate(best(weights, keep)):
            assert sorted(peers.senders[i].tolist()) == sorted(row | {i} if itself else row)


def test_top_keeps_the_client_itself_in_a_table_that_shrinks_again() -> None:
    weights = affinity().fill_diagonal_(0)
    first = shrunk(Top(4, after=5), weights, itself=True)
    again = shrunk(Top(2, after=5), first.take(weights), first, itself=True)
    assert again.senders is not None
    for i, row in enumerate(best(weights, 2)):
        assert sorted(again.senders[i].tolist()) == sorted(row | {i})
    assert shrunk(Top(2, after=5), again.take(weights), again, itself=True) is again


def test_top_keeps_all_where_there_are_no_more() -> None:
    for size, keep, itself in ((2, 2, False), (3, 3, False), (3, 2, True), (3, 3, True), (1, 1, False)):
        everybody = Peers.everybody(size, itself)
        assert shrunk(Top(keep, after=0), uniform(size, size), everybody, itself=itself) is everybody
        if size > 1:
            assert shrunk(Top(1, after=0), uniform(3, 3), Peers.everybody(3, itself), itself=itself).is_table


TOPS: list[dict[str, Any]] = [{"keep": 0}, {"keep": -1}, {"keep": 1.5}, {"keep": 1, "after": -1}]
GREEDY: list[dict[str, Any]] = [
    {"count": 0},
    {"epsilon": "often"},
    {"epsilon": -0.1},
    {"epsilon": 1.1},
    {"epsilon": math.nan},
    {"decay": -1.0},
    {"decay": math.nan},
]
REFUSED: list[Case] = [
    *((partial(Top, **options), "expected keep >= 1 and after >= 0") for options in TOPS),
    *(
        (partial(EpsilonGreedy, **options), "expected a count of at least 1, epsilon in [0, 1] and")
        for options in GREEDY
    ),
    (lambda: RandomPairs("client"), "unknown schedule 'client'; known: clients, mixed, time; did you mean 'clients'?"),  # type: ignore[arg-type]
    (lambda: RandomPairs(warmup=-1), "warmup of RandomPairs is -1, expected a whole number of at least 0"),
]


@refused(REFUSED)
def test_impossible_policies_are_one_line(call: Any, words: str) -> None:
    refuses(call, words)


POLICIES: list[PeerPolicy] = [EpsilonGreedy(2, 0.5), EpsilonGreedy(2, 0.5, remember=True), RandomPairs("clients")]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_policy_repeats_with_its_seed_and_leaves_the_global_generator_alone(policy: PeerPolicy) -> None:
    before = torch.get_rng_state()
    masks = {}
    for seed, round in itertools.product(range(3), range(1, 4)):
        one, other = (policy(begin(round, seed=seed)).fresh.mask for _ in range(2))
        assert torch.equal(one, other)
        masks[seed, round] = one
    assert torch.equal(torch.get_rng_state(), before)
    assert any(not torch.equal(masks[0, 1], mask) for (seed, _), mask in masks.items() if seed)
    assert any(not torch.equal(masks[0, 1], masks[0, round]) for round in (2, 3))


def towards_groups(size: int, groups: int) -> tuple[dict[str, Tensor], Tensor]:
    """Networks that training moved towards one of several points, and which."""
    group = torch.arange(size) % groups
    points = {"a": normal(groups, 3, 4, seed=1), "b": normal(groups, 5, seed=2)}
    return {name: value[group] + 0.2 * normal(size, *value.shape[1:]) for name, value in points.items()}, group


def test_near_looks_at_those_who_went_the_same_way_and_at_others() -> None:
    trained, group = towards_groups(60, 3)
    start = begin(size=60)._replace(params={name: torch.zeros_like(value) for name, value in trained.items()})
    peers = Near(keep=8, explore=4).once_trained(start, trained)
    assert peers.senders is not None
    assert peers.mask.shape == (60, 12)
    assert not bool(peers.own().any())
    alike = (group[peers.senders] == group[:, None]) & peers.mask
    assert int(alike.sum(1).min()) >= 8, "all eight nearest are of the own group"
    others = float((alike.sum() - 8 * 60) / (peers.mask.sum() - 8 * 60))
    assert 0.1 < others < 0.6, "a third of the explorers, by chance"
    for row, mask in zip(peers.senders, peers.mask, strict=True):
        assert len(row[mask].unique()) == int(mask.sum()), "nobody twice"
    another = Near(keep=8, explore=4).once_trained(start._replace(round=1), trained)
    assert not torch.equal(peers.senders, another.senders), "others are drawn anew"
    assert torch.equal(peers.senders, Near(keep=8, explore=4).once_trained(start, trained).senders)


def test_near_includes_oneself_where_rows_may_and_takes_all_of_few() -> None:
    trained, _ = towards_groups(20, 2)
    start = begin(size=20, includes_self=True)._replace(params=trained)
    moved = {name: value + normal(*value.shape) for name, value in trained.items()}
    assert bool(Near(keep=4, explore=2).once_trained(start, moved).own().any(1).all())
    assert not Near(keep=16, explore=8).once_trained(start, moved).is_table
    with pytest.raises(InputError, match="once_trained"):
        Near()(start)
    with pytest.raises(InputError, match="keep=0"):
        Near(keep=0)


def test_the_nearest_are_those_of_a_whole_matrix() -> None:
    points = torch.nn.functional.normalize(normal(23, 5), dim=1)
    away = torch.ones(23, dtype=torch.bool)
    away[[3, 7]] = False
    whole = (points @ points.T).fill_diagonal_(-torch.inf).masked_fill(~away, -2).topk(4, dim=1).indices
    assert torch.equal(nearest(points, 4, away, at_once=23 * 5), whole)
    assert not bool(torch.isin(whole, torch.tensor([3, 7])).any())


@pytest.mark.parametrize("factor", [1e3, 1e9, 1e30])
def test_one_who_goes_far_does_not_hide_where_the_others_go(factor: float) -> None:
    trained, group = towards_groups(60, 3)
    trained = {name: value.double() for name, value in trained.items()}
    for value in trained.values():
        value[7] *= factor
    start = begin(size=60)._replace(params={name: torch.zeros_like(value) for name, value in trained.items()})
    peers = Near(keep=8, explore=0).once_trained(start, trained)
    assert bool((group[peers.columns()] == group[:, None]).all())


class Seated(PeerPolicy):
    """Looks at what a policy of clients is shown."""

    def __call__(self, start: RoundStart) -> Peers:
        assert start.peers is not None
        assert start.weights is not None
        assert start.weights.shape == start.peers.mask.shape == (K, 2)
        return start.peers


def test_components_are_looked_at_beside_those_whom_another_policy_chooses() -> None:
    start = begin()._replace(components={"weight": torch.zeros(3, 1)})
    alone = Components()(start)
    assert alone.columns().tolist() == [[K, K + 1, K + 2]] * K
    top = Components(Top(keep=2, after=0))
    everybody = top(start)
    assert everybody.mask.shape == (K, K + 3)
    weights = uniform(K, K + 3)
    kept = top(start._replace(round=1, peers=everybody, weights=weights))
    assert kept.components == 3
    assert kept.columns()[:, 2:].tolist() == alone.columns().tolist()
    heaviest = weights[:, :K].masked_fill(torch.eye(K, dtype=torch.bool), -1).topk(2, 1).indices.sort(1).values
    assert torch.equal(kept.columns()[:, :2], heaviest)
    Components(Seated())(start._replace(peers=kept, weights=uniform(K, 5)))


def test_components_read_the_last_candidates_where_their_clients_policy_does() -> None:
    policies = (All(), Top(3), Near(3), Components(), Components(Top(3)), Components(Near(3)))
    assert [policy.reads_last for policy in policies] == [True, True, False, False, True, False]


def test_a_pair_that_was_not_looked_at_keeps_its_last_weight() -> None:
    before = affinity()
    looked = torch.eye(K, dtype=torch.bool).roll(1, 1)
    weights = uniform(K, K, seed=3) * looked
    start = begin(4, peers=Peers(looked), weights=weights, memory={"affinity": Remembered(before, (0, 1))})
    found = EpsilonGreedy(accumulate=False).affinity(start)
    assert torch.equal(found, torch.where(looked, weights, before))

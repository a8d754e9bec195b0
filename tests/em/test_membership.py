"""Clients join and leave between rounds: those who stay keep what is known of them, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scool_ppl import EM, Clients, CooperationModel, Federation, InputError, Schedule, load_federation, load_model
from scool_ppl.deploy import Portfolio, alone
from scool_ppl.em.membership import carried_over
from scool_ppl.em.state import EMState
from scool_ppl.zoo.load import model_names
from tests.helpers.small import brief, driver
from tests.helpers.small import clients as small_clients
from tests.helpers.states import flattened, same

WHOLE = load_federation("permuted:digits:clients=6,groups=2,train=20,test=20,order=listed", seed=3)
FEDERATION, NEWCOMER = WHOLE.select(range(5)), WHOLE.select([5])
NAMES = FEDERATION.names
LEAVER, STAYERS = NAMES[2], [0, 1, 3, 4]
SCHEDULE = Schedule(local_epochs=1, warmup_epochs=3)
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.5)


def builder(model: str, **choices: Any) -> Callable[[Federation], CooperationModel]:
    return lambda federation: brief(load_model(model, federation.num_clients, federation=federation, **choices))


def made(model: str, federation: Federation = FEDERATION, **choices: Any) -> EM:
    clients = Clients(federation, optimizer=MOMENTUM, executor="stacked", dtype=torch.float64)
    return EM(builder(model, **choices)(federation), clients, SCHEDULE, seed=1)


def ran(em: EM, state: EMState | None = None, rounds: int = 2) -> EMState:
    state = em.init() if state is None else state
    for _ in range(rounds):
        state, _ = em.step(state)
    return state


def dense(em: EM, state: EMState) -> Tensor:
    begin = em.round_start(state)
    assert begin.peers is not None
    assert begin.weights is not None
    return begin.peers.dense(begin.weights.double())


@pytest.mark.parametrize("model", model_names())
def test_whoever_stays_keeps_all_and_the_run_goes_on(model: str) -> None:
    em = made(model)
    state = ran(em)
    fewer, left = em.leave(state, [LEAVER], builder(model))
    assert fewer.clients.names == tuple(NAMES[i] for i in STAYERS)
    for field in ("params", "initial", "optimizer"):
        old, new = getattr(state, field), getattr(left, field)
        assert old.keys() == new.keys()
        assert all(torch.equal(new[name], value[STAYERS]) for name, value in old.items())
    if em.model.prior.kind != "point" or model in (
        "cobo",
        "dada",
    ):  # a given graph is given anew, the others' is theirs
        assert torch.equal(dense(fewer, left), dense(em, state)[STAYERS][:, STAYERS])
    for site in ("z", "pi", "x"):
        if site in state.moments:
            assert torch.equal(left.moments[site], state.moments[site][STAYERS])
    assert all(torch.equal(left.components[name], value) for name, value in state.components.items())
    if state.components:
        assert state.peers is not None
        assert left.peers is not None
        shares = state.peers.shares(state.moments["Y"])
        assert bool((shares.sum(1) > 0.99).all())
        assert torch.equal(left.peers.shares(left.moments["Y"]), shares[STAYERS])
    assert state.q.keys() == left.q.keys()
    for name, value in state.q.items():
        kept = value[:, STAYERS] if name == "source_logits" else value[STAYERS]
        pairs = name in ("Y", "Y_logits", "z_receiver_logits", "z_sender_logits")
        assert torch.equal(left.q[name], kept[:, STAYERS] if pairs else kept)
    assert (left.round, left.seed) == (state.round, state.seed)
    after, info = fewer.step(left)
    assert flattened(after).keys() == flattened(fewer.step(ran(fewer))[0]).keys()
    assert all(bool(value.isfinite().all()) for value in after.params.values())
    assert bool(torch.isfinite(torch.tensor(info.elbo)))
    assert fewer.graph(after).names == fewer.clients.names


@pytest.mark.parametrize("model", model_names())
def test_a_join_and_a_leave_of_the_same_client_change_nothing(model: str) -> None:
    em = made(model)
    state = ran(em)
    more, joined = em.join(state, NEWCOMER, builder(model))
    assert more.clients.names == (*NAMES, "client 5")
    ran(more, joined, rounds=1)
    back, again = more.leave(joined, ["client 5"], builder(model))
    assert back.clients.names == NAMES
    same(again, with_edges_restored(em, state))


def with_edges_restored(em: EM, state: EMState) -> EMState:
    """The state with the graph as the next round sees it."""
    begin = em.round_start(state)
    return state._replace(peers=begin.peers, moments=state.moments | {"Y": begin.weights}, memory=dict(begin.memory))


POSITION = ("dpsgd", "ring", "covariate_sbm")  # their priors know clients by position
DRAWS = ("latent_space", "federico", "fedfomo")  # places, and who is looked at, are drawn by position
BLOCKS = ("scool_sbm", "scool_mmsbm")  # groups of clients move in random order, to the tolerance of the sweeps


@pytest.mark.parametrize("model", [name for name in model_names() if name not in (*POSITION, *DRAWS)])
def test_order_is_only_an_order(model: str) -> None:
    """The same clients in another order, of whom the same one leaves and the same one joins, end the same."""
    order = [3, 0, 4, 2, 1]
    results = []
    for federation in (FEDERATION, FEDERATION.select(order)):
        em = made(model, federation)
        state = ran(em, rounds=1)
        em, state = em.leave(state, [LEAVER], builder(model))
        em, state = em.join(state, NEWCOMER, builder(model))
        state = ran(em, state, rounds=1)
        results.append((em, state))
    (em, state), (other, moved) = results
    place = [other.clients.names.index(name) for name in em.clients.names]
    tolerance = 1e-3 if model in BLOCKS else 1e-8
    assert torch.allclose(em.graph(state).dense(), other.graph(moved).dense()[place][:, place], atol=tolerance)
    for name, value in state.params.items():
        assert torch.allclose(value, moved.params[name][place], atol=tolerance)


def test_a_client_who_leaves_before_the_first_round_was_never_there() -> None:
    for model in ("scool_sbm", "cobo", "l2c"):
        em = made(model)
        fewer, state = em.leave(em.init(), [LEAVER], builder(model))
        alone = made(model, FEDERATION.select(STAYERS))
        same(ran(fewer, state), ran(alone))


def test_where_a_newcomer_starts() -> None:
    em = made("scool_sbm")
    state = ran(em)
    fresh = made("scool_sbm", NEWCOMER)
    everybody = em.clients.for_federation(WHOLE)
    copies = [{name: value[[j] * 6] for name, value in state.params.items()} for j in range(5)]
    loss = [float(everybody.evaluate(networks, "train").loss[5]) for networks in copies]
    best = loss.index(min(loss))
    for start in ("best", "warm-up", "initial", "mean", NAMES[3]):
        more, joined = em.join(state, NEWCOMER, builder("scool_sbm"), start)
        for name, value in joined.params.items():
            assert torch.equal(value[:5], state.params[name])
            expected = {
                "best": state.params[name][best],
                "initial": fresh.init().params[name][0],
                "mean": state.params[name].mean(0),
                NAMES[3]: state.params[name][3],
                "warm-up": value[5],
            }[start]
            assert torch.equal(value[5], expected)
        if start == "warm-up":
            assert "started" not in joined.optimizer
            begin = fresh.round_start(fresh.init())._replace(round=-1)
            trained = begin.train(fresh.init().params)
            assert all(
                torch.allclose(trained.params[name][0], joined.params[name][5], atol=1e-12) for name in trained.params
            )
        else:
            assert joined.optimizer["started"].tolist() == [True] * 5 + [False]
        # Nothing is known of it: memberships and edges are uniform, the others' are as they were.
        assert torch.equal(joined.moments["z"][5], torch.full((8,), 1 / 8, dtype=torch.float64))
        assert not joined.q["z_logits"][5].any()
        assert torch.equal(dense(more, joined)[:5, :5], dense(em, state))
        assert not dense(more, joined)[5].any()
        assert bool(torch.as_tensor(joined.peers.mask)[5, :5].all())  # type: ignore[union-attr]


def test_a_newcomer_finds_its_group() -> None:
    """The graph that it has after some rounds is the true one, though nobody told the others who it is."""
    schedule = Schedule(local_epochs=5, warmup_epochs=40)
    whole = load_federation("permuted:digits:clients=9,groups=3,train=50,order=listed", seed=1)
    em = EM(load_model("scool_sbm", 8), Clients(whole.select(range(8))), schedule, seed=0)
    more, state = em.join(ran(em, rounds=3), whole.select([8]), builder("scool_sbm"))
    graph = more.graph(ran(more, state, rounds=2))
    friends = {graph.names[j] for j in (graph.dense()[8] > 0.5).nonzero().flatten().tolist()}
    assert whole.groups is not None
    assert friends == {whole.names[j] for j in range(8) if whole.groups[j] == whole.groups[8]}


def test_two_join_two_leave_and_one_comes_back_after_an_absence() -> None:
    em = made("federico", WHOLE.select(range(4)))
    state, _ = em.step(ran(em), absent=["client 1"])
    em, state = em.join(state, WHOLE.select([4, 5]), builder("federico"), "mean")
    assert not any(name == "resting" for name in state.memory)
    em, state = em.leave(ran(em, state, 1), ["client 0", "client 4"], builder("federico"))
    state = ran(em, state, 2)
    assert em.clients.names == ("client 1", "client 2", "client 3", "client 5")
    assert all(bool(value.isfinite().all()) for value in state.params.values())


def test_a_table_of_peers_forgets_who_left_and_opens_for_newcomers() -> None:
    em = made("scool_sbm", keep=2, after=2)
    state = ran(em, rounds=3)
    assert state.peers is not None
    assert state.peers.mask.shape == (5, 2)
    fewer, left = em.leave(state, [LEAVER], builder("scool_sbm", keep=2, after=2))
    was = {name: set() for name in NAMES}
    for i, row in enumerate(state.peers.senders.tolist()):  # type: ignore[union-attr]
        was[NAMES[i]] = {NAMES[j] for j in row} - {LEAVER}
    assert left.peers is not None
    if left.peers.senders is not None:
        now = {
            fewer.clients.names[i]: {fewer.clients.names[int(j)] for j in row[mask]}
            for i, (row, mask) in enumerate(zip(left.peers.senders, left.peers.mask, strict=True))
        }
        assert now == {name: peers for name, peers in was.items() if name != LEAVER}
    ran(fewer, left, rounds=1)
    more, joined = em.join(state, NEWCOMER, builder("scool_sbm", keep=2, after=2))
    assert torch.equal(dense(more, joined)[:5, :5], dense(em, state))
    shapes = []
    for _ in range(3):
        joined, _ = more.step(joined)
        assert joined.peers is not None
        shapes.append(tuple(joined.peers.mask.shape))
    assert shapes == [(6, 6), (6, 6), (6, 2)]


def test_a_table_that_would_leave_somebody_alone_is_opened() -> None:
    em = made("scool_sbm", keep=1, after=1)
    state = ran(em)
    assert state.peers is not None
    teacher = NAMES[int(state.peers.senders[0, 0])]  # type: ignore[index]
    fewer, left = em.leave(state, [teacher], builder("scool_sbm", keep=1, after=1))
    assert left.peers is not None
    assert left.peers.senders is None
    assert bool(left.peers.mask[0].any())
    ran(fewer, left)


class Squares(TorchDispatchMode):
    """Shapes of whatever is made meanwhile that has two axes as long as there are clients."""

    def __init__(self, *counts: int) -> None:
        super().__init__()
        self.counts, self.found = counts, set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, Tensor) and sum(length in self.counts for length in each.shape) > 1:
                self.found.add((str(func), tuple(each.shape)))
        return out


def candidates(em: EM, state: EMState) -> dict[str, set[str]]:
    """Whom each client may learn from, by name, nobody twice."""
    assert state.peers is not None
    names, found = em.clients.names, {}
    for name, senders, mask in zip(names, state.peers.columns(), state.peers.mask, strict=True):
        known = [names[int(sender)] for sender in senders[mask]]
        assert len(set(known)) == len(known)
        found[name] = set(known) - {name}
        assert len(found[name]) == len(known)
    return found


def test_newcomers_are_looked_at_before_senders_are_dropped() -> None:
    choices = {"keep": 2, "after": 2}
    em = made("scool_sbm", FEDERATION.select([0, 1, 2]), **choices)
    moved, state = em.join(ran(em), FEDERATION.select([3, 4]), builder("scool_sbm", **choices))
    everybody = ~torch.eye(5, dtype=torch.bool)
    for _ in range(2):
        state, _ = moved.step(state)
        assert state.peers is not None
        assert torch.equal(state.peers.mask, everybody)
    state, _ = moved.step(state)
    assert state.peers is not None
    assert state.peers.mask.shape == (5, 2)


def test_near_peers_stay_a_table_when_clients_join_and_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """No K x K numbers: newcomers, and whoever has lost all candidates, have others at random until the next round."""
    monkeypatch.setattr("scool_ppl.data.federation.MANY", 10)  # of more clients no true graph is written out
    monkeypatch.setattr("scool_ppl.em.membership.AT_ONCE", 2 * 107)  # newcomers are asked about two at a time
    whole = load_federation("permuted:digits:clients=107,groups=2,train=5,test=2,order=listed", seed=3)
    near = builder("scool_sbm", near=3)
    em = made("scool_sbm", whole.select(range(101)), near=3)
    state, _ = em.step(em.init())
    assert state.peers is not None
    assert state.peers.mask.shape == (101, 11)
    for start in ("best", "mean"):
        with Squares(101, 107) as squares:
            more, joined = em.join(state, whole.select(range(101, 107)), near, start)
        assert squares.found == set()
        assert joined.peers is not None
        assert joined.peers.mask.shape == (107, 11)
        now = candidates(more, joined)
        assert {name: now[name] for name in em.clients.names} == candidates(em, state)
        assert all(len(now[name]) > 5 for name in whole.names[101:])
        assert torch.equal(dense(more, joined)[:101, :101], dense(em, state))
        assert not dense(more, joined)[101:].any()
    after, _ = more.step(joined)
    assert after.peers is not None
    assert after.peers.mask.shape == (107, 11)

    was = candidates(em, state)
    lonely = whole.names[0]
    gone = was[lonely]
    with Squares(101, 101 - len(gone)) as squares:
        fewer, left = em.leave(state, sorted(gone), near)
    assert squares.found == set()
    now = candidates(fewer, left)
    assert len(now[lonely]) > 5
    for name in fewer.clients.names:
        assert now[name] == was[name] - gone or not was[name] - gone
    fewer.step(left)


def test_the_best_start_is_that_of_all_pairs_however_many_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    em = made("scool_sbm", WHOLE.select(range(3)))
    state, found = ran(em), []
    for at_once in (1, 2**22):
        monkeypatch.setattr("scool_ppl.em.membership.AT_ONCE", at_once)
        more, joined = em.join(state, WHOLE.select(range(3, 6)), builder("scool_sbm"))
        found.append(joined)
    same(*found)
    for newcomer in range(3, 6):
        copies = [{name: value[[j] * 6] for name, value in state.params.items()} for j in range(3)]
        loss = [float(more.clients.evaluate(networks, "train").loss[newcomer]) for networks in copies]
        best = loss.index(min(loss))
        assert all(torch.equal(value[newcomer], state.params[name][best]) for name, value in joined.params.items())


def test_entries_are_carried_to_where_their_client_is() -> None:
    old, fresh = torch.arange(9.0).view(3, 3), torch.full((4, 4), -1.0)
    where = [2, -1, 0, 1]
    found = carried_over(old, fresh, (0, 1), torch.tensor(where))
    for i, a in enumerate(where):
        for j, b in enumerate(where):
            assert found[i, j] == (-1 if a < 0 or b < 0 else old[a, b])
    rows = carried_over(old, torch.full((4, 3), -1.0), (0,), torch.tensor(where))
    assert rows.tolist() == [[6, 7, 8], [-1, -1, -1], [0, 1, 2], [3, 4, 5]]


def test_what_is_frozen_stays_so_for_other_clients() -> None:
    """What a transfer has frozen, in every track of a portfolio, too."""

    def portfolio(federation: Federation) -> Portfolio:
        count = federation.num_clients
        return Portfolio({"local": alone(count), "sbm": builder("scool_sbm")(federation)}, "sbm")

    clients = Clients(FEDERATION, executor="stacked")
    for build in (builder("scool_sbm"), portfolio):
        em = EM(build(FEDERATION), clients, SCHEDULE)
        em.model.prior.freeze(["B_unconstrained"])
        state = ran(em)
        frozen = state.prior["B_unconstrained"]
        for moved, carried in (em.leave(state, [LEAVER], build), em.join(state, NEWCOMER, build)):
            assert torch.equal(ran(moved, carried, 1).prior["B_unconstrained"], frozen)
            assert moved.model.prior.frozen == {"B"}


class Undeclared(type(load_model("l2c", 2).prior)):  # type: ignore[misc]
    client_axes = {}


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda em, state: em.leave(state, ["client 9"], builder("local")), "unknown client 'client 9'"),
        (lambda em, state: em.leave(state, "client 1", builder("local")), "names is the text 'client 1'"),
        (lambda em, state: em.leave(state, [], builder("local")), "0 of 5 clients leave, expected one at least"),
        (lambda em, state: em.leave(state, NAMES, builder("local")), "5 of 5 clients leave"),
        (lambda em, state: em.join(state, FEDERATION, builder("local")), r"names \['client 0'.* are repeated"),
        (lambda em, state: em.join(state, NEWCOMER, builder("local"), "warmup"), "did you mean 'warm-up'?"),
        (
            lambda em, state: em.join(state, NEWCOMER, lambda _: load_model("local", 5)),
            "the model is for 5 clients, the federation has 6",
        ),
        (
            lambda em, state: made("scool_sbm").join(ran(made("scool_sbm")), NEWCOMER, builder("scool_sbm", blocks=3)),
            r"'B_unconstrained' of SBM is now \(3, 3\), in the state \(8, 8\), expected one shape; .*same hyperparameters",
        ),
        (
            lambda em, state: made("l2c").leave(
                ran(made("l2c")), [LEAVER], lambda f: builder("l2c")(f)._replace(prior=Undeclared(f.num_clients, 0.01))
            ),
            "parameter 'alpha' of Undeclared .* say in `client_axes`",
        ),
        (
            lambda em, state: em.leave(state, [LEAVER], builder("l2c")),
            r"parameter 'alpha' of FreeRows is now \(4, 4\), in the state there is none",
        ),
    ],
)
def test_what_cannot_be_is_refused(act: Callable[[EM, EMState], Any], words: str) -> None:
    em = made("local")
    with pytest.raises(InputError, match=words):
        act(em, em.init())


def test_sizes_that_weigh_updates_are_those_of_the_clients_who_are_there() -> None:
    """theta_i + sum_j n_j Delta_j / sum_j n_j over who takes part, with a client away, after one left and one came."""

    def build(federation: Federation) -> CooperationModel:
        size = federation.num_clients
        truth = torch.ones(size, size) - torch.eye(size)
        return load_model("oracle", size, federation=federation, truth=truth, weigh=True)

    def is_the_mean(em: EM, state: EMState, absent: list[str]) -> EMState:
        after, info = em.step(state, absent)
        there = [i for i, name in enumerate(em.clients.names) if name not in absent]
        counts = [len(rows) for rows in em.clients.federation.train]
        assert len(set(counts)) == len(counts)
        total = sum(counts[i] for i in there)
        for name, before in state.params.items():
            mean = sum(counts[j] / total * (info.trained[name][j] - before[j]) for j in there)
            for i in there:
                torch.testing.assert_close(after.params[name][i], before[i] + mean, rtol=0, atol=1e-12)
        return after

    whole = small_clients(6).federation
    first = small_clients(6).for_federation(whole.select(range(5)))
    em, state = driver(build(first.federation), first)
    state = is_the_mean(em, is_the_mean(em, state, []), ["client 1"])
    em, state = em.leave(state, ["client 2"], build)
    em, state = em.join(is_the_mean(em, state, []), whole.select([5]), build)
    assert [len(rows) for rows in em.clients.federation.train] == [6, 7, 9, 10, 11]
    is_the_mean(em, state, ["client 0"])

"""Absence: a round in which clients fail is, for everybody else, the round in which they were absent."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scool_ppl import EM, Clients, CooperationModel, Federation, InputError, Schedule, load_federation, load_model
from scool_ppl.em.absence import RESTING
from scool_ppl.em.state import EMState
from scool_ppl.errors import ClientError, RunError
from scool_ppl.train.contract import AnyClients, Plan, Wrapper
from scool_ppl.train.questions import Alignment, PairLoss, Question
from scool_ppl.zoo.load import model_names
from tests.helpers.faulty import Fault, FaultyClients, Kind
from tests.helpers.small import (
    brief,
    clients,
    driver,
    normal,
)
from tests.helpers.states import same

K, FAULTY, ROUND = 5, 2, 1
OTHERS = [i for i in range(K) if i != FAULTY]
FEDERATION = load_federation(f"permuted:digits:clients={K},groups=2,train=20,test=20,order=listed", seed=3)
SCHEDULE = Schedule(local_epochs=1, warmup_epochs=3)
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.5)
NAME = FEDERATION.names[FAULTY]


def made(model: str, *faults: Fault, federation: Federation = FEDERATION, executor: str = "stacked") -> EM:
    clients = Clients(federation, optimizer=MOMENTUM, executor=executor, dtype=torch.float64)
    clients = FaultyClients(clients, *faults) if faults else clients
    return EM(brief(load_model(model, federation.num_clients, federation=federation)), clients, SCHEDULE, seed=1)


def converged(model: str, federation: Federation = FEDERATION) -> EM:
    clients = Clients(federation, optimizer=MOMENTUM, executor="stacked", dtype=torch.float64)
    return EM(load_model(model, federation.num_clients, federation=federation), clients, SCHEDULE, seed=1)


def ran(em: EM, rounds: int, absent_in: int | None = None) -> tuple[EMState, list[dict[str, str]]]:
    state, events = em.init(), []
    for round in range(rounds):
        state, info = em.step(state, [NAME] if round == absent_in else ())
        events.append(dict(info.quarantined))
    return state, events


@cache
def without(model: str, round: int | None) -> EMState:
    """After three rounds, in one of which the client was absent."""
    return ran(made(model), 3, absent_in=round)[0]


@pytest.mark.parametrize("model", model_names())
def test_a_client_that_diverges_was_not_there(model: str) -> None:
    """Bit for bit, in that round and the one after it, for every model."""
    faulty = made(model, Fault("nan loss", FAULTY, ROUND))
    found, events = ran(faulty, 3)
    same(found, without(model, ROUND))
    assert [sorted(event) for event in events] == [[], [NAME], []]
    assert "not finite" in events[ROUND][NAME]
    assert all(bool(value.isfinite().all()) for value in found.params.values())


@pytest.mark.parametrize("round", [0, 1])
@pytest.mark.parametrize("kind", ["inf update", "raise"])
@pytest.mark.parametrize("model", ["scool_sbm", "ditto", "cobo", "federico", "l2c"])
def test_any_fault_of_training_in_any_round(model: str, kind: Kind, round: int) -> None:
    found, events = ran(made(model, Fault(kind, FAULTY, round)), 3)
    same(found, without(model, round))
    assert list(events[round]) == [NAME]


@pytest.mark.parametrize("kind", ["vanish", "nan network", "nan data"])
@pytest.mark.parametrize("model", ["scool_sbm", "scool_attention", "federico", "fedfomo"])
def test_any_fault_of_looking(model: str, kind: Kind) -> None:
    found, events = ran(made(model, Fault(kind, FAULTY, ROUND)), 3)
    # Fedfomo and federico look at a few: whoever is not looked at does not show its fault, and does no harm.
    seen = bool(events[ROUND])
    same(found, without(model, ROUND if seen else None))
    assert seen or model in ("fedfomo", "federico")


@pytest.mark.parametrize("model", model_names())
def test_the_last_good_network_and_all_that_is_known_of_it_stay(model: str) -> None:
    em = made(model, Fault("nan loss", FAULTY, 2))
    before, _ = ran(em, 2)
    after, _ = em.step(before)
    for kept, value in [(before.params, after.params), (before.optimizer, after.optimizer)]:
        assert kept.keys() == value.keys()
        assert all(torch.equal(value[name][FAULTY], kept[name][FAULTY]) for name in kept)
    for site in ("z", "pi"):
        if site in before.moments:
            assert torch.equal(after.moments[site][FAULTY], before.moments[site][FAULTY])
            certain = set(before.moments[site].unique().tolist()) <= {0.0, 1.0}
            assert certain or not torch.equal(after.moments[site], before.moments[site])
    # It has no edges in the round's graph, and the ones of the round before in the next round's beginning.
    graph = em.graph(after)
    assert not graph.dense()[FAULTY].any()
    assert not graph.dense()[:, FAULTY].any()
    begin, last = em.round_start(after), em.graph(before).dense()
    assert begin.peers is not None
    assert begin.weights is not None
    woken = begin.peers.dense(begin.weights.double())
    looked_at_again = begin.peers.dense(begin.peers.mask.double()) > 0
    assert torch.allclose(woken[FAULTY], last[FAULTY].double().where(looked_at_again[FAULTY], 0), atol=1e-12)
    assert RESTING not in begin.memory
    if em.model.prior.kind == "rows":
        sums = woken.sum(1)
        assert bool((((sums - 1).abs() < 1e-6) | (sums < 1 - 1e-6)).all())
        assert float(sums.max()) <= 1 + 1e-6


@pytest.mark.parametrize(
    "model", ["fedavg", "dpsgd", "ditto", "oracle", "scool_attention", "federico", "l2c", "meta_l2c"]
)
def test_rows_of_the_others_are_normalised_again(model: str) -> None:
    em = made(model)
    state, _ = ran(em, 2, absent_in=1)
    graph, whole = em.graph(state).dense()[OTHERS].double(), em.graph(ran(em, 1)[0]).dense()[OTHERS].double()
    assert torch.allclose(graph.sum(1), whole.sum(1).where(graph.sum(1) > 0, 0), atol=1e-6)
    assert bool((graph.sum(1) > 0).any())


POSITION = ("dpsgd", "ring", "covariate_sbm")  # their priors know clients by position
DRAWS = ("fedfomo", "federico", "latent_space")  # their policies or inference draw for all K clients
BLOCKS = (
    "scool_sbm",
    "scool_mmsbm",
)  # their inference moves random groups of K clients: to the tolerance of the sweeps


@pytest.mark.parametrize("model", [name for name in model_names() if name not in (*POSITION, *DRAWS)])
def test_as_if_it_had_not_been_there(model: str) -> None:
    """Independent of masks: a federation that never had the client ends the same, up to rounding."""
    found, _ = converged(model).step(converged(model).init(), absent=[NAME])
    alone = converged(model, federation=FEDERATION.select(OTHERS))
    expected, _ = alone.step(alone.init())
    tolerance = 1e-4 if model in BLOCKS else 1e-9
    graph = converged(model).graph(found).dense()[OTHERS][:, OTHERS].double()
    assert torch.allclose(graph, alone.graph(expected).dense().double(), atol=tolerance)
    for name, value in expected.params.items():
        assert torch.allclose(found.params[name][OTHERS], value, atol=tolerance), name


def test_fedavg_without_a_client_is_the_average_of_the_others_by_hand() -> None:
    em = made("fedavg")
    state, info = em.step(em.init(), absent=[NAME])
    sizes = FEDERATION.sizes("train").double()[OTHERS]
    for name, value in info.trained.items():
        mean = torch.einsum("k,k...->...", sizes / sizes.sum(), value[OTHERS])
        assert all(torch.allclose(state.params[name][i], mean, atol=1e-12) for i in OTHERS)


def test_several_fail_and_a_failure_can_show_late() -> None:
    """One diverges, one vanishes when looked at, one raises: three attempts, all three named."""
    faults = [Fault("nan loss", 0, 0), Fault("vanish", 1, 0), Fault("raise", 2, 0)]
    em = made("scool_sbm", *faults)
    state, info = em.step(em.init())
    assert dict(info.quarantined).keys() == set(FEDERATION.names[:3])
    same(state, made("scool_sbm").step(made("scool_sbm").init(), absent=FEDERATION.names[:3])[0])
    assert em.clients.calls == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["fedavg", "scool_sbm", "ditto"])
def test_all_fail(model: str) -> None:
    em = made(model, *[Fault("nan loss", client, 1) for client in range(K)])
    state, _ = ran(em, 1)
    kept = copy.deepcopy(state)
    with pytest.raises(RunError, match=r"all clients failed in round 2 \(client 0: its training loss is not finite; "):
        em.step(state)
    same(state, kept)


def test_only_one_left_keeps_to_itself() -> None:
    em = made("scool_sbm")
    state, _ = ran(em, 1)
    lone, _ = em.step(state, absent=FEDERATION.names[1:])
    trained = em.clients.train(state.params, state.optimizer, Plan(epochs=1, seed=1, round=1))
    for name, value in trained.params.items():
        assert torch.allclose(lone.params[name][0], value[0], atol=1e-12)
        assert torch.equal(lone.params[name][1:], state.params[name][1:])


def test_nothing_is_forgotten_over_rounds_of_absence() -> None:
    """A client that is absent for three rounds is a candidate again in the fourth, under every policy."""
    for model in ("scool_sbm", "cobo", "federico", "fedfomo"):
        em = made(model)
        state, _ = ran(em, 2)
        before = em.round_start(state)
        for _ in range(3):
            state, _ = em.step(state, absent=[NAME])
            assert not em.graph(state).dense()[FAULTY].any()
        begin = em.round_start(state)
        assert begin.peers is not None
        assert before.peers is not None
        if model != "fedfomo":  # which looks at others in every round
            known = before.peers.dense(before.peers.mask.double())[FAULTY] > 0
            assert bool((begin.peers.dense(begin.peers.mask.double())[FAULTY] > 0)[known].all())
        state, _ = em.step(state)
        assert em.graph(state).dense()[FAULTY].any() or model == "fedfomo"
        assert all(bool(value.isfinite().all()) for value in state.params.values())


def test_memory_of_pairs_is_not_polluted() -> None:
    em = made("federico")
    before, _ = ran(em, 2)
    after, _ = em.step(before, absent=[NAME])
    for pairs in (lambda m: m[FAULTY], lambda m: m[:, FAULTY]):
        kept, found = pairs(before.memory["mixture"].value), pairs(after.memory["mixture"].value)
        assert torch.equal(found.nan_to_num(-9.0), kept.nan_to_num(-9.0))
    assert not torch.equal(
        after.memory["mixture"].value.nan_to_num(-9.0), before.memory["mixture"].value.nan_to_num(-9.0)
    )


def test_top_peers_do_not_drop_a_client_for_being_absent_when_the_table_shrinks() -> None:
    clients = Clients(FEDERATION, executor="stacked", dtype=torch.float64)
    em = EM(load_model("scool_sbm", K, keep=2, after=2), clients, SCHEDULE, seed=1)
    state, _ = ran(em, 2)
    assert state.peers is not None
    heaviest = em.round_start(state).weights
    assert heaviest is not None
    chosen = heaviest.masked_fill(~state.peers.mask, -1).topk(2, dim=1).indices.sort(1).values
    state, _ = em.step(state, absent=[NAME])
    assert state.peers is not None
    assert torch.equal(torch.as_tensor(state.peers.senders), chosen)
    back = em.round_start(state).peers
    assert back is not None
    assert bool(back.mask.all())


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_both_executors_leave_the_absent_unmoved(executor: str) -> None:
    found, _ = ran(made("scool_sbm", Fault("nan loss", FAULTY, 1), executor=executor), 3)
    same(found, ran(made("scool_sbm", executor=executor), 3, absent_in=1)[0])


def test_the_event_goes_to_the_history_and_the_run_goes_on() -> None:
    fit = made("scool_sbm", Fault("vanish", FAULTY, 1)).fit(3, progress=False)
    assert [row["quarantined"] for row in fit.history] == [{}, {NAME: "no answer within 60 seconds"}, {}]
    assert json.loads(json.dumps(fit.history)) == fit.history


@pytest.mark.parametrize("model", ["scool_sbm", "federico"])
def test_a_run_goes_on_from_a_checkpoint_while_a_client_rests(model: str, tmp_path: Path) -> None:
    fault = Fault("nan loss", FAULTY, 1)
    whole = made(model, fault).fit(4, progress=False)
    made(model, fault).fit(2, run=tmp_path / "run", progress=False)
    found = made(model, fault).fit(4, run=tmp_path / "run", resume=True, progress=False)
    same(found.state, whole.state)
    assert [row["quarantined"] for row in found.history] == [row["quarantined"] for row in whole.history]
    assert found.history[1]["quarantined"]


def test_a_client_without_images_is_not_at_fault() -> None:
    em = EM(load_model("scool_sbm", K), Clients(FEDERATION, executor="stacked"), Schedule(0, 0), seed=1)
    _, info = em.step(em.init())
    assert not info.quarantined


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        (["client 9"], "unknown client 'client 9'; known: client 0"),
        (FEDERATION.names, "all clients are absent, expected one at least"),
        ("client 1", r"absent is the text 'client 1', expected a list of names"),
    ],
)
def test_wrong_absences_are_refused(absent: list[str], words: str) -> None:
    em = made("local")
    with pytest.raises(InputError, match=words):
        em.step(em.init(), absent=absent)


def test_a_client_that_fails_without_taking_part_ends_the_round() -> None:
    class Stubborn(FaultyClients):
        def train(self, *_: object, **__: object) -> None:  # type: ignore[override]
            raise ClientError({NAME: "gone"})

    em = EM(load_model("local", K), Stubborn(Clients(FEDERATION)), SCHEDULE)
    with pytest.raises(RunError, match="do not take part in round 1"):
        em.step(em.init())


@pytest.mark.parametrize("junk", [torch.nan, torch.inf])
def test_a_network_that_has_diverged_is_nobodys_choice(junk: float) -> None:
    whose = clients(K)
    for name in ("scool_sbm", "scool_mmsbm", "scool_attention", "federico", "cobo", "dada"):
        model = load_model(name, K, **({"scale": 1.0} if name == "scool_attention" else {}))
        em, state = driver(model, whose)
        params = {n: value.clone() for n, value in state.params.items()}
        params["1.weight"][1] = junk
        state = state._replace(params=params)
        begin = em.round_start(state)
        trained = {n: value.clone() for n, value in params.items()}
        begin = begin._replace(params=trained)
        with pytest.raises(ClientError, match="client 1: its network's loss is not finite"):
            em.look(begin, trained)
        begin = begin._replace(absent=(1,))  # as EM.step does
        evidence, joint, _ = em.look(begin, trained)
        if name == "scool_attention":
            evidence._shown["updates"] = {n: normal(*value.shape) for n, value in trained.items()}
        posterior, _ = em.infer(state, evidence, joint)
        found = evidence.peers.dense(posterior.moments["Y"])
        assert bool(found.isfinite().all()), name
        assert math.isfinite(posterior.elbo), name
        assert not bool(found[[0, 2, 3], 1].any()), name
        well = found[[0, 2, 3]][:, [0, 2, 3]]
        assert name == "cobo" or bool(well.any()), name


class Gone(Wrapper):
    """Clients of whom one answers nobody, whoever asks; a round without it must not ask it."""

    def __init__(self, clients: AnyClients, name: str) -> None:
        super().__init__(clients)
        self.name = name

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        for question in questions.values():
            if self._concerns(question, self.names.index(self.name) if self.name in self.names else None):
                raise ClientError({self.name: "no answer within 60 seconds"})
        return super().answer(questions, seed=seed, round=round)

    @staticmethod
    def _concerns(question: Question, place: int | None) -> bool:
        if place is None:
            return False
        if isinstance(question, PairLoss | Alignment):
            rows, _, senders = question.peers.pairs()
            return bool(((rows == place) | (senders == place)).any())
        return question.present is None or bool(question.present[place])


@pytest.mark.parametrize("model", ["scool_sbm", "fedfomo", "l2c", "cobo"])
def test_who_is_absent_or_leaves_is_not_asked(model: str) -> None:
    """Otherwise nobody could go on without a client that has died."""

    def build(federation: Federation) -> CooperationModel:
        return brief(load_model(model, federation.num_clients, federation=federation))

    inside = Clients(FEDERATION, executor="stacked", dtype=torch.float64)
    em = EM(build(FEDERATION), Gone(inside, NAME), SCHEDULE, seed=1)
    state, info = em.step(em.init())
    assert list(info.quarantined) == [NAME]
    fewer, left = em.leave(state, [NAME], build)
    _, info = fewer.step(left)
    assert not info.quarantined


@pytest.mark.parametrize("model", ["fedem", "ifca"])
def test_who_was_away_uses_the_components_that_it_used(model: str) -> None:
    em, place = made(model), FEDERATION.names.index(NAME)
    (before, _), (state, _) = ran(em, 1), ran(em, 2, absent_in=1)
    assert before.peers is not None
    known = before.peers.shares(before.moments["Y"])[place]
    assert known.any()
    assert not em.graph(state).components[place].any(), "the graph is that of the round"  # type: ignore[index]
    assert torch.equal(em.graph(state).memberships[place], known)  # type: ignore[index]
    if model == "fedem":
        mixture = em.mixture(state)
        assert mixture is not None
        weights, peers = mixture
        assert torch.allclose(peers.shares(weights)[place], known)


def test_a_newcomer_that_uses_no_component_yet_is_in_nobodys_block() -> None:
    em = made("ifca")
    state, _ = em.step(em.init(), [NAME])
    blocks = em.graph(state).blocks().tolist()
    assert blocks.count(blocks[FEDERATION.names.index(NAME)]) == 1


def test_names_of_blocks_mean_nothing_to_who_is_away() -> None:
    """Blocks may be renamed while a client rests: it stays with those whom it was with."""
    em = converged("blocks")
    state, _ = em.step(em.init())
    renamed = state._replace(
        moments={**state.moments, "z": state.moments["z"].flip(1)},
        q={**state.q, "z_logits": state.q["z_logits"].flip(1)},
    )
    found = []
    for each in (state, renamed):
        away, _ = em.step(each, [NAME])
        back, _ = em.step(away)
        found.append([em.graph(one).blocks().tolist() for one in (away, back)])
    assert found[0] == found[1]


def test_weights_of_who_is_away_are_not_added_again() -> None:
    em = made("fedfomo")
    state, total = em.init(), torch.zeros(K, K, dtype=torch.float64)
    for away in ((), [NAME], [NAME], ()):
        state, _ = em.step(state, away)
        assert state.peers is not None
        total += state.peers.dense(state.moments["Y"])
    start = em.round_start(state)
    torch.testing.assert_close(em.model.peers.affinity(start), total)  # type: ignore[attr-defined]


def test_rows_of_a_simplex_sum_to_one_when_clients_come_back() -> None:
    em = EM(load_model("cobo", K, domain="simplex"), made("cobo").clients, SCHEDULE, seed=1)
    state, _ = em.step(em.init())
    state, _ = em.step(state, [NAME])
    weights = em.round_start(state).weights
    assert weights is not None
    torch.testing.assert_close(weights.sum(1), torch.ones(K).to(weights))


def test_those_with_validation_images_may_all_be_away() -> None:
    held_out = [rows if client == FAULTY else rows[:0] for client, rows in enumerate(FEDERATION.validation)]
    em = made("hedge", federation=replace(FEDERATION, validation=held_out))
    state, _ = em.step(em.init())
    state, info = em.step(state, [NAME])
    assert math.isfinite(info.elbo)

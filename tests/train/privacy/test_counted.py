"""Counting what private clients reveal: in rounds, by whoever trains and asks, over rounds, absences and new clients."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from scool_ppl import EM, Clients, CooperationModel, Schedule, load_federation, load_model
from scool_ppl.errors import ClientError
from scool_ppl.graph.candidates import Peers
from scool_ppl.train import PairLoss, Wrapper
from scool_ppl.train.contract import Plan
from scool_ppl.train.privacy.account import SPENT
from scool_ppl.train.privacy.counted import Counted, counted
from scool_ppl.train.privacy.promise import Privacy

pytestmark = pytest.mark.filterwarnings("ignore:training is private")
pytest.importorskip("opacus", reason="opacus is not installed")

WHOLE = load_federation("permuted:digits:clients=5,groups=2,train=40,test=20,ragged=0.5,order=listed", seed=3)
FEDERATION, NEWCOMER = WHOLE.select(range(4)), WHOLE.select([4])
BOTH = Privacy(1.0, 1.0, 1e-3, evidence_noise=4.0, evidence_clip=4.0)
TRAINING = Privacy(1.0, 1.0, 1e-3)
SCHEDULE = Schedule(local_epochs=1, warmup_epochs=2)


def steps(federation: Any, epochs: int) -> torch.Tensor:
    return (federation.sizes("train") / 10).ceil() * epochs


def driver(model: str, privacy: Privacy = BOTH, federation: Any = FEDERATION) -> EM:
    clients = Clients(federation, executor="stacked", dtype=torch.float64, privacy=privacy)
    return EM(built(model)(federation), clients, SCHEDULE, seed=1)


def built(model: str) -> Any:
    return lambda federation: load_model(model, federation.num_clients, federation=federation)


def spent(state: Any) -> torch.Tensor:
    return state.memory[SPENT].value


@pytest.mark.parametrize(
    ("model", "trainings", "releases"),
    [("local", 1, 0), ("fedavg", 1, 0), ("ditto", 2, 0), ("scool_sbm", 1, 1), ("fedfomo", 1, 2)],
)
def test_every_training_and_every_question_of_a_round_counts(model: str, trainings: int, releases: int) -> None:
    em = driver(model)
    state, info = em.step(em.init())
    expected = torch.stack([trainings * steps(FEDERATION, 2).double(), torch.full((4,), float(releases))], 1)
    assert torch.equal(spent(state), expected)
    assert em.clients.account is not None
    assert info.epsilon == dict(zip(FEDERATION.names, em.clients.account.epsilon(expected).tolist(), strict=True))
    state, _ = em.step(state, ["client 2"])
    expected += torch.stack([trainings * steps(FEDERATION, 1).double(), torch.full((4,), float(releases))], 1) * (
        torch.arange(4) != 2
    ).unsqueeze(1)
    assert torch.equal(spent(state), expected), "who is absent spends nothing"


def test_a_look_at_components_before_the_first_training_counts() -> None:
    em = driver("ifca")
    state, _ = em.step(em.init())
    assert spent(state)[:, 1].tolist() == [2.0] * 4
    state, _ = em.step(state)
    assert spent(state)[:, 1].tolist() == [3.0] * 4


def test_evidence_that_is_not_noised_is_not_counted_as_if_it_were() -> None:
    state, info = driver("scool_sbm", TRAINING).step(driver("scool_sbm", TRAINING).init())
    assert spent(state)[:, 1].tolist() == [0.0] * 4
    assert info.epsilon == driver("local", TRAINING).step(driver("local", TRAINING).init())[1].epsilon


def test_two_trainings_of_a_round_have_noise_of_their_own() -> None:
    """Also of the same network: what ditto trains for all and what its clients train would else share their noise."""
    clients = counted(Clients(FEDERATION, executor="stacked", dtype=torch.float64, privacy=TRAINING), None)
    start = clients.init(0)
    first, second = (clients.train(start, None, Plan(seed=1)).params for _ in range(2))
    assert not any(torch.equal(first[name], second[name]) for name in start)
    again = Clients(FEDERATION, executor="stacked", dtype=torch.float64, privacy=TRAINING)
    assert all(torch.equal(again.train(start, None, Plan(seed=1)).params[name], first[name]) for name in start)


def test_two_questions_of_a_round_have_noise_of_their_own() -> None:
    """Also the same question, asked together or after the other: a difference of answers would else be exact."""
    clients = counted(Clients(FEDERATION, executor="stacked", dtype=torch.float64, privacy=BOTH), None)
    asked = PairLoss(clients.init(0), Peers.everybody(4))
    together = clients.answer({"one": asked, "other": asked}, seed=0, round=0)
    answers = [*together.values(), *clients.answer({"again": asked}, seed=0, round=0).values()]
    for number, answer in enumerate(answers):
        assert not any(bool((answer == before)[asked.peers.mask].any()) for before in answers[:number])


def test_clients_without_privacy_are_as_they_were() -> None:
    clients = Clients(FEDERATION, executor="stacked")
    assert counted(clients, None) is clients
    em = EM(built("scool_sbm")(FEDERATION), clients, SCHEDULE)
    state, info = em.step(em.init())
    assert SPENT not in state.memory
    assert info.epsilon is None


class Failing(Wrapper):
    """Fails the first time that somebody looks."""

    failed = False

    def answer(self, questions: Any, *, seed: int, round: int) -> Any:
        if not self.failed:
            self.failed = True
            raise ClientError({"client 3": "gone"})
        return super().answer(questions, seed=seed, round=round)


def test_a_round_that_begins_again_is_paid_for_twice() -> None:
    em = driver("scool_sbm")
    em.clients = Failing(em.clients)
    state, info = em.step(em.init())
    assert list(info.quarantined) == ["client 3"]
    made = steps(FEDERATION, 2).double()
    assert spent(state)[:, 0].tolist() == [*(2 * made[:3]).tolist(), float(made[3])]
    assert spent(state)[:, 1].tolist() == [2.0, 2.0, 2.0, 1.0]


class Untrained(Failing):
    """Fails the first time that somebody trains."""

    def train(self, params: Any, optimizer_state: Any, plan: Plan) -> Any:
        if not self.failed:
            self.failed = True
            raise ClientError({"client 3": "gone"})
        return super().train(params, optimizer_state, plan)


@pytest.mark.parametrize(("model", "choices", "times"), [("fedavg", {}, 1), ("dpsgd", {"mix": "before"}, 2)])
def test_training_that_begins_again_has_the_same_noise_only_if_it_is_the_same(
    model: str, choices: dict[str, Any], times: int
) -> None:
    """The others may have sent their networks before: asked for the same they send the same, otherwise they pay again."""
    em = EM(load_model(model, 4, **choices), driver(model).clients, SCHEDULE, seed=1)
    em.clients = Untrained(em.clients)
    state, info = em.step(em.init())
    assert list(info.quarantined) == ["client 3"]
    made = steps(FEDERATION, 2).double()
    assert spent(state)[:, 0].tolist() == [*(times * made[:3]).tolist(), (times - 1) * float(made[3])]


def test_tracks_pay_together() -> None:
    """Three trainings a round of the same images; a newcomer pays for its warm-up and for what it is asked."""
    em = driver("hedge", TRAINING)
    state, info = em.step(em.init())
    assert torch.equal(spent(state)[:, 0], 3 * steps(FEDERATION, 2).double())
    assert em.clients.account is not None
    assert info.epsilon == dict(zip(FEDERATION.names, em.clients.account.epsilon(spent(state)).tolist(), strict=True))
    everywhere = [state, *state.beside.values()]
    first = [next(iter(each.params.values())) for each in everywhere]
    assert not any(torch.equal(a, b) for i, a in enumerate(first) for b in first[:i]), "each with noise of its own"
    moved, joined = em.join(state, NEWCOMER, built("hedge"))
    expected = torch.cat([spent(state)[:, 0], steps(NEWCOMER, 2).double()])
    assert torch.equal(spent(joined)[:, 0], expected)
    after, _ = moved.step(joined)
    assert torch.equal(spent(after)[:, 0], expected + 3 * steps(WHOLE, 1).double())


def test_what_newcomers_reveal_exactly_is_said() -> None:
    """Also by a model that looks at nothing: their losses say where they begin."""
    em = driver("fedavg", TRAINING)
    with pytest.warns(UserWarning, match="training is private, evidence is not: loss are of the clients' own images"):
        em.join(em.init(), NEWCOMER, built("fedavg"))


def test_newcomers_pay_for_what_they_are_asked_and_others_keep_what_they_have_spent() -> None:
    em = driver("scool_sbm")
    state, _ = em.step(em.init())
    moved, joined = em.join(state, NEWCOMER, built("scool_sbm"))
    assert torch.equal(spent(joined)[:4], spent(state))
    assert spent(joined)[4].tolist() == [0.0, 1.0], "its losses say where it begins"
    moved, left = moved.leave(joined, ["client 0"], built("scool_sbm"))
    assert torch.equal(spent(left), spent(joined)[1:])


def test_answers_are_counted_before_they_are_there() -> None:
    class Silent(Wrapper):
        def answer(self, questions: Any, *, seed: int, round: int) -> Any:
            raise ClientError({"client 1": "silent"})

    inside = Clients(FEDERATION, executor="stacked", privacy=BOTH)
    clients = counted(Silent(inside), None)
    assert isinstance(clients, Counted)
    with pytest.raises(ClientError):
        clients.answer({"it": PairLoss(inside.init(0), Peers.everybody(4))}, seed=0, round=0)
    assert clients.spent[:, 1].tolist() == [1.0] * 4


@pytest.mark.parametrize("model", ["scool_sbm", "fedfomo"])
def test_noise_0_and_clip_infinite_is_plain_training_and_looking(model: str) -> None:
    make = partial(Clients, FEDERATION, executor="stacked", dtype=torch.float64)
    nothing = Privacy(0.0, float("inf"), poisson=False, evidence_noise=0.0, evidence_clip=float("inf"))
    plain, private = (
        EM(built(model)(FEDERATION), clients, SCHEDULE, seed=1).fit(3, progress=False)
        for clients in (make(), make(privacy=nothing))
    )
    for name, value in plain.state.params.items():
        torch.testing.assert_close(private.state.params[name], value, rtol=0, atol=1e-10)
    torch.testing.assert_close(private.graph.weights, plain.graph.weights, rtol=0, atol=1e-10)
    assert private.history[-1]["epsilon"] == dict.fromkeys(FEDERATION.names), "without noise there is no bound"
    assert isinstance(EM(built(model)(FEDERATION), make()).model, CooperationModel)

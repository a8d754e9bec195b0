"""The EM driver: rounds, their reproducibility, what they leave untouched, and what they cost."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from pyro import poutine
from torch import Tensor

from scool_ppl import EM, CooperationModel, InputError, NaturalGradient, Schedule, SVIStep, load_model
from scool_ppl.base.codec import Row
from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import load_federation
from scool_ppl.em.state import EMInfo, EMState, Fit
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.moments import AnyProgram
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.likelihoods import CrossLoss, Ignored
from scool_ppl.look.peers import Top
from scool_ppl.mix.after import MixModels, MixUpdates
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Plan, Trained, Wrapper
from scool_ppl.train.questions import Params, Question
from scool_ppl.train.round_start import Remembered
from scool_ppl.zoo.load import model_names
from tests.helpers.models import made
from tests.helpers.priors import rng
from tests.helpers.runs import timeless
from tests.helpers.small import brief, close
from tests.helpers.states import identical, same

TINY = "permuted:digits:clients=6,groups=2,train=20,test=40,order=listed"
SHORT = Schedule(warmup_epochs=5, local_epochs=1)
MODEL_BYTES = 4 * (64 * 64 + 64 + 64 * 10 + 10)  # float32 MLP 64-64-10
EXACT = [name for name in ("local", "fedavg", "oracle") if name in model_names()]


@pytest.fixture(scope="module")
def federation() -> Federation:
    return load_federation(TINY)


@pytest.fixture(scope="module")
def clients(federation: Federation) -> Clients:
    return Clients(federation, executor="stacked")


def em(name: str, clients: Clients, seed: int = 0, schedule: Schedule = SHORT, **choices: Any) -> EM:
    model = load_model(name, clients.num_clients, federation=clients.federation, **choices)
    return EM(brief(model), clients, schedule, seed=seed)


def fitted(name: str, clients: Clients, rounds: int = 2, seed: int = 0, **choices: Any) -> Fit:
    return em(name, clients, seed, **choices).fit(rounds, progress=False)


# Reproducibility.


@pytest.mark.parametrize("name", ["local", "ring", "scool_sbm"])
def test_the_same_seed_repeats_bit_for_bit(name: str, federation: Federation) -> None:
    runs = []
    for junk in (1, 2):
        torch.manual_seed(junk)  # what the global generator says must not matter
        runs.append(fitted(name, Clients(federation), seed=3))
    one, other = runs
    assert identical(one.state, other.state)
    assert torch.equal(one.graph.weights, other.graph.weights)
    assert timeless(one.history) == timeless(other.history)
    assert torch.equal(one.evaluation.score, other.evaluation.score)


def test_two_seeds_differ(clients: Clients) -> None:
    one, other = (fitted("scool_sbm", clients, seed=seed) for seed in (0, 1))
    assert all(not torch.equal(one.state.params[name], other.state.params[name]) for name in one.state.params)
    assert not torch.equal(one.graph.weights, other.graph.weights)
    assert timeless(one.history) != timeless(other.history)


@pytest.mark.parametrize("e_step", [NaturalGradient(2, blocks=2), SVIStep(steps=5)], ids=["natural", "svi"])
@pytest.mark.parametrize("name", ["ring", "scool_sbm"])
def test_interleaved_runs_equal_runs_alone(name: str, e_step: NaturalGradient | SVIStep, clients: Clients) -> None:
    model = load_model(name, 6)._replace(e_step=e_step)
    alone = []
    for seed in (0, 1):
        fresh = load_model(name, 6)._replace(e_step=e_step)
        alone.append(EM(fresh, clients, SHORT, seed=seed).fit(3, progress=False).state)
    # One CooperationModel object for both, and one Clients.
    pair = [EM(model, clients, SHORT, seed=seed) for seed in (0, 1)]
    states = [run.init() for run in pair]
    for _ in range(3):
        states = [run.step(state)[0] for run, state in zip(pair, states, strict=True)]
    assert all(identical(state, expected) for state, expected in zip(states, alone, strict=True))
    assert not identical(states[0].moments, states[1].moments)
    # One EM that takes turns with two states: everything that a run needs is in its state.
    states = [run.init() for run in pair]
    for _ in range(3):
        states = [pair[0].step(state)[0] for state in states]
    assert all(identical(state, expected) for state, expected in zip(states, alone, strict=True))


@pytest.mark.parametrize("name", ["oracle", "ring", "scool_sbm", "latent_space", "cobo", "l2c", "ditto"])
def test_a_step_does_not_change_the_state_that_it_starts_from(name: str, federation: Federation) -> None:
    momentum = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    run = em(name, Clients(federation, executor="stacked", optimizer=momentum))
    state = run.init()
    for _ in range(2):
        kept = copy.deepcopy(state)
        following, info = run.step(state)
        assert identical(state, kept)
        again, same = run.step(state)
        assert identical(following, again)
        assert identical(info.trained, same.trained)
        assert not identical(following.params, state.params)
        assert bool(following.optimizer)
        state = following


def test_the_users_model_is_not_changed() -> None:
    clients = Clients(load_federation(TINY), executor="stacked")
    model = load_model("scool_sbm", 6)
    before = copy.deepcopy(model.prior.state())
    EM(model, clients, SHORT).fit(2, progress=False)
    assert identical(model.prior.state(), before)


def test_the_optimisers_buffers_last_from_round_to_round(federation: Federation) -> None:
    momentum = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    clients = Clients(federation, executor="stacked", optimizer=momentum)
    run = em("local", clients)
    state, _ = run.step(run.init())
    _, info = run.step(state)
    again = partial(clients.train, state.params, plan=Plan(epochs=1, round=1))
    assert identical(info.trained, again(state.optimizer).params)
    assert not identical(info.trained, again({}).params)


# Federations of every shape.


@pytest.mark.parametrize("name", EXACT)
def test_the_order_of_the_clients_only_orders_the_result(name: str, federation: Federation) -> None:
    order = [4, 0, 5, 2, 1, 3]
    options = {"executor": "stacked", "dtype": torch.float64}
    expected = fitted(name, Clients(federation, **options))  # type: ignore[arg-type]
    found = fitted(name, Clients(federation.select(order), **options))  # type: ignore[arg-type]
    assert found.graph.names == tuple(expected.graph.names[i] for i in order)
    torch.testing.assert_close(found.graph.dense(), expected.graph.dense()[order][:, order], rtol=0, atol=1e-12)
    torch.testing.assert_close(found.evaluation.score, expected.evaluation.score[order], rtol=0, atol=1e-7)
    for param, value in expected.state.params.items():
        torch.testing.assert_close(found.state.params[param], value[order], rtol=0, atol=1e-9)
    # The clients are not all alike, so that a wrong order would show.
    assert expected.evaluation.score.unique().numel() > 1


@pytest.mark.parametrize("num_clients", [1, 2])
@pytest.mark.parametrize("name", model_names())
def test_every_model_runs_for_one_and_two_clients(name: str, num_clients: int, federation: Federation) -> None:
    few = federation.select(range(num_clients))
    result = fitted(name, Clients(few, executor="stacked"))
    assert result.graph.num_clients == num_clients
    assert all(bool(value.isfinite().all()) for value in result.state.params.values())
    assert all(np.isfinite(row["elbo"]) and 0 <= row["accuracy"]["mean"] <= 1 for row in result.history)
    if num_clients == 1 and name in ("fedavg", "oracle", "ring", "scool_sbm"):
        alone = fitted("local", Clients(few, executor="stacked"))
        for param, value in alone.state.params.items():
            torch.testing.assert_close(result.state.params[param], value)


@pytest.mark.parametrize("name", model_names())
def test_every_model_runs_for_clients_of_unequal_sizes(name: str) -> None:
    ragged = load_federation(f"{TINY},ragged=0.7")
    sizes = ragged.sizes("train")
    assert int(sizes.max()) > 2 * int(sizes.min())
    result = fitted(name, Clients(ragged, executor="stacked"))
    assert torch.equal(torch.as_tensor(result.graph.samples), sizes)
    assert all(bool(value.isfinite().all()) for value in result.state.params.values())
    if name == "fedavg":
        torch.testing.assert_close(result.graph.weights, (sizes / sizes.sum()).expand(6, 6).double())


def test_a_model_for_another_number_of_clients_is_refused(clients: Clients) -> None:
    with pytest.raises(InputError, match=r"for 5 clients, the federation has 6; .* num_clients=6"):
        EM(load_model("local", 5), clients)


def test_a_federation_without_a_true_graph_gives_no_scores(federation: Federation) -> None:
    unknown = Federation.from_arrays(
        federation.inputs,
        federation.targets,
        [rows.tolist() for rows in federation.train],
        num_classes=10,
    )
    result = fitted("scool_sbm", Clients(unknown, executor="stacked"), rounds=1)
    assert result.history[0]["graph"] == {"l1": None, "auc": None, "ari": None}


# What a round does.


def test_a_round_is_train_look_infer_mix(clients: Clients) -> None:
    run = em("scool_sbm", clients)
    state, _ = run.step(run.init())
    trained = clients.train(state.params, state.optimizer, Plan(epochs=1, seed=0, round=1))
    evidence, joint, _ = run.look(run.round_start(state), trained.params)
    posterior, _ = run.infer(state, evidence, joint)
    mixed = MixUpdates()(state.params, trained.params, posterior.moments["Y"], evidence.peers)
    following, info = run.step(state)
    assert identical(info.trained, trained.params)
    assert info.loss == pytest.approx(float(trained.loss.mean()))
    assert identical(following.params, mixed)
    assert torch.equal(following.moments["Y"], posterior.moments["Y"])
    assert info.elbo == posterior.elbo == posterior.bounds[-1]
    # Looked at after training, on the networks before mixing.
    loss = clients.pair_loss(trained.params, Peers.everybody(6), clients.probe(0, 1))
    assert torch.equal(evidence.loss, loss)
    assert torch.equal(torch.as_tensor(joint.table), CrossLoss()(evidence))


@pytest.mark.parametrize("name", ["scool_sbm", "ring", "oracle"])
def test_the_bound_never_falls_within_a_round(name: str, clients: Clients) -> None:
    run = em(name, clients)
    state = run.init()
    for _ in range(3):
        begin = run.round_start(state)
        evidence, joint, _ = run.look(begin, run.train(state, begin).trained.params)
        posterior, _ = run.infer(state, evidence, joint)
        bounds = posterior.bounds
        assert all(b >= a - 1e-9 * (1 + abs(a)) for a, b in itertools.pairwise(bounds))
        assert name != "scool_sbm" or bounds[-1] > bounds[0]
        state, info = run.step(state)
        assert info.elbo == bounds[-1]


def test_the_posterior_of_a_round_starts_the_next(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    run = em("scool_sbm", clients)
    state, _ = run.step(run.init())
    assert state.q.keys() == {"Y_logits", "z_logits", "pi_concentration"}
    assert torch.allclose(state.moments["z"], state.q["z_logits"].softmax(1))
    monkeypatch.setattr(SBM, "starts", lambda *_: pytest.fail("a later round starts from the last one"))
    run.step(state)


def test_local_steps_replace_epochs(clients: Clients) -> None:
    run = em("local", clients, schedule=Schedule(warmup_epochs=9, local_epochs=9, local_steps=3))
    state, _ = run.step(run.init())
    expected = clients.train(clients.init(0), None, Plan(epochs=0, steps=3, seed=0, round=0))
    assert identical(state.params, expected.params)


def test_there_is_no_graph_before_the_first_round_nor_a_fit_without_rounds(clients: Clients) -> None:
    run = em("local", clients)
    with pytest.raises(InputError, match="before the first round"):
        run.graph(run.init())
    with pytest.raises(InputError, match="rounds is 0"):
        run.fit(0)


# Who cooperates.


def test_top_peers_shrink_the_table_and_the_run_goes_on(clients: Clients) -> None:
    shapes, tables = [], []

    def watch(state: EMState, info: EMInfo, row: Row) -> None:
        assert state.peers is not None
        shapes.append((tuple(state.peers.mask.shape), tuple(state.moments["Y"].shape)))
        tables.append((state.peers, state.moments["Y"], info.bytes_received, info.bytes_sent))

    run = em("scool_sbm", clients, keep=2, after=2)
    result = run.fit(4, progress=False, callbacks=[watch])
    assert shapes == [((6, 6), (6, 6))] * 2 + [((6, 2), (6, 2))] * 2
    everybody, weights = tables[1][:2]
    peers, _, received, sent = tables[2]
    assert peers.senders is not None
    for i in range(6):
        others = sorted((float(weights[i, j]) for j in range(6) if j != i), reverse=True)
        kept = [float(weights[i, j]) for j in peers.senders[i].tolist()]
        assert i not in peers.senders[i].tolist()
        assert sorted(kept, reverse=True) == others[:2]
    assert bool(everybody.mask.sum() == 30)
    assert received.tolist() == [2 * MODEL_BYTES] * 6
    flat = peers.senders.flatten().tolist()
    assert sent.tolist() == [flat.count(j) * MODEL_BYTES for j in range(6)]
    assert torch.equal(torch.as_tensor(tables[3][0].senders), peers.senders)
    assert result.graph.dense().shape == (6, 6)
    assert int((result.graph.dense() > 0).sum()) <= 12
    assert all(bool(value.isfinite().all()) for value in result.state.params.values())


def test_before_it_shrinks_a_run_with_top_peers_is_the_same_run(clients: Clients) -> None:
    expected = fitted("scool_sbm", clients, rounds=2)
    assert identical(fitted("scool_sbm", clients, rounds=2, keep=2, after=2).state, expected.state)
    assert not identical(fitted("scool_sbm", clients, rounds=2, keep=2, after=1).state.params, expected.state.params)


def test_dirac_graphs_work_with_a_table_of_peers(clients: Clients) -> None:
    chain = torch.diag(torch.ones(5), diagonal=-1)  # each learns from the one before
    dense = CooperationModel(Dirac(chain), Ignored(), MixUpdates())
    expected = EM(dense, clients, SHORT).fit(3, progress=False)
    found = EM(dense._replace(peers=Top(keep=1, after=1)), clients, SHORT).fit(3, progress=False)
    assert found.state.moments["Y"].shape == (6, 1)
    assert torch.equal(found.graph.dense(), expected.graph.dense())
    for name, value in expected.state.params.items():
        torch.testing.assert_close(found.state.params[name], value)


def test_nobody_cooperating_is_local_training_whatever_the_mixing(clients: Clients) -> None:
    expected = fitted("local", clients)
    for mixing in (MixUpdates(), MixModels()):
        empty = CooperationModel(Dirac(torch.zeros(6, 6)), Ignored(), mixing)
        found = EM(empty, clients, SHORT).fit(2, progress=False)
        for name, value in expected.state.params.items():
            torch.testing.assert_close(found.state.params[name], value)


def test_fedavg_gives_everybody_one_network_and_the_oracle_one_per_group(clients: Clients) -> None:
    groups = torch.tensor(clients.federation.groups)
    for name, together in (("fedavg", torch.zeros(6)), ("oracle", groups)):
        params = fitted(name, clients).state.params["1.weight"].flatten(1)
        distance = torch.cdist(params, params)
        same = together[:, None] == together
        assert float(distance[same].max()) < 1e-3
        assert bool(same.all()) or float(distance[~same].min()) > 1e-1


@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_beats_training_alone(seed: int) -> None:
    clients = Clients(load_federation(TINY, seed=seed), executor="stacked")
    schedule = Schedule(warmup_epochs=25, local_epochs=5)
    local, oracle = (em(name, clients, seed, schedule).fit(3, progress=False) for name in ("local", "oracle"))
    assert oracle.history[-1]["accuracy"]["mean"] > local.history[-1]["accuracy"]["mean"] + 0.05
    assert oracle.history[-1]["graph"] == {"l1": 0, "auc": 1, "ari": 1}


def test_the_learned_graph_is_the_true_one_and_helps() -> None:
    federation = load_federation("permuted:digits:clients=6,groups=2,train=50,test=100,order=listed")
    clients = Clients(federation, executor="stacked")
    schedule = Schedule(warmup_epochs=40, local_epochs=5)
    local, learned = (
        EM(load_model(name, 6), clients, schedule).fit(2, progress=False) for name in ("local", "scool_sbm")
    )
    truth = torch.as_tensor(federation.truth)
    assert torch.equal(learned.graph.dense() > 0.5, truth > 0.5)
    assert learned.history[-1]["graph"]["ari"] == 1
    assert learned.history[-1]["accuracy"]["mean"] > local.history[-1]["accuracy"]["mean"] + 0.02


# Verbs.


@pytest.mark.parametrize("name", model_names())
def test_looking_twice_gives_the_same(name: str) -> None:
    """Verbs return what is to be remembered and write nowhere; so do training and its terms."""
    run = made(name)
    state, _ = run.step(run.init())
    start = run.round_start(state)
    plain = start._replace(clients=None, memory=dict(start.memory))  # type: ignore[arg-type]
    kept, begun = copy.deepcopy(state), copy.deepcopy(plain)
    (trained, terms, _), again = run.train(state, start), run.train(state, start)
    assert identical(trained, again.trained)
    assert identical(terms, again.memory)
    one, other = (run.look(start, trained.params) for _ in range(2))
    assert identical(one.evidence.peers, other.evidence.peers)
    for need in run.model.needs:
        shown = [look.evidence.shown(need) for look in (one, other)]
        if need == "mixed_validation":
            graph = one.evidence.peers.mask.double() / 2
            shown = [look.evidence.mixed_validation(graph) for look in (one, other)]
        assert identical(*shown), need
    if one.joint.table is not None:
        assert identical(one.joint.table, other.joint.table)
    assert identical(one.memory, other.memory)
    assert identical(state, kept)
    assert identical(plain, begun)
    with pytest.raises(TypeError, match="does not support item assignment"):
        start.memory["mine"] = Remembered(torch.zeros(()), ())  # type: ignore[index]


class Watched(Wrapper):
    """Clients on a clock of their own: training takes 100 seconds, an answer 10; and who asked on how many threads."""

    def __init__(self, clients: AnyClients) -> None:
        super().__init__(clients)
        self.now, self.trainings, self.threads = 0.0, 0, list[int]()

    def perf_counter(self) -> float:
        return self.now

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        self.now, self.trainings = self.now + 100, self.trainings + 1
        return super().train(params, optimizer_state, plan)

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        self.now += 10
        self.threads.append(torch.get_num_threads())
        return super().answer(questions, seed=seed, round=round)


ASKED_LATER = ("l2c", "meta_l2c")  # their likelihood is a function of the graph: clients are asked while it is inferred


@pytest.mark.parametrize("name", model_names())
def test_seconds_are_those_of_the_verb_that_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is counted as looking, also where inference asks for it; inference itself takes no time here."""
    run = made(name)
    watched = run.clients = Watched(run.clients)
    monkeypatch.setattr("scool_ppl.em.clock.time", watched)
    state = run.init()
    copies = {"ditto": 2, "fedem": 3}  # a federated network beside everybody's own; a copy of every component
    for looks in (2 if run.model.components else 1, 1):
        trainings, before = watched.trainings, len(watched.threads)
        state, info = run.step(state)
        trainings, answers = watched.trainings - trainings, len(watched.threads) - before
        assert info.seconds == {"train": 100 * trainings, "look": 10 * answers, "infer": 0, "mix": 0}
        assert trainings == copies.get(name, 1)
        asks = {need for need in run.model.needs if isinstance(need, str)} - {"updates", "round_updates"}
        assert answers > 1 if name in ASKED_LATER else answers == looks * bool(asks)


def test_clients_answer_on_all_threads_and_a_small_graph_is_inferred_on_one() -> None:
    inferring: list[int] = []

    def e_step(*arguments: Any) -> Posterior:
        inferring.append(torch.get_num_threads())
        posterior = run_e_step(*arguments)
        inferring.append(torch.get_num_threads())
        return posterior

    run = made("l2c")
    run_e_step = run.model.e_step
    run.model = run.model._replace(e_step=e_step)
    watched = run.clients = Watched(run.clients)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run.step(run.init())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert len(watched.threads) > 1
    assert set(watched.threads) == {2}
    assert inferring == [1, 1]


def test_the_joint_of_a_state_is_a_program_without_arguments(clients: Clients) -> None:
    """Of what the next round shows, with the prior's parameters that the state has, and beside the EM."""
    driver = em("latent_space", clients)
    state, _ = driver.step(driver.init())
    state = state._replace(prior={"b": torch.tensor(3.25).double()})
    before, there = copy.deepcopy(state), float(driver.model.prior.b.detach())
    start = driver.round_start(state)
    look = driver.look(start, driver.train(state, start).trained.params)
    x, table, mask = torch.randn(6, 2, generator=rng()).double(), look.joint.table, look.evidence.peers.mask
    assert isinstance(table, Tensor)
    odds = 3.25 - 3 * ((x[:, None] - x).square().sum(-1) + 1e-6).sqrt()

    def run(program: AnyProgram, **values: Tensor) -> poutine.Trace:
        trace = poutine.trace(poutine.condition(program, data=values)).get_trace()
        trace.compute_log_prob()
        return trace

    summed, asked = run(driver.joint(state, look), x=x), run(driver.joint(state), x=x)
    close(summed.nodes["Y"]["value"], torch.where(mask, (odds + table).sigmoid(), 0.0), 1e-6)
    assert summed.log_prob_sum() == asked.log_prob_sum()
    graph = (odds > -1).double()
    joint = run(driver.joint(state, look, marginal=False), x=x, Y=graph)
    close(joint.nodes["evidence"]["log_prob_sum"], (table * graph)[mask].sum(), 1e-5)
    assert float(driver.model.prior.b.detach()) == there
    same(state, before)

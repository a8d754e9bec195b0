"""Tracks side by side are the same tracks on their own: round by round, absent, moved and resumed."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

from scool_ppl import EM, Clients, CooperationModel, Federation, Schedule, load_federation, load_model
from scool_ppl.deploy import Portfolio, Single, Stack, Tracks, alone, candidates, deploy, gains
from scool_ppl.deploy.portfolio import TrainedOnce
from scool_ppl.em.state import EMInfo, EMState
from scool_ppl.infer.priors import Dirac
from scool_ppl.look import Ignored
from scool_ppl.mix import MixModels, MixUpdates
from scool_ppl.runs import checkpoints
from scool_ppl.train import Plan, Pull
from tests.helpers.command import contents
from tests.helpers.faulty import Fault, FaultyClients
from tests.helpers.refusals import refuses
from tests.helpers.runs import StoppedHereError, stop_after, timeless
from tests.helpers.small import clients
from tests.helpers.states import identical, same, same_bits

WHOLE = load_federation("permuted:digits:clients=6,groups=2,train=40,test=20,ragged=0.5,order=listed", seed=3)
FEDERATION, NEWCOMER = WHOLE.select(range(5)), WHOLE.select([5])
NAMES = FEDERATION.names
OWN = {"local": "local", "blocks": "blocks", "everybody": "fedavg"}
"""The tracks of hedge, and the model that each of them is."""


def driver(model: Any, federation: Federation = FEDERATION, seed: int = 1) -> EM:
    """An EM with optimisers that have buffers; a model by name or as it is."""
    whose = Clients(
        federation,
        optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.5),
        executor="stacked",
        dtype=torch.float64,
    )
    built = built_for(model)(federation) if isinstance(model, str) else model
    return EM(built, whose, Schedule(local_epochs=1, warmup_epochs=8), seed=seed)


def built_for(model: str) -> Callable[[Federation], Any]:
    return lambda federation: load_model(model, federation.num_clients, federation=federation)


def hedge(**choices: Any) -> Portfolio:
    return load_model("hedge", 5, federation=FEDERATION, **choices)  # type: ignore[return-value]


def given(num_clients: int, **changes: Any) -> Portfolio:
    """A portfolio that needs no evidence, by hand."""
    shares = Dirac(torch.full((num_clients, num_clients), 1 / num_clients))
    both = CooperationModel(shares, Ignored(), MixModels())
    tracks = {"local": alone(num_clients), "mean": both, "shown": both._replace(mixing=MixUpdates())}
    return Portfolio(tracks, "shown")._replace(**changes)


def ran(em: EM, rounds: int = 2, state: EMState | None = None) -> EMState:
    state = em.init() if state is None else state
    for _ in range(rounds):
        state, _ = em.step(state)
    return state


@cache
def hedged(rounds: int) -> EMState:
    """The state that hedge has come to after so many rounds."""
    return ran(driver("hedge"), rounds)


Apart = dict[str, tuple[EM, EMState]]


@cache
def ran_apart(rounds: int, absent: str | None = None) -> tuple[Apart, list[dict[str, EMInfo]]]:
    """The tracks of hedge, each as the model that it is, with the local networks given to the others by hand; who is
    absent is so in the second round.
    """
    ems = {name: driver(model) for name, model in OWN.items()}
    states, infos = {name: em.init() for name, em in ems.items()}, []
    for number in range(rounds):
        infos.append({})
        away = [absent] if number == 1 and absent else []
        for name, em in ems.items():  # local first
            unmixed = None if name == "local" or number == 0 else states["local"].params
            states[name], infos[-1][name] = em.step(states[name], away, unmixed=unmixed)
    return {name: (em, states[name]) for name, em in ems.items()}, infos


def equal_tracks(found: EMState, expected: Apart) -> None:
    assert list(found.beside) == ["local", "everybody"]
    same_bits(found._replace(beside={}), expected["blocks"][1])
    for name, state in found.beside.items():
        same_bits(state, expected[name][1])


# What runs it.


def test_an_em_of_a_portfolio_is_one_of_tracks() -> None:
    em = driver("hedge")
    assert type(em) is Tracks
    assert {type(each) for each in em.beside.values()} == {EM}
    assert type(driver("blocks")) is EM
    assert type(Tracks(hedge(), em.clients)) is Tracks
    assert em.portfolio.shown == "blocks"
    assert (em.schedule, em.seed) == (em.beside["local"].schedule, em.beside["everybody"].seed)


def test_local_training_comes_first_whatever_the_order() -> None:
    tracks = given(5).tracks
    em = driver(given(5, tracks={name: tracks[name] for name in ("shown", "mean", "local")}))
    assert list(em.beside) == ["local", "mean"]
    same_bits(ran(em), ran(driver(given(5))))


# A round.


def test_tracks_are_their_models_on_their_own() -> None:
    em = driver("hedge")
    state = em.init()
    expected, infos = ran_apart(3)
    bounds = []
    for round in infos:
        state, info = em.step(state)
        bounds.append(info.elbo)
        assert identical(info.trained, round["blocks"].trained)
        assert (info.elbo, info.loss) == (round["blocks"].elbo, round["blocks"].loss)
    equal_tracks(state, expected)
    assert len({float(each.params["1.weight"].sum()) for each in (state, *state.beside.values())}) == 3
    assert 0 < float(state.moments["Y"].sum()) < 20, "some learn from each other, and some do not"
    without = driver("blocks").fit(3, progress=False)
    ignorant = [row["elbo"] for row in without.history]
    assert ignorant[0] == bounds[0]
    assert ignorant[1] != bounds[1], "what the local networks show is looked at"


def test_networks_that_nobody_has_mixed_may_be_given_to_the_first_round() -> None:
    em, blocks = driver("hedge"), driver("blocks")
    params = {name: 1.5 * value for name, value in ran(driver("local"), 1).params.items()}
    found, info = em.step(em.init(), unmixed=params)
    expected, other = blocks.step(blocks.init(), unmixed=params)
    same_bits(found._replace(beside={}), expected)
    assert info.elbo == other.elbo != em.step(em.init())[1].elbo


def test_traffic_and_seconds_are_those_of_all_tracks(monkeypatch: pytest.MonkeyPatch) -> None:
    em, infos, real = driver("hedge"), [], EM.step

    def noted(*arguments: Any, **options: Any) -> tuple[EMState, EMInfo]:
        after, info = real(*arguments, **options)
        infos.append(info)
        return after, info

    monkeypatch.setattr(EM, "step", noted)
    state, first = em.step(em.init())
    _, later = em.step(state)
    assert len(infos) == 6
    for info, of_tracks in ((first, infos[:3]), (later, infos[3:])):
        for verb in ("train", "look", "infer", "mix"):
            assert info.seconds[verb] == pytest.approx(sum(each.seconds[verb] for each in of_tracks))
    # Local training sends nothing, the other tracks the networks of four others; blocks later also those of local training.
    network = em.clients.bytes_per_model
    for info, networks in ((first, 4 + 4), (later, 4 + 4 + 4)):
        assert info.bytes_received.tolist() == info.bytes_sent.tolist() == [networks * network] * 5


def test_who_is_absent_is_so_in_every_track() -> None:
    em, before = driver("hedge"), hedged(1)
    refuses(lambda: em.step(before, NAMES), "all clients are absent")
    after, info = em.step(before, ["client 2"])
    equal_tracks(after, ran_apart(2, "client 2")[0])
    assert info.quarantined == {"client 2": "absent"}
    for old, new in zip((before, *before.beside.values()), (after, *after.beside.values()), strict=True):
        assert all(torch.equal(new.params[name][2], value[2]) for name, value in old.params.items())
        assert all(not torch.equal(new.params[name][1], value[1]) for name, value in old.params.items())


def test_who_fails_was_absent() -> None:
    em = driver("hedge")
    faulty = EM(hedge(), FaultyClients(em.clients, Fault("nan loss", 2, 1)), em.schedule, seed=1)
    found, info = faulty.step(hedged(1))
    same(found, em.step(hedged(1), ["client 2"])[0])
    assert "not finite" in info.quarantined["client 2"]


def test_who_fails_in_one_track_is_named() -> None:
    """Whoever fails in a track that is not shown takes part in the others."""
    em = driver(given(5))
    before, _ = em.step(em.init())
    em.beside["mean"].clients = FaultyClients(em.clients, Fault("nan loss", 3, 1))
    after, info = em.step(before)
    assert list(info.quarantined) == ["client 3"]
    assert after.beside["mean"].params["1.bias"][3].equal(before.beside["mean"].params["1.bias"][3])
    assert not after.params["1.bias"][3].equal(before.params["1.bias"][3])


def test_tracks_that_train_alike_are_trained_once() -> None:
    """The first round's networks are the same for all, the next ones' are not; the bits are those of each on its own."""
    usual = driver("hedge")
    em = EM(hedge(), FaultyClients(usual.clients), usual.schedule, seed=1)
    state, seen = em.init(), []
    for _ in range(3):
        state, _ = em.step(state)
        seen.append(em.clients.calls)
    assert seen == [1, 4, 7]
    equal_tracks(state, ran_apart(3)[0])


def test_who_trains_otherwise_trains_itself() -> None:
    """Other networks, another plan, a pull, and an optimiser that has begun are each trained by themselves."""
    inside = FaultyClients(driver("local").clients)
    once, start, plan = TrainedOnce(inside), inside.init(1), Plan(steps=2, seed=1)
    first = once.train(start, None, plan)
    assert once.train(dict(start), {}, plan) is first
    assert identical(first.params, inside.clients.train(start, None, plan).params)
    others = (
        ({name: value.clone() for name, value in start.items()}, None, plan._replace(round=1)),
        (start, None, plan._replace(absent=(1,))),
        (inside.init(2), None, plan),
        (start, None, plan._replace(pull=Pull(inside.init(2), torch.ones(5).double()))),
        (start, {"momentum_buffer/1.weight": torch.zeros_like(start["1.weight"])}, plan),
    )
    for number, asked in enumerate(others, start=2):
        assert identical(once.train(*asked).params, inside.clients.train(*asked).params)
        assert inside.calls == number


# What is deployed.


def test_candidates_are_those_of_all_tracks_local_first() -> None:
    found = driver("hedge").candidates(hedged(2))
    assert list(found) == ["local", "everybody", "everybody, tuned", "blocks", "blocks, tuned"]
    apart = ran_apart(2)[0]
    expected = candidates(*apart["local"], "local") | candidates(*apart["everybody"], "everybody")
    expected |= candidates(*apart["blocks"], "blocks")
    for name, predictor in expected.items():
        assert identical(found[name].networks, predictor.networks), name


def test_the_rule_is_the_portfolios_unless_another_is_given() -> None:
    em, state = driver("hedge"), hedged(2)
    options = em.candidates(state)
    for rule, found in ((Stack(), em.deploy(state)), (Single(0.0), em.deploy(state, Single(0.0)))):
        expected = deploy(options, em.clients, rule)
        assert found.candidates == expected.candidates
        assert torch.equal(found.weights, expected.weights)
    other = driver(hedge(reliance=5.0, unseen=False))
    assert other.portfolio.rule == Stack(5.0, unseen=False)  # type: ignore[attr-defined]
    assert torch.equal(other.deploy(state).weights, deploy(options, em.clients, Stack(5.0, unseen=False)).weights)


def test_a_fit_is_that_of_the_track_that_is_shown_with_what_is_deployed_beside_it() -> None:
    em = driver("hedge")
    fit = em.fit(2, progress=False)
    same_bits(fit.state, hedged(2))
    assert identical(fit.evaluation, em.clients.evaluate(fit.state.params))
    assert identical(fit.deployed, fit.deployment.evaluate(em.clients))
    assert fit.deployment.chosen
    assert torch.equal(fit.deployment.weights, em.deploy(fit.state).weights)
    assert not torch.equal(fit.deployed.loss, fit.evaluation.loss)


def test_one_model_deploys_what_it_has() -> None:
    em = driver("fedavg")
    fit = em.fit(1, progress=False)
    assert fit.deployment.candidates == ("mixed",)
    assert not fit.deployment.chosen
    assert fit.deployed is fit.evaluation
    assert fit.deployment.evaluate(em.clients).loss.tolist() == pytest.approx(fit.evaluation.loss.tolist())


def test_where_a_track_is_local_training_nobody_need_be_harmed() -> None:
    """Where the other tracks have come to networks that are surely wrong, everybody has exactly what it has alone."""
    em = driver(given(5, rule=Single()))
    state = ran(em)
    local = state.beside["local"].params
    wrong = {name: -10 * value if name.startswith("3.") else value for name, value in local.items()}
    mean = state.beside["mean"]._replace(params=wrong)
    found = em.deploy(state._replace(params=wrong, beside={**state.beside, "mean": mean}))
    assert found.weights.tolist() == [[1, 0, 0, 0, 0]] * 5
    assert gains(em.clients, found.ensemble, local).gain.tolist() == [0] * 5


# Who comes and who goes.


def joined(name: str, em: EM, state: EMState) -> tuple[EM, EMState]:
    """A newcomer starts at the mean of the others, but in the local track: what is there it has trained alone."""
    return em.join(state, NEWCOMER, built_for(name), "warm-up" if name == "local" else "mean")


def left(name: str, em: EM, state: EMState) -> tuple[EM, EMState]:
    return em.leave(state, [NAMES[2]], built_for(name))


@pytest.mark.parametrize("move", [joined, left])
def test_every_track_is_moved_as_it_is_on_its_own(move: Callable[[str, EM, EMState], tuple[EM, EMState]]) -> None:
    apart = ran_apart(2)[0]
    before = driver("hedge")
    em, state = move("hedge", before, hedged(2))
    moved = {name: move(OWN[name], *track) for name, track in apart.items()}
    equal_tracks(state, moved)
    assert type(em) is Tracks
    assert em.clients.names == moved["local"][0].clients.names != NAMES
    assert (em.schedule, em.seed) == (before.schedule, before.seed)
    after = ran(em, 1, state)
    assert all(each.round == 3 for each in (after, *after.beside.values()))
    assert len(em.deploy(after).weights) == em.clients.num_clients


def test_the_portfolio_of_other_clients_has_the_same_tracks() -> None:
    em, state = driver("hedge"), hedged(2)
    other = Portfolio({"local": alone(6), "shown": alone(6)}, "shown")
    refuses(lambda: em.join(state, NEWCOMER, lambda _: other), "`build` made the tracks local, shown and shows shown")
    refuses(lambda: em.leave(state, [NAMES[2]], None), "build is None, expected a Callable")  # type: ignore[arg-type]


def test_an_em_can_be_copied() -> None:
    em = driver("hedge")
    assert type(copy.copy(em)) is Tracks


def test_a_join_and_a_leave_of_the_same_client_change_nothing() -> None:
    more, wider = joined("hedge", driver("hedge"), hedged(2))
    _, back = more.leave(wider, ["client 5"], built_for("hedge"))
    same(back, hedged(2))


def test_the_portfolio_of_those_who_are_there_is_built_once() -> None:
    em, asked = driver("hedge"), []

    def build(federation: Federation) -> Portfolio:
        asked.append(federation.num_clients)
        return load_model("hedge", federation.num_clients)  # type: ignore[return-value]

    moved, _ = em.leave(hedged(1), [NAMES[0]], build)
    assert asked == [4]
    assert moved.portfolio.tracks["blocks"].prior.num_clients == 4  # type: ignore[attr-defined]


def test_who_leaves_a_portfolio_needs_another_one() -> None:
    em = driver("hedge")
    refuses(lambda: em.leave(em.init(), [NAMES[0]], built_for("ring")), "portfolio is a CooperationModel, expected a")
    refuses(lambda: em.leave(em.init(), ["nobody"], built_for("hedge")), "unknown client 'nobody'")


# What is refused.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shown": "local"}, "the portfolio shows 'local' of the tracks local, mean, shown, expected one"),
        ({"shown": "blocks"}, "shows 'blocks' of the tracks local, mean, shown, expected one of them"),
        ({"tracks": {"shown": alone(5)}}, "of the tracks shown, expected one of them that is not 'local', and 'local'"),
        ({"tracks": {"local": alone(5), "shown": 3}}, "track of the portfolio is 3, expected a CooperationModel"),
        (
            {"tracks": {"local": alone(5), "a, b": alone(5)}, "shown": "a, b"},
            "track 'a, b', expected a name without a comma",
        ),
        ({"tracks": None}, "tracks of the portfolio is None, expected a Mapping"),
        ({"rule": "stack"}, "rule of the portfolio is 'stack', expected a Rule"),
        (
            {"tracks": {"local": load_model("fedavg", 5), "shown": alone(5)}},
            "the track 'local' mixes by MixModels, expected training alone",
        ),
        ({"tracks": {"local": alone(4), "shown": alone(5)}}, "the model is for 4 clients, the federation has 5"),
    ],
)
def test_a_portfolio_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    refuses(lambda: driver(given(5, **changes)), words)


def test_tracks_run_nothing_but_a_portfolio() -> None:
    refuses(lambda: Tracks(alone(5), driver("local").clients), "portfolio is a CooperationModel, expected a Portfolio")  # type: ignore[arg-type]


def test_the_state_of_other_tracks_is_refused() -> None:
    em = driver(given(5))
    ours = em.init()
    for state, words in (
        (driver("fedavg").init(), "the state has the tracks none beside its own, expected local, mean"),
        (ours._replace(beside={"local": ours.beside["local"]}), "has the tracks local beside its own"),
        (ours._replace(beside={**ours.beside, "more": ours}), "has the tracks local, mean, more beside its own"),
        (driver(given(6), WHOLE).init(), "the state is of [6] clients, expected 5"),
        (ours._replace(beside={**ours.beside, "mean": driver(given(6), WHOLE).init()}), "of [6] clients, expected 5"),
    ):
        for act in (em.check, em.step, lambda state: em.fit(1, state=state, progress=False)):
            refuses(lambda act=act, state=state: act(state), words)  # type: ignore[misc]


# Going on.


def test_a_run_that_goes_on_is_the_run_that_it_was(tmp_path: Path) -> None:
    whole = driver("hedge").fit(3, progress=False)
    with pytest.raises(StoppedHereError):
        driver("hedge").fit(3, run=tmp_path / "run", progress=False, callbacks=[stop_after(1)])
    read = driver("hedge").resume(tmp_path / "run")
    assert list(read.beside) == ["local", "everybody"]
    same_bits(read, hedged(1))
    rest = driver("hedge").fit(3, run=tmp_path / "run", resume=True, progress=False)
    same_bits(rest.state, whole.state)
    assert timeless(rest.history) == timeless(whole.history)
    assert torch.equal(rest.deployment.weights, whole.deployment.weights)
    again = driver("hedge").fit(3, run=tmp_path / "run", resume=True, progress=False)
    assert torch.equal(again.deployed.loss, whole.deployed.loss)


def with_track(name: str, model: CooperationModel | None) -> Portfolio:
    """Hedge with another track of this name, or without it."""
    tracks = {**hedge().tracks, name: model}
    return hedge()._replace(tracks={name: track for name, track in tracks.items() if track is not None})


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "rule": (lambda: hedge()._replace(rule=Single()), "has the rule of deployment Stack, this EM Single;"),
    "reliance": (lambda: hedge(reliance=5.0), "has the rule of deployment alpha=20.0, this EM alpha=5.0;"),
    "unseen": (lambda: hedge(unseen=False), "has the rule of deployment unseen=True, this EM unseen=False;"),
    "shown": (lambda: hedge(errors=1.0), "has the likelihood errors=2.0, this EM errors=1.0;"),
    "mixing": (
        lambda: with_track("everybody", hedge().tracks["everybody"]._replace(mixing=MixUpdates())),
        "has the mixing of the track everybody MixModels, this EM MixUpdates;",
    ),
    "graph": (
        lambda: with_track("everybody", load_model("fedavg", 5, samples=torch.arange(1, 6))),
        "has the start of the prior of the track everybody weights=",
    ),
    "more": (lambda: with_track("other", alone(5)), "has the prior of the track other nothing, this EM Dirac;"),
    "fewer": (lambda: with_track("everybody", None), "has the prior of the track everybody Dirac, this EM nothing;"),
    "none": (lambda: hedge().tracks["blocks"], "has the prior of the track local Dirac, this EM nothing;"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of hedge with one round."""
    folder = tmp_path_factory.mktemp("portfolio") / "run"
    driver("hedge").fit(1, run=folder, progress=False)
    return folder


@pytest.mark.parametrize("change", OTHERS)
def test_a_run_of_another_portfolio_is_refused(change: str, run: Path) -> None:
    make, words = OTHERS[change]
    em, before = driver(make()), contents(run)
    refuses(lambda: em.resume(run), words)
    refuses(lambda: em.fit(2, run=run, resume=True, progress=False), words)
    assert contents(run) == before


def test_a_run_of_one_model_is_none_of_a_portfolio(tmp_path: Path) -> None:
    driver("blocks").fit(1, run=tmp_path / "run", progress=False)
    refuses(lambda: driver("hedge").resume(tmp_path / "run"), "prior of the track local nothing, this EM Dirac;")


def without_a_track(state: EMState) -> EMState:
    return state._replace(beside={"local": state.beside["local"]})


def of_another_shape(state: EMState) -> EMState:
    local = state.beside["local"]
    return state._replace(beside={**state.beside, "local": local._replace(params={"1.weight": torch.zeros(5, 2)})})


def of_an_earlier_round(state: EMState) -> EMState:
    return state._replace(beside={**state.beside, "everybody": state.beside["everybody"]._replace(round=0)})


def without_peers(state: EMState) -> EMState:
    return state._replace(beside={**state.beside, "everybody": state.beside["everybody"]._replace(peers=None)})


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (without_a_track, "has the tracks nothing, this EM everybody"),
        (of_another_shape, "track local, has the params '1.weight' (5, 2)"),
        (of_an_earlier_round, "its track everybody is of round 0, expected 1"),
        (without_peers, "it has no table of peers, expected one after round 1"),
    ],
)
def test_tracks_that_belie_their_description_are_refused(
    harm: Callable[[EMState], EMState], words: str, run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    last = checkpoints.newest(tmp_path / "run")
    assert last is not None
    checkpoints.save(tmp_path / "run", last._replace(state=harm(last.state)), keep=1)
    refuses(lambda: driver("hedge").resume(tmp_path / "run"), words)


# Its parts.


def test_with_each_changes_every_track_of_a_copy() -> None:
    portfolio = given(5, rule=Single())
    changed = portfolio.with_each(lambda model: model._replace(mixing=MixUpdates(clip=2.0)))
    assert [model.mixing for model in changed.tracks.values()] == [MixUpdates(clip=2.0)] * 3
    assert list(changed.tracks) == ["local", "mean", "shown"]
    assert (changed.shown, changed.rule) == ("shown", Single())
    for name, model in portfolio.tracks.items():
        assert changed.tracks[name].prior is model.prior
        assert model.mixing != MixUpdates(clip=2.0)


def test_alone_is_local_only_training() -> None:
    found, expected = driver(alone(5)).fit(2, progress=False), driver("local").fit(2, progress=False)
    same_bits(found.state, expected.state)
    assert not found.graph.dense().any()
    assert torch.equal(found.evaluation.loss, found.trained.loss), "mixing leaves the networks as they are"


def test_two_portfolios_share_no_state() -> None:
    portfolio = hedge()
    one, other = (driver(portfolio, seed=seed) for seed in (1, 2))
    states = [one.init(), other.init()]
    for _ in range(2):
        states = [em.step(state)[0] for em, state in zip((one, other), states, strict=True)]
    same_bits(states[0], hedged(2))
    same_bits(states[1], ran(driver("hedge", seed=2)))


@pytest.mark.parametrize("num_clients", [1, 2])
def test_one_and_two_clients_are_enough(num_clients: int) -> None:
    whose = clients(num_clients)
    fit = EM(load_model("hedge", num_clients), whose, Schedule(local_steps=1)).fit(2, progress=False)
    torch.testing.assert_close(fit.deployment.weights.sum(1), torch.ones(num_clients, dtype=torch.float64))
    assert bool(fit.deployed.loss.isfinite().all())


def test_a_rule_where_there_is_nothing_to_choose_from_is_refused() -> None:
    em = EM(load_model("ring", 5), clients(5))
    refuses(lambda: em.deploy(em.init(), Single()), "this model has nothing to choose from")
    hedge = driver("hedge")
    refuses(lambda: hedge.deploy(hedged(2), "single"), "rule is 'single', expected a Rule")

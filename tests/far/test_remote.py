"""RemoteClients: every model over hosts with a file each against one process; who fails, who is away, what cannot be."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.errors import InputError, RunError
from scool_ppl.far import Answers, LocalFabric, RemoteClients
from scool_ppl.far.wire import Build
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Plan
from scool_ppl.train.hostile import HostileClients
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.zoo.load import load_model, model_names
from tests.helpers.far import Faulty, from_files, hosts, remote
from tests.helpers.models import FEDERATION, SCHEDULE, K
from tests.helpers.refusals import refuses
from tests.helpers.small import brief
from tests.helpers.states import same_bits

NAMES = FEDERATION.names
OPTIONS: dict[str, Any] = {"executor": "stacked", "dtype": torch.float64}


def driver(clients: AnyClients, model: str = "scool_sbm", schedule: Schedule = SCHEDULE) -> EM:
    whose = FEDERATION if isinstance(clients, Clients) else None
    facts = {"truth": FEDERATION.truth} if model == "oracle" and whose is None else {}
    built = load_model(model, K, federation=whose or clients.roster, **facts)
    return EM(brief(built), clients, schedule, seed=1)


@pytest.mark.parametrize("model", model_names())
def test_every_model_comes_to_the_same_where_the_data_stay_with_their_owners(model: str, tmp_path: Path) -> None:
    """A file and a host for each of four clients, against all of them in one process: float64 up to rounding."""
    here = driver(Clients(FEDERATION, **OPTIONS), model).fit(2, progress=False)
    fabric = from_files(FEDERATION, tmp_path, **OPTIONS)
    there = driver(RemoteClients(fabric), model).fit(2, progress=False)
    for name, value in here.state.params.items():
        torch.testing.assert_close(there.state.params[name], value, rtol=0, atol=1e-12)
    torch.testing.assert_close(there.graph.weights, here.graph.weights, rtol=0, atol=1e-12)
    for found, expected in zip(there.deployed, here.deployed, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    assert there.history[-1]["elbo"] == pytest.approx(here.history[-1]["elbo"], rel=1e-9)
    assert there.history[-1]["loss"] == pytest.approx(here.history[-1]["loss"], rel=1e-9)


def test_a_round_is_a_trip_to_train_one_to_look_and_one_to_evaluate() -> None:
    clients = remote(Clients(FEDERATION, **OPTIONS))
    em = driver(clients)
    state = em.init()
    assert isinstance(clients.fabric, LocalFabric)
    trips = clients.fabric.trips
    em.fit(1, state=state, progress=False)
    assert clients.fabric.trips - trips == 3


class Weighed(LocalFabric):
    """Requests and replies as texts of bytes, of whatever is written into them."""

    letters = 0

    def ask(self, names: Sequence[str], build: Build) -> Answers:
        for name in names:
            for job in build(name):
                networks = None if job.networks is None else job.networks.stack[list(job.networks.use)].numpy()
                tensors = {key: value.numpy() for key, value in job.tensors.items()}
                self.letters += len(pickle.dumps((job.verb, dict(job.options), tensors, networks)))
        found = super().ask(names, build)
        for reply in found.replies.values():
            self.letters += sum(
                len(pickle.dumps({key: value.numpy() for key, value in told.items()})) for told in reply
            )
        return found


@pytest.mark.parametrize("model", ["fedavg", "scool_sbm", "federico", "hedge"])
def test_the_history_says_how_much_has_travelled(model: str) -> None:
    fabric, weighed = Weighed(*hosts(Clients(FEDERATION, **OPTIONS))), [0]
    em = driver(RemoteClients(fabric), model)
    state = em.init()
    weighed[0] = fabric.letters
    fit = em.fit(2, state=state, progress=False, callbacks=[lambda *_: weighed.append(fabric.letters)])
    told = [row["bytes"]["carried"] * K for row in fit.history]
    assert told == pytest.approx([weighed[1] - weighed[0], weighed[2] - weighed[1]], rel=0.05)
    here = driver(Clients(FEDERATION, **OPTIONS), model).fit(2, progress=False)
    others = [{key: row["bytes"][key] for key in ("received", "sent")} for row in fit.history]
    assert others == [row["bytes"] for row in here.history], "what clients would give one another is the same anywhere"


@pytest.mark.parametrize("kind", ["raise", "silent", "shape", "short"])
@pytest.mark.parametrize("verb", ["train", "losses"])
def test_who_fails_is_left_out_of_the_round_and_nobody_trains_twice(verb: str, kind: str) -> None:
    here = Clients(FEDERATION, **OPTIONS)
    fabric = Faulty(LocalFabric(*hosts(here)), {(verb, NAMES[1]): kind})
    em = driver(RemoteClients(fabric))
    state, info = em.step(em.init())
    assert set(info.quarantined) == {NAMES[1]}
    assert info.quarantined[NAMES[1]]
    expected = driver(remote(here))
    same_bits(state, expected.step(expected.init(), [NAMES[1]])[0])
    trained = [name for verb, name in fabric.asked if verb == "train"]
    assert len(trained) == K - (kind == "silent" and verb == "train"), "K times, not 2 K - 1"


def test_an_answer_under_another_name_ends_the_run_in_one_line() -> None:
    fabric = Faulty(LocalFabric(*hosts(Clients(FEDERATION, **OPTIONS))), {("train", NAMES[1]): "name"})
    em = driver(RemoteClients(fabric))
    with pytest.raises(RunError, match="'somebody' answered a question that was not put to it"):
        em.step(em.init())


@pytest.mark.parametrize("kind", ["raise", "silent", "shape"])
def test_who_is_silent_when_networks_are_evaluated_has_no_score_and_is_at_no_fault(kind: str) -> None:
    fabric = Faulty(LocalFabric(*hosts(Clients(FEDERATION, **OPTIONS))), {("evaluate", NAMES[2]): kind})
    clients = RemoteClients(fabric)
    fit = driver(clients).fit(1, progress=False)
    assert fit.evaluation.score.isnan().tolist() == [False, False, True, False]
    assert fit.trained.loss.isnan().tolist() == [False, False, True, False]
    assert set(clients.silent) == {NAMES[2]}
    assert fit.history[-1]["quarantined"] == {}
    assert fit.history[-1]["accuracy"]["mean"] is not None


def test_who_is_silent_when_the_deployment_is_decided_follows_the_others() -> None:
    fabric = Faulty(LocalFabric(*hosts(Clients(FEDERATION, **OPTIONS))), {("predictions", NAMES[2]): "silent"})
    fit = driver(RemoteClients(fabric), "hedge").fit(1, progress=False)
    assert fit.deployment.weights.sum(1).tolist() == pytest.approx([1.0] * K)


def test_what_the_fabric_knows_to_be_away_is_not_asked() -> None:
    here = Clients(FEDERATION, **OPTIONS)
    fabric = Faulty(LocalFabric(*hosts(here)), holidays={1: {NAMES[3]: "closed"}})
    fit = driver(RemoteClients(fabric)).fit(2, progress=False)
    assert fit.history[1]["quarantined"] == {NAMES[3]: "closed"}
    em = driver(remote(here))
    state = em.step(em.init())[0]
    same_bits(fit.state, em.step(state, [NAMES[3]])[0])
    assert [name for verb, name in fabric.asked if verb == "train"].count(NAMES[3]) == 1


def test_hostile_clients_may_be_elsewhere() -> None:
    here = Clients(FEDERATION, **OPTIONS)
    attacked = [
        HostileClients(clients, "scaled", share=0.5, seed=3) for clients in (here, remote(here, [[0, 1], [2, 3]]))
    ]
    trained = [each.train(each.init(0), None, Plan(1, seed=2)) for each in attacked]
    for name, value in trained[0].params.items():
        torch.testing.assert_close(trained[1].params[name], value, rtol=0, atol=1e-12)
    clean = here.train(here.init(0), None, Plan(1, seed=2))
    assert not torch.allclose(flat_of(trained[0].params), flat_of(clean.params))
    with pytest.raises(InputError, match="data are elsewhere"):
        HostileClients(remote(here), "label-flip")


def flat_of(params: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.flatten() for value in params.values()])


def test_a_run_goes_on_and_only_with_the_data_that_it_began_with(tmp_path: Path) -> None:
    here = Clients(FEDERATION, **OPTIONS)
    whole = driver(remote(here)).fit(3, progress=False)
    driver(remote(here)).fit(1, run=tmp_path / "run", progress=False)
    rest = driver(remote(here)).fit(3, run=tmp_path / "run", resume=True, progress=False)
    same_bits(rest.state, whole.state)
    other = replace(FEDERATION, targets=(FEDERATION.targets + 1) % 10)
    em = driver(remote(Clients(other, **OPTIONS)))
    refuses(lambda: em.resume(tmp_path / "run"), f"of {NAMES[0]}, this EM SHA-256")


def test_facts_tell_whose_data_are_others() -> None:
    facts = remote(Clients(FEDERATION, **OPTIONS)).facts()
    assert facts["client"] == list(NAMES)
    assert len(set(facts["data"])) == K
    swapped = remote(Clients(FEDERATION.select([1, 0, 2, 3]), **OPTIONS)).facts()
    assert sorted(swapped["data"]) == sorted(facts["data"])
    assert swapped["data"] != facts["data"]


def test_all_that_the_contract_names_is_there() -> None:
    clients = remote(Clients(FEDERATION, **OPTIONS))
    driver(clients)  # refuses what lacks something
    assert isinstance(clients, AnyClients), "though it has no federation to show"
    assert not isinstance(FEDERATION, AnyClients)
    for name, expected in vars(AnyClients).items():
        if isinstance(expected, FunctionType) and not name.startswith("_"):
            mine, theirs = (inspect.signature(each).parameters for each in (getattr(RemoteClients, name), expected))
            assert [(one.name, one.kind, one.default) for one in mine.values()] == [
                (one.name, one.kind, one.default) for one in theirs.values()
            ]


def test_what_the_clients_elsewhere_cannot_do_is_one_line() -> None:
    clients = remote(Clients(FEDERATION, **OPTIONS))
    refuses(lambda: clients.federation, "the clients' data are elsewhere")
    refuses(lambda: clients.for_federation(FEDERATION), "start hosts with those data")
    refuses(lambda: clients.evaluate(clients.init(0), "testing"), "did you mean 'test'")
    refuses(
        lambda: remote(Clients(FEDERATION, **OPTIONS), federation=FEDERATION.select([0])), "the hosts have the clients"
    )
    assert remote(Clients(FEDERATION, **OPTIONS), federation=FEDERATION).federation is FEDERATION


def test_predictions_and_first_networks_are_those_of_one_process() -> None:
    for common in (True, False):
        here = Clients(FEDERATION, common_start=common, **OPTIONS)
        there = remote(here, [[0], [1, 2, 3]])
        params = here.init(3)
        assert all(torch.equal(params[name], value) for name, value in there.init(3).items())
        (found, mask), (expected, known) = there.predict(params), here.predict(params)
        assert torch.equal(mask, known)
        torch.testing.assert_close(found[mask], expected[known], rtol=0, atol=1e-12)
        assert there.bytes_per_model == here.bytes_per_model


PRIVATE = Privacy(1.0, 1.0, 1e-3, evidence_noise=3.0, evidence_clip=4.0)


@pytest.mark.parametrize("model", ["fedavg", "ditto", "scool_sbm", "fedfomo"])
def test_private_clients_elsewhere_come_to_the_same_and_have_spent_the_same(model: str, tmp_path: Path) -> None:
    """Hosts count their steps and add the noise of their losses, each of its own clients."""
    pytest.importorskip("opacus", reason="opacus is not installed")
    options = {**OPTIONS, "privacy": PRIVATE, "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.5)}
    here = driver(Clients(FEDERATION, **options), model)
    there = driver(RemoteClients(from_files(FEDERATION, tmp_path, **options)), model)
    state, other = here.init(), there.init()
    for absent in ((), NAMES[1:2], ()):
        (state, info), (other, told) = here.step(state, absent), there.step(other, absent)
        assert told.epsilon == pytest.approx(info.epsilon)
        assert torch.equal(other.memory["spent"].value, state.memory["spent"].value)
    for name, value in state.params.items():
        torch.testing.assert_close(other.params[name], value, rtol=0, atol=1e-12)
    torch.testing.assert_close(other.moments["Y"], state.moments["Y"], rtol=0, atol=1e-12)
    assert other.optimizer.keys() == state.optimizer.keys()


def test_private_clients_elsewhere_deploy_what_those_of_one_process_do() -> None:
    """Networks that are in the account already: nobody trains once more for it."""
    private, found = Clients(FEDERATION, **OPTIONS, privacy=Privacy(0.0, 1.0)), []
    for clients in (private, remote(private)):
        em = driver(clients, "hedge", Schedule(1, 1))
        deployment = em.deploy(em.step(em.init())[0])
        assert deployment.candidates == ("local", "everybody", "blocks")
        found.append(deployment.ensemble)
    for there, here in zip(found[1].predictors, found[0].predictors, strict=True):
        for name, value in here.networks.items():
            torch.testing.assert_close(there.networks[name], value, rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1].weights, found[0].weights, rtol=0, atol=1e-9)


def test_private_clients_of_one_host_are_those_of_many() -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    whole = Clients(FEDERATION, **OPTIONS, privacy=PRIVATE)
    found = []
    for parts in (None, [[0, 1], [2, 3]], [range(K)]):
        em = driver(remote(whole, parts))
        found.append(em.step(em.init())[0])
    for each in found[1:]:
        torch.testing.assert_close(each.moments["Y"], found[0].moments["Y"], rtol=0, atol=1e-12)


def test_private_clients_elsewhere_take_no_step_together_and_promise_the_same() -> None:
    private = Clients(FEDERATION, **OPTIONS, privacy=Privacy(0.0, 1.0))
    em = driver(remote(private), "dpsgd")
    em.step(em.init())
    refuses(lambda: driver(remote(private), "cobo"), "clients elsewhere cannot while they train privately")
    other = Clients(FEDERATION, **OPTIONS, privacy=Privacy(0.0, 2.0))
    fabric = LocalFabric(*hosts(private)[:2], *hosts(other)[2:])
    with pytest.raises(InputError, match=r"privacy.*expected the same; give all of them the same privacy"):
        RemoteClients(fabric)

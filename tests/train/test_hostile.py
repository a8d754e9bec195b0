"""Hostile clients: what they send is what is written, and nobody else is touched."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import norm

from scool_ppl import EM, Clients, InputError, Schedule, load_federation, load_model
from scool_ppl.train.contract import Plan
from scool_ppl.train.hostile import Attack, HostileClients, colluders_z
from tests.helpers.faulty import Fault, FaultyClients
from tests.helpers.small import brief

K = 6
FEDERATION = load_federation(f"permuted:digits:clients={K},groups=2,train=20,test=20,order=listed", seed=3)
SCHEDULE = Schedule(local_epochs=1, warmup_epochs=2)
NETWORKS: list[Attack] = ["sign-flip", "scaled", "random", "collude"]


def plain() -> Clients:
    optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.5)
    return Clients(FEDERATION, optimizer=optimizer, executor="stacked", dtype=torch.float64)


def hostile(attack: Attack, **options: Any) -> HostileClients:
    return HostileClients(plain(), attack, **{"share": 0.34, **options})


def test_the_share_is_seeded_and_by_name() -> None:
    found = hostile("scaled")
    assert len(found.hostile_names) == 2
    assert found.hostile_names == hostile("random").hostile_names
    assert len({hostile("scaled", seed=seed).hostile_names for seed in range(6)}) > 1
    assert {found.names[i] for i in (~found.honest).nonzero().flatten().tolist()} == set(found.hostile_names)
    assert hostile("scaled", share=0.0).hostile_names == ()
    assert hostile("scaled", hostile=("client 4",)).hostile_names == ("client 4",)


@pytest.mark.parametrize("attack", NETWORKS)
def test_what_is_sent_by_hand(attack: Attack) -> None:
    clients, bad = plain(), hostile(attack)
    start = clients.init(0)
    plan = Plan(epochs=2)
    good, sent = clients.train(start, None, plan), bad.train(start, None, plan)
    honest = bad.honest.nonzero().flatten().tolist()
    for i in range(K):
        for name in start:
            update = (good.params[name] - start[name])[i]
            found = (sent.params[name] - start[name])[i]
            if i in honest:
                assert torch.equal(sent.params[name][i], good.params[name][i])
            elif attack == "sign-flip":
                torch.testing.assert_close(found, -update)
            elif attack == "scaled":
                torch.testing.assert_close(found, 10 * update)
            elif attack == "collude":
                every = (good.params[name] - start[name])[honest]
                torch.testing.assert_close(found, every.mean(0) - colluders_z(K, 2) * every.std(0, unbiased=False))
    assert torch.equal(sent.loss, good.loss)
    if attack == "random":
        first, second = (~bad.honest).nonzero().flatten().tolist()

        def flat(params: Any, client: int) -> torch.Tensor:
            return torch.cat([(params[name] - start[name])[client].flatten() for name in start])

        for client in (first, second):
            torch.testing.assert_close(flat(sent.params, client).norm(), flat(good.params, client).norm())
            cosine = torch.cosine_similarity(flat(sent.params, client), flat(good.params, client), dim=0)
            assert abs(float(cosine)) < 0.2
        assert not torch.allclose(flat(sent.params, first), flat(sent.params, second))
        again = hostile(attack).train(start, None, plan)
        assert all(torch.equal(again.params[name], sent.params[name]) for name in start)


def test_strength_is_the_users() -> None:
    clients, bad = plain(), hostile("collude", strength=1.5)
    start = clients.init(0)
    good, sent = (each.train(start, None, Plan(epochs=1, seed=0, round=0)) for each in (clients, bad))
    for name in start:
        every = (good.params[name] - start[name])[bad.honest]
        found = (sent.params[name] - start[name])[~bad.honest]
        torch.testing.assert_close(found[0], every.mean(0) - 1.5 * every.std(0, unbiased=False))
        assert torch.equal(found[0], found[1])


@pytest.mark.parametrize(("clients", "colluders"), [(50, 12), (20, 4), (10, 4), (100, 30), (5, 1)])
def test_z_is_the_papers(clients: int, colluders: int) -> None:
    """ALIE, algorithm 3: s = floor(n / 2 + 1) - m, z = max z with Phi(z) < (n - m - s) / (n - m)."""
    supporters = math.floor(clients / 2 + 1) - colluders
    expected = norm.ppf((clients - colluders - supporters) / (clients - colluders))
    assert colluders_z(clients, colluders) == pytest.approx(max(0.0, expected), abs=1e-12)


def test_flipped_labels_are_the_hostile_clients_own_in_all_parts() -> None:
    bad = hostile("label-flip")
    for i in range(K):
        for split in ("train", "validation", "test"):
            rows = getattr(FEDERATION, split)[i]
            true, held = FEDERATION.labels(i, rows), bad.federation.labels(i, rows)
            assert torch.equal(held, true if bool(bad.honest[i]) else 9 - true)
    start, plan = plain().init(0), Plan(epochs=2)
    good, sent = plain().train(start, None, plan), bad.train(start, None, plan)
    moved = torch.stack([(good.params[name] != sent.params[name]).flatten(1).any(1) for name in start]).any(0)
    assert torch.equal(moved, ~bad.honest)


@pytest.mark.parametrize("attack", [*NETWORKS, "label-flip"])
def test_it_runs_under_em_with_absences_and_membership(attack: Attack) -> None:
    clients = HostileClients(FaultyClients(plain(), Fault("nan loss", 1, 1)), attack, share=0.34)
    build = lambda federation: brief(load_model("scool_sbm", federation.num_clients, clip=1.0))  # noqa: E731
    em = EM(build(FEDERATION), clients, SCHEDULE, seed=0)
    state, _ = em.step(em.init(), absent=[clients.hostile_names[0]])
    place = clients.names.index(clients.hostile_names[0])
    assert all(torch.equal(state.params[name][place], em.init().params[name][place]) for name in state.params)
    state, info = em.step(state)
    assert list(info.quarantined) == ["client 1"]
    fewer, state = em.leave(state, [clients.hostile_names[0]], build)
    assert isinstance(fewer.clients, HostileClients)
    assert fewer.clients.hostile_names == clients.hostile_names[1:]
    if attack == "label-flip":
        kept = fewer.clients.names.index(clients.hostile_names[1])
        rows = fewer.clients.federation.train[kept]
        whole = clients.federation.names.index(clients.hostile_names[1])
        assert torch.equal(fewer.clients.federation.labels(kept, rows), 9 - FEDERATION.labels(whole, rows))
    state, _ = fewer.step(state)
    assert all(bool(value.isfinite().all()) for value in state.params.values())


def test_among_other_clients_the_same_are_hostile_and_newcomers_honest() -> None:
    bad = hostile("scaled", hostile=("client 4", "client 1"))
    moved = bad.for_federation(FEDERATION.select([4, 0, 3]))
    assert moved.hostile_names == ("client 4",)
    assert moved.honest.tolist() == [False, True, True]
    assert bad.hostile_names == ("client 1", "client 4")
    few = HostileClients(Clients(FEDERATION.select([4, 0]), dtype=torch.float64), "scaled", hostile=("client 4",))
    assert few.for_federation(FEDERATION).hostile_names == ("client 4",)
    assert few.for_federation(FEDERATION).honest.sum() == K - 1
    assert few.for_federation(FEDERATION).facts()["behaviour of the clients"] == few.facts()["behaviour of the clients"]


def test_colluders_hide_behind_the_honest_whose_networks_are_sound() -> None:
    """An honest client whose training broke does not break the others; and who is absent sends nothing."""
    inside = FaultyClients(plain(), Fault("inf update", 0, 0))
    bad = HostileClients(inside, "collude", hostile=("client 4", "client 5"), strength=1.5)
    start, plan = plain().init(0), Plan(absent=(5,))
    good, sent = plain().train(start, None, plan), bad.train(start, None, plan)
    for name, value in start.items():
        every = (good.params[name] - value)[[1, 2, 3]]
        torch.testing.assert_close(sent.params[name][4] - value[4], every.mean(0) - 1.5 * every.std(0, unbiased=False))
        assert torch.equal(sent.params[name][5], value[5])


def test_without_hostile_clients_nothing_changes() -> None:
    for attack in (*NETWORKS, "label-flip"):
        results = []
        for clients in (plain(), hostile(attack, share=0.0)):
            em = EM(load_model("fedavg", K, federation=FEDERATION), clients, SCHEDULE)
            results.append(em.step(em.init())[0].params)
        assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attack": "signflip"}, "unknown attack 'signflip'.*did you mean 'sign-flip'?"),
        (
            {"attack": "scaled", "share": 1.0},
            "share=1.0 of the clients is hostile, expected a number from 0 to below 1",
        ),
        ({"attack": "scaled", "share": 0.99}, "all clients are hostile, expected an honest one"),
        ({"attack": "scaled", "strength": math.nan}, "strength=nan, expected a finite number"),
        ({"attack": "scaled", "hostile": ("client 7",)}, "unknown client 'client 7'"),
    ],
)
def test_wrong_attacks_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        HostileClients(plain(), **options)


def test_a_run_goes_on_with_the_same_attack_only(tmp_path: Path) -> None:
    clients = Clients(load_federation("permuted:digits:clients=4,groups=2,train=10,order=listed"), executor="stacked")
    model, schedule = load_model("local", 4), Schedule(1, 1)
    EM(model, HostileClients(clients, "scaled", share=0.5), schedule).fit(1, run=tmp_path / "run", progress=False)
    for others in (clients, HostileClients(clients, "random", share=0.5)):
        with pytest.raises(InputError, match="behaviour of the clients"):
            EM(model, others, schedule).fit(2, run=tmp_path / "run", resume=True, progress=False)
    again = EM(model, HostileClients(clients, "scaled", share=0.5), schedule)
    assert len(again.fit(2, run=tmp_path / "run", resume=True, progress=False).history) == 2


def test_hostile_clients_keep_the_executor_that_was_chosen() -> None:
    """A run that used the loop goes on in the loop: who trains are the clients inside."""
    inside = Clients(FEDERATION, executor="auto", dtype=torch.float64)
    bad = HostileClients(inside, "sign-flip", share=0.34)
    bad.use_executor("loop")
    assert (bad.executor_name, inside.executor_name) == ("loop", "loop")
    plain_loop = HostileClients(Clients(FEDERATION, executor="loop", dtype=torch.float64), "sign-flip", share=0.34)
    start = inside.init(0)
    one, other = (each.train(start, None, Plan(epochs=1)) for each in (bad, plain_loop))
    assert bad.executor_name == "loop"
    assert all(torch.equal(one.params[name], other.params[name]) for name in start)

"""What the default promises: it finds groups that overlap, hears nobody who harms, and falls back on local training."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from scool_ppl import EM, Clients, Federation, Schedule, load_federation, load_model
from scool_ppl.deploy import gains
from scool_ppl.em import EMState
from scool_ppl.train import AnyClients, HostileClients, Plan, Trained
from scool_ppl.zoo import DEFAULT_MODEL, model_path
from tests.helpers.states import same

SCHEDULE = Schedule(local_epochs=5, warmup_epochs=40)


def ran(clients: AnyClients, rounds: int, model: str | Path = DEFAULT_MODEL) -> tuple[EM, EMState]:
    federation = clients.federation
    em = EM(load_model(model, clients.num_clients, federation=federation), clients, SCHEDULE, seed=0)
    state = em.init()
    for _ in range(rounds):
        state, _ = em.step(state)
    return em, state


def dealt(spec: str, seed: int = 0) -> Federation:
    return load_federation(f"permuted:digits:{spec}", seed=seed)


def test_groups_that_differ_in_four_labels_are_found_at_the_first_look() -> None:
    em, state = ran(Clients(dealt("clients=12,groups=3,train=50,flip=4"), executor="stacked"), 1)
    assert em.graph(state).score(em.clients.federation.truth).l1 == 0


def test_where_all_differ_nobody_is_heard_and_nobody_harmed() -> None:
    em, state = ran(Clients(dealt("clients=8,groups=8,train=50"), executor="stacked"), 2)
    assert not bool(em.graph(state).dense().any())
    over = gains(em.clients, em.deploy(state).ensemble, state.beside["local"].params)
    assert over.harmed() == 0


class Late(HostileClients):
    """They attack from a round on."""

    begins = 2

    def train(self, params: dict[str, torch.Tensor], optimizer_state: object, plan: Plan) -> Trained:
        trainer = super() if plan.round >= self.begins else self.clients
        return trainer.train(params, optimizer_state, plan)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "attack"), [(HostileClients, "random"), (Late, "scaled")])
def test_whoever_harms_its_block_is_not_heard(kind: type[HostileClients], attack: str) -> None:
    inside = Clients(dealt("clients=10,groups=1,train=50"), executor="stacked")
    clients = kind(inside, attack, share=0.4, seed=0)  # type: ignore[arg-type]
    em, state = ran(clients, 5)
    graph = em.graph(state).dense()[clients.honest]
    assert not bool(graph[:, ~clients.honest].any())
    assert float(graph[:, clients.honest].sum(1).min()) >= 4, "the honest hear each other"


@pytest.mark.parametrize("name", ["hedge", "blocks"])
def test_its_pieces_run_as_a_users_own_file(name: str, tmp_path: Path) -> None:
    mine = shutil.copy(model_path(name), tmp_path / "mine.py")
    clients = Clients(dealt("clients=4,groups=2,train=20,test=20"), executor="stacked")
    same(ran(clients, 2, mine)[1], ran(clients, 2, name)[1])

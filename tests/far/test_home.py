"""What is private stays at home, what is frozen never travels, and rounds come to what they come to in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scool_ppl import EM, InputError, load_model
from scool_ppl.deploy.blueprint import Blueprint, client_network
from scool_ppl.em.model import CooperationModel
from scool_ppl.far import Host, LocalFabric, RemoteClients
from scool_ppl.far.home import SEAL, Home
from scool_ppl.infer.priors import Dirac
from scool_ppl.look.likelihoods import Ignored
from scool_ppl.mix import Pull
from scool_ppl.train import Clients, Plan, Shares
from tests.helpers import small

HEAD = ("3.weight", "3.bias")


def here(**options: object) -> Clients:
    momentum = small.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    return small.clients(optimizer=momentum, **{"private": ("3.*",), "frozen": ("1.bias",), **options})


def there(clients: Clients, parts: tuple[tuple[int, ...], ...] = ((0, 2), (1, 3)), **options: object) -> RemoteClients:
    hosts = [Host(clients.for_federation(clients.federation.select(part)), **options) for part in parts]
    return RemoteClients(LocalFabric(*hosts), federation=clients.federation)


def pulled(clients: Clients) -> CooperationModel:
    return CooperationModel(Dirac(small.uniform(4, 4).fill_diagonal_(0)), Ignored(), Pull(strength=0.3))


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("model", ["scool_sbm", "cobo", "fedfomo", "l2c", "hedge", "ifca", "pull"])
def test_rounds_come_to_the_same_wherever_private_parts_are(model: str, keeps: bool) -> None:
    ends = []
    for clients in (here(), there(here(), keeps=keeps)):
        built = pulled(here()) if model == "pull" else load_model(model, 4, federation=here().federation)
        em = EM(small.brief(built), clients, small.Schedule(local_steps=2), seed=3)
        state = em.init()
        for _ in range(3):
            state, info = em.step(state)
        ends.append((state, info, em.evaluate(state), em.deploy(state).evaluate(em.clients)))
    (near, one, seen, shipped), (far, two, told, sent) = ends
    small.close(far.params["1.weight"], near.params["1.weight"], 1e-12)
    small.close(far.moments["Y"], near.moments["Y"], 1e-10)
    small.close(told.loss, seen.loss, 1e-12)
    small.close(sent.loss, shipped.loss, 1e-10)
    assert two.bytes_received.equal(one.bytes_received)
    assert far.params.keys() == ({"1.weight", SEAL} if keeps else near.params.keys())
    if not keeps:
        for name in HEAD:
            small.close(far.params[name], near.params[name], 1e-12)


def test_no_request_and_no_answer_has_a_private_or_a_frozen_number() -> None:
    """Not even a buffer of its optimiser: beside what cooperates there is a seal of 32 bytes."""
    clients = there(here(hidden=5))
    em = EM(load_model("fedavg", 4), clients, small.ONE_STEP)
    state, _ = em.step(em.init())
    fabric = clients.fabric
    before = fabric.bytes
    em.clients.train(state.params, state.optimizer, Plan(steps=1))
    body, seal, loss, moved = 8 * 4 * 5, 32, 8, 1
    assert fabric.bytes - before == 4 * (2 * (2 * body + seal) + loss + moved)  # network and momentum, there and back
    assert set(state.optimizer) == {"momentum_buffer/1.weight"}
    assert state.params[SEAL].shape == (4, 4)


def test_a_host_that_begins_again_finds_what_it_kept(tmp_path: Path) -> None:
    def driver() -> EM:
        clients = here()
        hosts = [Host(clients.for_federation(clients.federation.select([i])), home=tmp_path / str(i)) for i in range(4)]
        return EM(load_model("fedavg", 4), RemoteClients(LocalFabric(*hosts)), small.ONE_STEP)

    whole = driver().fit(4, progress=False)
    driver().fit(2, run=tmp_path / "run", progress=False)
    again = driver().fit(4, run=tmp_path / "run", resume=True, progress=False)
    assert again.state.params[SEAL].equal(whole.state.params[SEAL])
    assert again.evaluation.loss.equal(whole.evaluation.loss)


def test_what_was_not_kept_is_one_line() -> None:
    home = Home(most=1)
    seal = home.keep("a", {"v": torch.ones(2)})
    assert home.find("a", seal)["v"].equal(torch.ones(2))
    assert home.keep("a", {"v": torch.ones(2)}).equal(seal)
    home.keep("b", {"v": torch.zeros(2)})
    assert home.find("a", seal)["v"].equal(torch.ones(2)), "what others keep takes nobody's place"
    home.keep("a", {"v": torch.zeros(2)})
    with pytest.raises(
        InputError, match=r"^no private part [0-9a-f]{12} is kept here, expected one of an earlier round"
    ):
        home.find("a", seal)


def test_learning_from_others_images_is_refused_where_a_private_part_would_have_to_travel() -> None:
    clients = there(here())
    with pytest.raises(InputError, match=r"cannot with private parts; declare nothing private"):
        clients.train(clients.init(0), None, Plan(steps=1, shares=Shares(torch.zeros(4, 4), torch.ones(4))))


def test_networks_whose_private_parts_are_elsewhere_are_not_delivered() -> None:
    clients = there(here())
    em = EM(load_model("fedavg", 4), clients, small.ONE_STEP)
    deployment = em.deploy(em.step(em.init())[0])
    with pytest.raises(InputError, match="stayed at the clients' hosts"):
        client_network(deployment, Blueprint.of(clients), "client 1", network=small.partial(small.MLP, 4, 3, (3,)))


def test_what_is_frozen_is_delivered_where_the_network_is_known() -> None:
    network = small.partial(small.MLP, 4, 3, (3,))
    near = here(private=())
    hosts = [Host(near.for_federation(near.federation.select([i]))) for i in range(4)]
    em = EM(load_model("fedavg", 4), RemoteClients(LocalFabric(*hosts), network=network), small.ONE_STEP)
    deployment = em.deploy(em.step(em.init())[0])
    whole = client_network(deployment, Blueprint.of(em.clients), "client 1", network=network)
    assert dict(whole.named_parameters())["candidates.0.1.bias"].equal(near.frozen["1.bias"])

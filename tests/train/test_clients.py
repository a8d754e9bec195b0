"""Clients: what goes in and comes out, against plain PyTorch loops."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.batches import shuffled
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Plan
from scool_ppl.train.networks import MLP
from scool_ppl.train.questions import Params
from tests.helpers.tasks import federation as federation_of
from tests.helpers.unequal import SGD, SIZES, assert_same, clients, distinct, federation, module_of, own


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_training_equals_a_loop_in_plain_pytorch(executor: str) -> None:
    data = federation()
    network = clients(data, executor)
    params = network.init(0)
    trained = network.train(params, None, Plan(epochs=3, seed=1, round=2))
    plan = shuffled(data, 4, epochs=3, steps=None, seed=1, round=2)
    for client, size in enumerate(SIZES):
        module = module_of(params, client)
        optimizer = SGD(module.parameters())
        losses = []
        for index, weight in zip(plan.index[client], plan.weight[client], strict=True):
            if weight.sum() == 0:
                continue
            x, y = own(data, client, index[weight > 0])
            optimizer.zero_grad()
            loss = F.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()
            losses.append((loss.item(), len(x)))
        for name, leaf in module.named_parameters():
            torch.testing.assert_close(trained.params[name][client], leaf.detach(), rtol=0, atol=1e-10)
            buffer = trained.optimizer_state[f"momentum_buffer/{name}"][client]
            torch.testing.assert_close(buffer, optimizer.state[leaf]["momentum_buffer"], rtol=0, atol=1e-10)
        last = losses[-math.ceil(size / 4) :]
        assert sum(n for _, n in last) == size
        assert trained.loss[client].item() == pytest.approx(sum(loss * n for loss, n in last) / size, abs=1e-10)


def test_training_leaves_what_it_was_given_and_the_callers_settings_alone() -> None:
    data = federation()
    for executor in ("stacked", "loop"):
        network = clients(data, executor, network=lambda: nn.Sequential(MLP(5, 3), nn.Dropout(0.5)))
        params = network.init(0)
        first = network.train(params, None, Plan(epochs=1, seed=0, round=0))
        copies = [{name: value.clone() for name, value in given.items()} for given in (params, first.optimizer_state)]
        before = torch.get_rng_state()
        with torch.no_grad():
            network.init(1)
            network.train(params, first.optimizer_state, Plan(epochs=1, seed=0, round=1))
            network.evaluate(params)
            network.pair_loss(params, Peers.everybody(4), network.probe(0, 0))
            assert not torch.is_grad_enabled()
        assert torch.get_rng_state().equal(before)
        assert_same(params, copies[0])
        assert_same(first.optimizer_state, copies[1])


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_the_same_seed_repeats_bit_for_bit_and_another_differs(executor: str) -> None:
    data = federation()

    def run(seed: int, round: int = 0) -> Params:
        network = clients(data, executor, dtype=torch.float32)
        return network.train(network.init(0), None, Plan(epochs=2, seed=seed, round=round)).params

    assert_same(run(0), run(0))
    assert not run(0)["1.weight"].equal(run(1)["1.weight"])
    assert not run(0)["1.weight"].equal(run(0, round=1)["1.weight"])


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_permuting_clients_permutes_everything(executor: str) -> None:
    data, order = federation(), [2, 0, 3, 1]
    here, there = clients(data, executor, common_start=False), clients(data.select(order), executor, common_start=False)
    start = here.init(0)
    assert_same(there.init(0), {name: value[order] for name, value in start.items()})
    a = here.train(start, None, Plan(epochs=2, seed=0, round=0))
    b = there.train(there.init(0), None, Plan(epochs=2, seed=0, round=0))
    assert_same(b.params, {name: value[order] for name, value in a.params.items()}, 1e-12)
    torch.testing.assert_close(b.loss, a.loss[order], rtol=0, atol=1e-12)
    torch.testing.assert_close(there.evaluate(b.params).loss, here.evaluate(a.params).loss[order], rtol=0, atol=1e-12)
    assert there.probe(0, 0).index.sort(1).values[0].unique().equal(here.probe(0, 0).index[2].unique())


def test_starts_are_common_or_keyed_by_name() -> None:
    data = federation()
    common, separate = clients(data).init(0), clients(data, common_start=False).init(0)
    assert common["1.weight"].eq(common["1.weight"][:1]).all()
    assert len(separate["1.weight"].flatten(1).unique(dim=0)) == 4
    assert not clients(data).init(1)["1.weight"].equal(common["1.weight"])


@pytest.mark.parametrize("executor", ["stacked", "loop"])
def test_evaluation_equals_a_plain_computation(executor: str) -> None:
    data = federation(empty_test=2)
    network = clients(data, executor)
    params = distinct(network)
    result = network.evaluate(params)
    mask = data.class_mask()
    assert not mask.all()
    for client, index in enumerate(data.test):
        if client == 2:
            continue
        x, y = own(data, client, index)
        outputs = module_of(params, client)(x)
        expected = (outputs.argmax(1) == y).double().mean()
        allowed = torch.where(mask[client], outputs, -1e9)
        torch.testing.assert_close(result.score[client].double(), expected)
        torch.testing.assert_close(result.task_score[client].double(), (allowed.argmax(1) == y).double().mean())
        torch.testing.assert_close(result.loss[client], F.cross_entropy(outputs, y).detach())
    assert all(field[2].isnan() and field[[0, 1, 3]].isfinite().all() for field in result)
    assert network.evaluate(params, "validation").score.isnan().all()


@pytest.mark.parametrize("at_once", [2**25, 1000])
def test_predictions_are_the_outputs_on_a_clients_own_rows(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.train.forward._ELEMENTS_IN_CACHE", at_once)
    data = federation()
    network = clients(data)
    params = distinct(network)
    found, mask = network.predict(params, "train")
    assert mask.sum(1).tolist() == list(SIZES)
    assert not found.requires_grad
    for client, index in enumerate(data.train):
        outputs = module_of(params, client)(own(data, client, index)[0])
        torch.testing.assert_close(found[client][mask[client]], outputs.detach(), rtol=0, atol=1e-12)
    # With all weight on somebody else it is that client's network that predicts.
    weights = torch.eye(4).roll(1, dims=1)
    mixed, _ = network.predict(params, "train", (weights, Peers.everybody(4)))
    for client, index in enumerate(data.train):
        outputs = module_of(params, (client + 1) % 4)(own(data, client, index)[0])
        torch.testing.assert_close(mixed[client][mask[client]], outputs.log_softmax(-1).detach(), rtol=0, atol=1e-12)


def test_clients_of_another_federation_have_its_data_and_the_same_networks() -> None:
    data = federation()
    here = clients(data)
    there = here.for_federation(data.select([3, 1]))
    params = distinct(here)
    theirs = {name: value[[3, 1]] for name, value in params.items()}
    torch.testing.assert_close(there.evaluate(theirs).loss, here.evaluate(params).loss[[3, 1]], rtol=0, atol=1e-12)
    assert here.num_clients == 4
    with pytest.raises(InputError, match=r"data are regression of 3 outputs.*make new Clients"):
        here.for_federation(federation_of("vectors"))


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"batch_size": 5}, "batch size"),
        ({"probe_size": 7}, "probe size"),
        ({"optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.02)}, "optimizer"),
        ({"network": lambda: MLP(5, 3, (63,))}, "network"),
        ({"dtype": torch.float32}, "network"),
    ],
)
def test_facts_tell_other_clients_by_what_is_different(options: dict[str, Any], fact: str) -> None:
    facts, others = clients(federation()).facts(), clients(federation(), **options).facts()
    assert facts == clients(federation()).facts()
    assert {name for name in facts if facts[name] != others[name]} == {fact}
    fewer = clients(federation().select([0, 1, 2])).facts()
    assert {name for name in facts if facts[name] != fewer[name]} == {"number of clients", "client", "data"}


@pytest.mark.parametrize("executor", ["stacked", "loop", "auto"])
def test_one_client_works(executor: str) -> None:
    network = clients(federation((9,)), executor)
    trained = network.train(network.init(0), None, Plan(epochs=2, seed=0, round=0))
    assert trained.loss.shape == (1,)
    assert network.evaluate(trained.params).score.isfinite().all()
    losses = network.pair_loss(trained.params, Peers.everybody(1), network.probe(0, 0))
    assert losses.tolist() == [[0.0]]


def test_no_epochs_change_nothing() -> None:
    for executor in ("stacked", "loop"):
        network = clients(federation(), executor)
        trained = network.train(network.init(0), None, Plan(epochs=0, seed=0, round=0))
        assert_same(trained.params, network.init(0))
        assert trained.optimizer_state == {}
        assert trained.loss.isnan().all()


def test_the_size_of_a_network() -> None:
    network = clients(federation(), dtype=torch.float32)
    assert network.bytes_per_model == 4 * (5 * 64 + 64 + 64 * 3 + 3)


def test_bad_input_is_explained() -> None:
    data = federation()
    with pytest.raises(InputError, match="did you mean 'stacked'"):
        clients(data, "stack")
    with pytest.raises(InputError, match="batch_size=0"):
        clients(data, batch_size=0)
    with pytest.raises(InputError, match="device 'moon' cannot be used"):
        clients(data, device="moon")
    with pytest.raises(InputError, match="expected one of floating-point numbers"):
        clients(data, dtype=torch.int64)
    with pytest.raises(InputError, match="expected a function that makes one"):
        clients(data, optimizer=SGD([torch.zeros(1, requires_grad=True)]))
    network = clients(data)
    with pytest.raises(InputError, match="did you mean 'validation'"):
        network.evaluate(network.init(0), "valid")
    with pytest.raises(InputError, match=r"'1.bias' has shape \(2, 64\), expected \(4, 64\)"):
        network.evaluate({name: value[:2] for name, value in network.init(0).items()})
    with pytest.raises(InputError, match="epochs=-1"):
        network.train(network.init(0), None, Plan(epochs=-1, seed=0, round=0))
    with pytest.raises(InputError, match="did you mean 'sender'"):
        network.pair_loss(network.init(0), Peers.everybody(4), network.probe(0, 0), whose="send")  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_what_the_processor_gives() -> None:
    """The default model, two rounds, float64: the same graph and networks wherever they are computed."""
    from scool_ppl import EM, Schedule, load_federation, load_model

    federation = load_federation("permuted:digits:clients=4,groups=2,train=20,test=20,order=listed")
    results = []
    for device in ("cpu", "cuda"):
        clients = Clients(federation, device=device, dtype=torch.float64, executor="stacked")
        em = EM(load_model("scool_sbm", 4), clients, Schedule(local_epochs=1, warmup_epochs=3))
        results.append(em.fit(2, progress=False))
    cpu, gpu = results
    assert torch.allclose(cpu.graph.weights, gpu.graph.weights, atol=1e-8)
    assert all(
        torch.allclose(value, gpu.state.params[name].cpu(), atol=1e-8) for name, value in cpu.state.params.items()
    )


def test_the_task_is_that_of_the_federation_they_are_moved_to() -> None:
    """A variance that is found later, by all clients together, is what scores are shares of."""
    plain = federation_of("sine")
    here = Clients(plain, executor="stacked")
    params, wider = here.init(0), replace(plain, task=replace(plain.task, variance=7.0, sigma=2.0))
    there = here.for_federation(wider)
    expected = Clients(wider, executor="stacked")
    assert torch.equal(there.evaluate(params).score, expected.evaluate(params).score)
    assert torch.equal(there.train(params, None, Plan()).loss, expected.train(params, None, Plan()).loss)
    assert not torch.equal(here.evaluate(params).score, expected.evaluate(params).score)


def test_networks_of_guests_may_stand_behind_those_of_the_clients() -> None:
    """What a mixture is made of may come from elsewhere: (K + G, ...) networks, of which the first K are the clients'."""
    all_four, first = clients(federation()), clients(federation().select([0, 1]))
    networks = {
        name: value + 0.1 * torch.arange(4.0).view(-1, *[1] * (value.dim() - 1))
        for name, value in all_four.init(0).items()
    }
    weights = torch.tensor([[0.3, 0.7], [0.4, 0.6], [1.0, 0.0], [1.0, 0.0]])
    peers = Peers(torch.ones(4, 2, dtype=torch.bool), torch.tensor([[0, 3], [2, 1], [0, 1], [0, 1]]))
    whole = all_four.evaluate(networks, mixture=(weights, peers))
    found = first.evaluate(networks, mixture=(weights[:2], Peers(peers.mask[:2], peers.columns()[:2])))
    for mine, theirs in zip(found, whole, strict=True):
        torch.testing.assert_close(mine, theirs[:2])
    with pytest.raises(InputError, match=r"expected \(2,"):
        first.train(networks, None, Plan())


def test_a_step_by_gradients_that_others_have_found_is_a_step() -> None:
    mine = clients(federation())
    params = {name: value[0] for name, value in mine.init(0).items()}
    gradients = {name: torch.randn(value.shape, dtype=value.dtype) for name, value in params.items()}
    state: Params = {}
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    optimizer = mine.optimizer(list(leaves.values()))
    for _ in range(3):
        params, state = mine.stepped(params, state, gradients)
        for name, leaf in leaves.items():
            leaf.grad = gradients[name]
        optimizer.step()
    assert_same(params, {name: leaf.detach() for name, leaf in leaves.items()}, 1e-15)
    assert set(state) == {f"momentum_buffer/{name}" for name in params}

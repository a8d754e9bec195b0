"""Clients train and are asked on every task as plain PyTorch would do it, with either executor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Normal

from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.tasks.regression import Regression
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Plan
from scool_ppl.train.networks import network_for
from tests.helpers.tasks import clients, federation, shifted


@pytest.mark.parametrize("name", ["sine", "vectors", "text"])
def test_executors_agree(name: str) -> None:
    data = federation(name)
    rate = partial(torch.optim.SGD, lr=0.02, momentum=0.5)
    stacked, loop = (clients(data, executor, optimizer=rate) for executor in ("stacked", "loop"))
    start = shifted(stacked.init(0))
    results = [whose.train(start, None, Plan(epochs=3, seed=0, round=0)) for whose in (stacked, loop)]
    for key in start:
        assert not torch.allclose(results[0].params[key], start[key])
        torch.testing.assert_close(results[0].params[key], results[1].params[key], rtol=0, atol=1e-11)
    torch.testing.assert_close(results[0].loss, results[1].loss, rtol=0, atol=1e-11)
    assert results[0].loss.dtype == torch.float64
    params, probe, peers = results[0].params, stacked.probe(0, 0), Peers.everybody(4, True)
    table = Peers(torch.ones(4, 2, dtype=torch.bool), torch.tensor([[1, 2], [0, 3], [3, 0], [2, 1]]))
    losses = [[whose.pair_loss(params, who, probe) for who in (peers, table)] for whose in (stacked, loop)]
    for one, other in zip(*losses, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
    torch.testing.assert_close(losses[0][1], losses[0][0].gather(1, table.columns()), rtol=0, atol=1e-11)
    for one, other in zip(stacked.evaluate(params), loop.evaluate(params), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["sine", "vectors", "text"])
def test_training_and_evaluation_equal_plain_pytorch(name: str) -> None:
    data = federation(name)
    whose = clients(data, optimizer=lambda leaves: torch.optim.SGD(leaves, lr=0.1), batch_size=100)
    start = shifted(whose.init(0))
    trained, found = whose.train(start, None, Plan(epochs=2, seed=0, round=0)).params, whose.evaluate(start)
    loss = whose.pair_loss(start, Peers.everybody(4, True), whose.probe(0, 0))

    def outputs(client: int, inputs: Tensor) -> Tensor:
        module = whose.network().double()
        module.load_state_dict({key: value[client] for key, value in start.items()})
        return module(inputs if name == "text" else inputs.double())

    def mean_loss(predicted: Tensor, targets: Tensor) -> Tensor:
        if name == "text":
            return F.cross_entropy(predicted.flatten(0, 1), targets.flatten())
        sigma = {"sine": 0.6, "vectors": 0.7}[name]
        return -Normal(targets.double().view(predicted.shape), sigma).log_prob(predicted).sum(-1).mean()

    for i in range(4):
        rows, test = data.train[i], data.test[i]
        predicted = outputs(i, data.inputs[test]).detach()
        assert float(found.loss[i]) == pytest.approx(float(mean_loss(predicted, data.targets[test])))
        if name == "text":
            score = float((predicted.argmax(-1) == data.targets[test]).double().mean())
        else:
            known = data.targets[torch.cat(data.train)].double().view(-1, predicted.shape[-1])
            variance = known.var(0, unbiased=False).sum()
            error = (predicted - data.targets[test].double().view(predicted.shape)).square().sum(-1).mean()
            score = float(1 - error / variance)
        assert float(found.score[i]) == pytest.approx(score)
        assert float(found.task_score[i]) == pytest.approx(score)
        for j in range(4):
            expected = mean_loss(outputs(i, data.inputs[data.train[j]]), data.targets[data.train[j]])
            assert float(loss[i, j]) == pytest.approx(float(expected.detach()))
        module = whose.network().double()
        module.load_state_dict({key: value[i] for key, value in start.items()})
        for _ in range(2):
            inputs = data.inputs[rows] if name == "text" else data.inputs[rows].double()
            gradients = torch.autograd.grad(mean_loss(module(inputs), data.targets[rows]), list(module.parameters()))
            with torch.no_grad():
                for leaf, gradient in zip(module.parameters(), gradients, strict=True):
                    leaf -= 0.1 * gradient
        for key, leaf in module.named_parameters():
            torch.testing.assert_close(trained[key][i], leaf.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("executor", ["stacked", "loop"])
@pytest.mark.parametrize("name", ["sine", "vectors", "text"])
def test_mixtures_average_means_or_probabilities(name: str, executor: str) -> None:
    data = federation(name)
    whose = clients(data, executor)
    params = shifted(whose.init(0))
    weights = torch.tensor([[0.0, 3.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]])
    found = whose.evaluate(params, mixture=(weights, Peers.everybody(4, True)))
    share = torch.tensor([[0.0, 0.75, 0.25, 0.0], [0.25] * 4, [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]).double()
    for i in range(4):
        inputs, targets = data.inputs[data.test[i]], data.targets[data.test[i]]
        each = []
        for j in range(4):
            module = whose.network().double()
            module.load_state_dict({key: value[j] for key, value in params.items()})
            outputs = module(inputs if name == "text" else inputs.double())
            each.append(outputs.softmax(-1) if name == "text" else outputs)
        mixed = torch.einsum("j,j...->...", share[i], torch.stack(each))
        expected = data.task.losses(mixed.log() if name == "text" else mixed, targets)
        torch.testing.assert_close(found.loss[i], expected.mean(), rtol=0, atol=1e-8)


def test_tokens_stay_whole_numbers_whatever_the_networks_are() -> None:
    whose = clients(federation("text"))
    assert whose.inputs.dtype == torch.long
    assert {value.dtype for value in whose.init(0).values()} == {torch.float64}
    assert {value.dtype for value in Clients(federation("text")).init(0).values()} == {torch.float32}


def test_a_network_with_other_outputs_than_the_tasks_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(2, 2\) for 2 samples, expected \(2, 1\)"):
        Clients(federation("sine"), network_for((1,), 2))


@dataclass(frozen=True)
class Laplace(Regression):
    """Numbers with heavier tails: -log p = |y - h(x)| / scale + log(2 scale)."""

    name: ClassVar[str] = "laplace"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs - targets.reshape(outputs.shape)).abs() / self.sigma + math.log(2 * self.sigma)).sum(-1)


def test_a_task_of_ones_own_is_trained_with_its_own_loss(tmp_path: Path) -> None:
    data = federation("vectors")
    mine = Federation(**{**vars(data), "task": Laplace(0.7, 3)})
    whose = clients(mine)
    assert whose.train(whose.init(0), None, Plan(epochs=1, seed=0, round=0)).loss.isfinite().all()
    params, rows = whose.init(0), mine.test[0]
    module = whose.network().double()
    module.load_state_dict({key: value[0] for key, value in params.items()})
    expected = -torch.distributions.Laplace(module(data.inputs[rows].double()), 0.7).log_prob(
        data.targets[rows].double()
    )
    assert float(whose.evaluate(params).loss[0]) == pytest.approx(float(expected.sum(-1).mean().detach()))
    with pytest.raises(InputError, match="task 'laplace' has no text"):
        mine.save_npz(tmp_path / "mine.npz")

"""Tasks: losses against torch.distributions, mixtures against sums, and every method on regression and on text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal

from scool_ppl.data.federation import Federation
from scool_ppl.data.generated import sine, text
from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.evidence import Evidence
from scool_ppl.look.likelihoods import CrossLoss
from scool_ppl.look.peers import All
from scool_ppl.plots.comparison import draw_comparison
from scool_ppl.plots.history import draw_history
from scool_ppl.runs.rows import spread
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import Classification, NextToken
from scool_ppl.tasks.regression import Regression
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Params, Plan
from scool_ppl.train.networks import Chars, network_for
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import comparison, comparison_table, fit_table, markdown
from scool_ppl.workbench.workbench import Workbench
from scool_ppl.zoo.load import load_model, model_names


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def integers(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def federation(name: str, **options: Any) -> Federation:
    """A small one of each kind; regression also with targets of several dimensions."""
    random = torch.Generator().manual_seed(1)
    if name == "text":
        return text(random, **{"clients": 4, "groups": 2, "train": 6, "test": 5, "length": 7, **options})
    if name == "sine":
        return sine(random, **{"clients": 4, "train": 10, "test": 6, **options})
    rows = 40
    targets = {"vectors": normal(rows, 3, seed=2), "classes": integers(3, rows, seed=2)}[name]
    task = {"vectors": "regression:sigma=0.7", "classes": "classification"}[name]
    return Federation.from_arrays(normal(rows, 5), targets, torch.arange(rows) % 4, task=task)


def clients(data: Federation, executor: str = "stacked", **options: Any) -> Clients:
    return Clients(
        data, executor=executor, **{"dtype": torch.float64, "batch_size": 4, "common_start": False, **options}
    )


def shifted(params: Params) -> Params:
    """Networks of which no two are alike."""
    return {name: value + 0.3 * normal(*value.shape, seed=len(name)) for name, value in params.items()}


# The numbers of a task


@pytest.mark.parametrize(
    ("task", "targets", "shape"),
    [
        (Classification(4), integers(4, 3, 5), (3, 5, 4)),
        (Regression(0.7), normal(3, 5, seed=1), (3, 5, 1)),
        (Regression(0.7), normal(3, 5, 1, seed=1), (3, 5, 1)),
        (Regression(2.0, dimensions=2), normal(3, 5, 2, seed=1), (3, 5, 2)),
        (NextToken(4), integers(4, 3, 5, 6), (3, 5, 6, 4)),
    ],
)
def test_losses_are_negative_log_probabilities(task: Task, targets: Tensor, shape: tuple[int, ...]) -> None:
    outputs = normal(*shape)
    if isinstance(task, Regression):
        expected = -Independent(Normal(outputs, task.sigma), 1).log_prob(targets.view(outputs.shape))
    else:
        expected = -Categorical(logits=outputs).log_prob(targets)
    expected = expected.mean(-1) if isinstance(task, NextToken) else expected
    torch.testing.assert_close(task.losses(outputs, targets), expected)
    assert task.losses(outputs, targets).shape == (3, 5)


def test_scores_of_each_task() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]])
    assert Classification(3).scores(logits, torch.tensor([0, 1])).tolist() == [True, False]
    assert NextToken(3).scores(logits[None], torch.tensor([[0, 1]])).tolist() == [0.5]
    regression = Regression(variance=4.0)
    found = regression.scores(torch.tensor([[1.0], [3.0], [0.0]]), torch.tensor([1.0, 1.0, 4.0]))
    assert found.tolist() == [1.0, 0.0, -3.0]


@pytest.mark.parametrize("name", ["sine", "vectors"])
def test_chance_of_regression_is_the_best_constant_on_all_training_targets(name: str) -> None:
    data = federation(name)
    task, targets = data.task, data.targets[torch.cat(data.train)].double()
    mean = targets.mean(0, keepdim=True).expand_as(targets).reshape(len(targets), task.width)
    assert task.chance == pytest.approx(float(task.losses(mean, targets).mean()), rel=1e-6)
    for worse in (mean + 0.01, mean - 0.01):
        assert float(task.losses(worse, targets).mean()) > task.chance
    # The score measures against the same constant.
    assert float(task.scores(mean, targets).mean()) == pytest.approx(0, abs=1e-6)


def test_chance_of_values_is_the_log_of_their_number() -> None:
    assert Classification(10).chance == pytest.approx(math.log(10))
    assert NextToken(17).chance == pytest.approx(math.log(17))


@pytest.mark.parametrize("name", ["sine", "vectors", "text", "classes"])
def test_marginal_is_the_best_constant_prediction_of_each_client(name: str) -> None:
    data = federation(name)
    task = data.task
    own = [data.labels(i, rows) for i, rows in enumerate(data.train)]
    found = task.marginal(own, torch.float64)
    for i, targets in enumerate(own):
        shape = (*targets.shape, task.width) if name in ("text", "classes") else (len(targets), task.width)
        constant = torch.zeros(task.width, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([constant], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

        def loss(constant: Tensor = constant, shape: Any = shape, targets: Tensor = targets) -> Tensor:
            return task.losses(
                constant.expand(shape), targets.double() if targets.is_floating_point() else targets
            ).mean()

        def closure(loss: Any = loss, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        optimizer.step(closure)
        assert float(found[i]) == pytest.approx(float(loss().detach()), abs=1e-5)


def test_evidence_takes_chance_and_marginal_from_the_task() -> None:
    data = federation("vectors")
    whose = clients(data)
    em = EM(load_model("scool_sbm", 4), whose, Schedule(local_steps=1))
    turn = em.round_start(em.init())
    evidence = Evidence(turn, em.init().params, All()(turn))
    assert float(evidence.chance) == pytest.approx(data.task.chance)
    own = torch.stack([data.targets[rows].double().var(0, unbiased=False).sum() for rows in data.train])
    torch.testing.assert_close(
        evidence.label_entropy, 3 * math.log(0.7 * math.sqrt(2 * math.pi)) + own / (2 * 0.7**2), rtol=1e-5, atol=0
    )


# Clients


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
        assert float(found.accuracy[i]) == pytest.approx(score)
        assert float(found.task_accuracy[i]) == pytest.approx(score)
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


def test_chars_never_look_ahead() -> None:
    module = Chars(9, context=3).double()
    tokens = integers(9, 2, 8)
    before = module(tokens)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 9
    after = module(changed)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert ((after - before)[:, 5:].abs().amax((0, 2)) > 0).tolist() == [True, True, True][: 8 - 5]
    assert before.shape == (2, 8, 9)


def test_networks_are_chosen_by_their_inputs_and_refuse_the_others() -> None:
    assert isinstance(network_for((7,), 9, tokens=True)(), Chars)
    assert [tuple(p.shape) for p in network_for((2, 3), 4, "linear")().parameters()] == [(4, 6), (4,)]
    with pytest.raises(InputError, match="'mlp' got tokens"):
        network_for((7,), 9, "mlp", tokens=True)
    with pytest.raises(InputError, match="'chars' got numbers"):
        network_for((7,), 9, "chars")
    with pytest.raises(InputError, match="at least 1 token"):
        network_for((7,), 9, tokens=True, context=0)()
    with pytest.raises(InputError, match=r"shape \(2, 2\) for 2 samples, expected \(2, 1\)"):
        Clients(federation("sine"), network_for((1,), 2))


# Whole fits


@pytest.mark.parametrize("reference", ["midpoint", "uniform", "marginal", "none"])
@pytest.mark.parametrize("name", ["sine", "text"])
def test_references_of_cross_loss(name: str, reference: Any) -> None:
    data = federation(name, **({"clients": 4, "train": 12} if name == "text" else {"clients": 6}))
    whose = Clients(data, executor="stacked")
    em = EM(load_model("scool_sbm", data.num_clients), whose, Schedule(warmup_epochs=40))
    state = em.init()
    turn = em.round_start(state)
    evidence = Evidence(turn, em.train(state, turn).trained.params, All()(turn))
    likelihood = CrossLoss(reference=reference)
    found, best = likelihood.reference_loss(evidence), likelihood._best(evidence)
    assert best < evidence.chance  # who trained on similar data knows something
    top = evidence.label_entropy if reference == "marginal" else evidence.chance.expand(data.num_clients)
    expected = {"none": torch.zeros_like(top), "uniform": top}.get(reference, (torch.minimum(best, top) + top) / 2)
    torch.testing.assert_close(found, expected)
    log_lik = likelihood(evidence)
    assert log_lik.isfinite().all()
    off = ~torch.eye(data.num_clients, dtype=torch.bool)
    if name == "text" and reference in ("midpoint", "uniform"):
        assert data.truth is not None
        # Whoever speaks the same language is better evidence than the best who does not.
        assert log_lik[off & (data.truth > 0)].min() > log_lik[off & (data.truth == 0)].max()


def test_text_the_graph_finds_the_languages_and_helps() -> None:
    data = text(torch.Generator().manual_seed(0), clients=8, groups=2)
    bench = Workbench(data, Settings(executor="stacked"), progress=False)
    local, everybody = (bench.fit(model).summary for model in ("local", "fedavg"))
    learned = {model: bench.fit(model).summary for model in ("scool_sbm", "federico")}
    for summary in learned.values():
        assert summary["accuracy"]["mean"] > local["accuracy"]["mean"] + 0.01
        assert summary["accuracy"]["mean"] > everybody["accuracy"]["mean"] + 0.1
        assert summary["graph"]["ari"] == 1
    assert learned["scool_sbm"]["graph"]["l1"] < 0.05


@pytest.mark.parametrize("network", ["linear", "auto"])
def test_sine_nobody_is_served_by_one_line_for_all(network: str) -> None:
    data = sine(torch.Generator().manual_seed(0))
    bench = Workbench(data, Settings(rounds=10, network=network, executor="stacked"), progress=False)
    found = {model: bench.fit(model).summary["accuracy"]["mean"] for model in ("local", "fedavg", "federico")}
    assert found["local"] > found["fedavg"] + 0.15
    assert found["federico"] > found["fedavg"] + 0.15


@pytest.mark.parametrize("name", ["sine", "text"])
@pytest.mark.parametrize("model", model_names())
def test_every_method_runs_on_every_task(name: str, model: str) -> None:
    data = federation(name)
    if data.groups is None:
        data = Federation(**{**vars(data), "groups": (0, 0, 1, 1)})
    em = EM(load_model(model, 4, federation=data), Clients(data, executor="stacked"), Schedule(local_steps=2))
    fit = em.fit(2, progress=False)
    assert fit.evaluation.loss.isfinite().all()
    assert all(value.isfinite().all() for value in fit.state.params.values())
    assert math.isfinite(fit.history[-1]["elbo"])


@pytest.mark.parametrize("name", ["sine", "text"])
@pytest.mark.parametrize("model", ["local", "scool_sbm", "federico"])
def test_one_client_alone(name: str, model: str) -> None:
    data = federation(name, clients=1, **({"groups": 1} if name == "text" else {}))
    fit = EM(load_model(model, 1), Clients(data), Schedule(local_epochs=1, warmup_epochs=2)).fit(2, progress=False)
    assert fit.evaluation.loss.shape == (1,)
    assert fit.evaluation.loss.isfinite().all()
    assert fit.graph.weights.shape[0] == 1


# Federations of a task


@pytest.mark.parametrize("name", ["sine", "vectors", "text", "classes"])
def test_npz_and_select_keep_the_task(name: str, tmp_path: Path) -> None:
    data = federation(name)
    data.save_npz(tmp_path / "mine.npz")
    with np.load(tmp_path / "mine.npz", allow_pickle=False) as arrays:
        assert arrays["task"].dtype.kind == "U"
    back = Federation.from_npz(tmp_path / "mine.npz")
    assert back.task == data.task
    assert (back.inputs.dtype, back.targets.dtype) == (data.inputs.dtype, data.targets.dtype)
    assert all(
        torch.equal(back.inputs[new], data.inputs[old]) and torch.equal(back.targets[new], data.targets[old])
        for part in ("train", "validation", "test")
        for new, old in zip(getattr(back, part), getattr(data, part), strict=True)
    )
    # The scale of the score stays that of the whole federation.
    assert data.select([2, 0]).task == data.task


def test_from_arrays_takes_the_task_as_text() -> None:
    x, owner = normal(6, 2), [0, 0, 0, 1, 1, 1]
    whole = {"validation": 0.0, "test": 0.0}
    regression = Federation.from_arrays(x, [0, 1, 2, 3, 4, 5], owner, task="regression:sigma=0.5", **whole)
    assert regression.targets.dtype == torch.float32
    assert regression.task == Regression(0.5, 1, 35 / 12)
    assert regression.num_classes == 0
    tokens = Federation.from_arrays(integers(4, 6, 3), integers(6, 6, 3), owner, task="next-token", **whole)
    assert tokens.task == NextToken(1 + max(int(tokens.inputs.max()), int(tokens.targets.max())))
    assert Federation.from_arrays(x, [0, 1] * 3, owner).task == Classification(2)
    assert Federation.from_arrays(x, [0, 1] * 3, owner, task=Classification(5)).num_classes == 5
    assert Federation.from_arrays(x, [0, 1] * 3, owner, task="classification:num_classes=4").task == Classification(4)


VECTORS = {"inputs": normal(6, 2), "targets": normal(6), "clients": [0, 0, 0, 1, 1, 1], "task": "regression"}
TOKENS = {**VECTORS, "inputs": integers(4, 6, 3), "targets": integers(4, 6, 3), "task": NextToken(4)}
BAD = torch.tensor([0.0, 1.0, torch.nan, 3.0, 4.0, 5.0])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({**VECTORS, "targets": BAD}, "target 2 holds NaN or infinity"),
        ({**VECTORS, "targets": torch.stack([BAD, -BAD], 1)}, "target 2 holds NaN or infinity"),
        ({**VECTORS, "targets": BAD.nan_to_num(torch.inf)}, "target 2 holds NaN or infinity"),
        ({**VECTORS, "inputs": torch.full((6, 2), torch.nan)}, "input 0 holds NaN"),
        ({**VECTORS, "targets": normal(5)}, r"of shape \(5,\), expected float32 \(6,\)"),
        ({**VECTORS, "task": Regression(dimensions=2)}, r"expected float32 \(6, 2\)"),
        ({**VECTORS, "targets": torch.ones(6)}, "training targets are all the same"),
        ({**VECTORS, "task": None}, "targets are torch.float64, expected whole numbers.*task='regression'"),
        ({**VECTORS, "task": "regresion"}, "did you mean 'regression'"),
        ({**VECTORS, "task": "regression:sigm=1"}, "did you mean 'sigma'"),
        ({**VECTORS, "task": "regression:sigma=0"}, "a positive sigma"),
        ({**VECTORS, "num_classes": 3}, "num_classes is 3, but the task 'regression' has 0"),
        ({**TOKENS, "task": NextToken(3)}, "run from 0 to 3, expected 0 to 2; renumber, or set vocabulary"),
        ({**TOKENS, "targets": integers(4, 6)}, r"targets are torch.int64 of shape \(6,\), expected int64 \(N, T\)"),
        ({**TOKENS, "targets": integers(4, 6, 2)}, r"shape \(6, 2\), expected int64 \(N, T\)"),
        ({**TOKENS, "inputs": normal(6, 3)}, "inputs are torch.float64, expected whole numbers"),
        ({**TOKENS, "inputs": -integers(4, 6, 3)}, "inputs run from -"),
    ],
)
def test_wrong_arrays_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Federation.from_arrays(**{"validation": 0.0, "test": 0.0, **values})
    assert "\n" not in str(caught.value)


def test_regression_has_no_classes_and_text_has_tokens() -> None:
    data = federation("sine")
    assert data.label_counts().shape == data.class_mask().shape == (4, 0)
    assert data.classes(0).tolist() == []
    with pytest.raises(InputError, match="regression has no classes to rename"):
        Federation(**{**vars(data), "relabel": torch.zeros(4, 1, dtype=torch.long)})
    written = federation("text")
    assert written.label_counts("test").sum(1).tolist() == [5 * 7] * 4
    assert set(written.targets[written.test[1]].unique().tolist()) <= set(written.classes(1).tolist())


# Tables and charts


def test_the_score_has_the_name_of_the_task() -> None:
    from rich.console import Console

    bench = Workbench(federation("sine"), Settings(rounds=1, warmup_epochs=1, executor="stacked"), progress=False)
    result = bench.fit("local")
    assert result.summary["score"] == "R2"
    rows = comparison([[result]])
    console = Console(width=120)
    with console.capture() as capture:
        console.print(fit_table(result), comparison_table(rows, 1))
    shown = capture.get()
    assert "R2" in shown
    assert "task R2" in shown
    assert "accuracy" not in shown
    assert markdown(rows, ["accuracy", "harmed"], 1).startswith("| model | R2 | harmed |")
    labels = [ax.get_ylabel() for ax in draw_history(result.fit.history).axes]
    assert labels[0] == "R2"
    figure = draw_comparison({"local": (result.fit.graph, result.fit.history)})
    assert "R2, mean over clients" in [ax.get_ylabel() for part in figure.subfigs for ax in part.axes]


def test_the_band_of_a_score_below_zero_is_drawn_around_its_mean() -> None:
    row = {"round": 1, "score": "R2", "accuracy": spread(torch.tensor([-3.0, -1.0]))}
    figure = draw_history([row, {**row, "round": 2}])
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (-3, -1)


# A task of one's own


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

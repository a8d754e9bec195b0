"""What clients ship: candidates by hand, what the rules are given, and what the ensembles then predict."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from scool_ppl import EM, Federation, InputError, Schedule, load_model
from scool_ppl.deploy import RULES, Rule, Single, Stack, candidates, deploy, single, stack, unseen_log_odds
from scool_ppl.deploy.deployment import SURE
from scool_ppl.em.state import EMState
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Plan
from scool_ppl.train.questions import Params, Predictor
from tests.helpers import tasks
from tests.helpers.refusals import refuses
from tests.helpers.small import (
    CLASSES,
    FEATURES,
    brief,
    clients,
    close,
    data,
    federation,
    networks,
    normal,
    one,
    outputs,
)
from tests.helpers.states import identical

K = 4
VALIDATION = (6, 9, 3, 0)
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.5)


def skewed() -> Federation:
    """Client i never trains on class i mod 3 and hardly meets it later; the last has no validation images."""
    targets, owner, split = [], [], []
    for i, held_out in enumerate(VALIDATION):
        known = [c for c in range(CLASSES) if c != i % CLASSES]
        for code, size in enumerate((8, held_out, 5)):
            targets += [known[n % 2] for n in range(size)]
            owner, split = owner + [i] * size, split + [code] * size
    unexpected = next(row for row, (i, code) in enumerate(zip(owner, split, strict=True)) if (i, code) == (1, 1))
    targets[unexpected] = 1
    return Federation.from_arrays(
        normal(len(owner), FEATURES), torch.tensor(targets), owner, split=split, num_classes=CLASSES
    )


@pytest.fixture(scope="module")
def whose() -> Clients:
    return clients().for_federation(skewed())


@pytest.fixture(scope="module")
def options(whose: Clients) -> dict[str, Predictor]:
    """Three stacks of networks, the second trained alone; some clients are best served by one, some by another."""
    made = {name: networks(whose, seed=seed, scale=1.5) for name, seed in (("first", 1), ("local", 2), ("last", 3))}
    return {name: Predictor(params) for name, params in made.items()}


def offsets_of(whose: Clients) -> Tensor:
    """The log-odds of unseen classes, from labels counted one by one."""
    counted = []
    for split in ("train", "validation"):
        labels = [data(whose, i, split)[1].tolist() for i in range(K)]
        counted.append(torch.tensor([[own.count(c) for c in range(CLASSES)] for own in labels]))
    return unseen_log_odds(*counted)


def by_hand(options: dict[str, Predictor], whose: Clients, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    """log p (K, C, n) of the validation labels from outputs that clients predict, and the mask (K, n)."""
    longest = max(len(rows) for rows in whose.federation.validation)
    log_p, mask = torch.zeros(K, len(options), longest).double(), torch.zeros(K, longest).bool()
    for c, (params, mixture) in enumerate(options.values()):
        found, _ = whose.predict(params, "validation", mixture)
        for i in range(K):
            for n, label in enumerate(data(whose, i, "validation")[1].tolist()):
                logits = found[i, n] if offsets is None else found[i, n] + offsets[i]
                log_p[i, c, n], mask[i, n] = logits[label] - logits.exp().sum().log(), True
    return log_p, mask


class Noted:
    """A rule that notes what it is given, and relies on all candidates alike."""

    unseen = True

    def __call__(self, log_p: Tensor, mask: Tensor, local: int) -> Tensor:
        self.log_p, self.mask, self.local = log_p.squeeze(3), mask, local
        return torch.full(log_p.shape[:2], 1 / log_p.shape[1], dtype=torch.float64)


# Candidates.


def ran(model: str, schedule: Schedule, rounds: int = 2) -> tuple[EM, EMState]:
    """An EM whose optimisers have buffers and whose batches are drawn anew in every round."""
    whose = clients(optimizer=MOMENTUM, batch_size=2)
    em = EM(brief(load_model(model, K, federation=whose.federation)), whose, schedule, seed=3)
    state = em.init()
    for _ in range(rounds):
        state, _ = em.step(state)
    return em, state


@pytest.mark.parametrize("schedule", [Schedule(2, 3), Schedule(local_steps=2)], ids=["epochs", "steps"])
def test_candidates_are_the_networks_and_those_after_one_more_round(schedule: Schedule) -> None:
    em, state = ran("ring", schedule)
    found = candidates(em, state, "ring")
    assert list(found) == ["ring", "ring, tuned"]
    assert found["ring"] == Predictor(state.params, None)
    plan = Plan(epochs=2 if schedule.local_steps is None else 5, steps=schedule.local_steps, seed=3, round=2)
    by_hand = em.clients.train(state.params, state.optimizer, plan).params
    assert identical(found["ring, tuned"].networks, by_hand)
    assert identical(by_hand, em.step(state)[1].trained), "the training of the next round"
    assert not identical(by_hand, state.params)
    assert found["ring, tuned"].mixture is None


def test_candidates_bear_the_name_that_they_are_given() -> None:
    assert list(candidates(*ran("ring", Schedule(local_steps=1), 1))) == ["mixed", "mixed, tuned"]


def test_training_alone_has_one_candidate() -> None:
    em, state = ran("local", Schedule(local_steps=1), 1)
    assert candidates(em, state, "local") == {"local": Predictor(state.params, None)}


def test_a_candidate_may_be_a_mixture_of_networks() -> None:
    em, state = ran("federico", Schedule(local_steps=1))
    mixed, tuned = candidates(em, state).values()
    assert mixed.mixture is not None
    weights, peers = mixed.mixture
    assert torch.equal(weights, state.moments["Y"])
    assert peers is state.peers
    assert tuned.mixture is None


# What the rules are given.


@pytest.mark.parametrize("order", [("first", "local", "last"), ("local", "last", "first"), ("last", "local")])
def test_a_rule_is_given_the_log_probabilities_of_held_out_labels(
    order: tuple[str, ...], whose: Clients, options: dict[str, Predictor]
) -> None:
    chosen = {name: options[name] for name in order}
    offsets, rule = offsets_of(whose), Noted()
    assert bool((offsets < -0.5).any())
    log_p, mask = by_hand(chosen, whose, offsets)
    found = deploy(chosen, whose, rule)
    assert torch.equal(rule.mask, mask)
    close(rule.log_p.where(rule.mask[:, None], 0), log_p)
    assert rule.local == order.index("local")
    assert found.candidates == order
    assert found.ensemble.predictors == tuple(chosen.values())
    assert found.ensemble.offsets is not None
    close(found.ensemble.offsets, offsets, 1e-6)
    assert found.chosen


def test_a_mixture_of_networks_is_asked_as_it_predicts(whose: Clients, options: dict[str, Predictor]) -> None:
    em, state = ran("federico", Schedule(local_steps=1))
    mixed = {"local": options["local"], "mixed": Predictor(networks(whose, 5), em.mixture(state))}
    rule = Noted()
    deploy(mixed, whose, rule)
    close(rule.log_p.where(rule.mask[:, None], 0), by_hand(mixed, whose, offsets_of(whose))[0])
    deploy({**mixed, "mixed": Predictor(networks(whose, 5))}, whose, alone := Noted())
    assert not torch.allclose(rule.log_p, alone.log_p)


@pytest.mark.parametrize("alpha", [5.0, 20.0])
@pytest.mark.parametrize("unseen", [True, False])
def test_stacked_weights_are_those_of_stack(
    alpha: float, unseen: bool, whose: Clients, options: dict[str, Predictor]
) -> None:
    found = deploy(options, whose, Stack(alpha, unseen))
    log_p, mask = by_hand(options, whose, offsets_of(whose) if unseen else None)
    close(found.weights, stack(log_p, mask, alpha).weights, 1e-6)
    close(found.weights.sum(1), torch.ones(K))
    assert (found.ensemble.offsets is None) == (not unseen)
    assert float(found.weights.std(0).max()) > 0.01, "the clients differ, so that another order would show"


@pytest.mark.parametrize("errors", [0.0, 0.5])
@pytest.mark.parametrize("unseen", [True, False])
def test_single_weights_are_one_for_the_one_that_is_taken(
    errors: float, unseen: bool, whose: Clients, options: dict[str, Predictor]
) -> None:
    found = deploy(options, whose, Single(errors, unseen))
    log_p, mask = by_hand(options, whose, offsets_of(whose) if unseen else None)
    chosen = single(log_p, mask, 1, errors).tolist()
    assert found.weights.tolist() == [[float(c == place) for c in range(3)] for place in chosen]
    assert set(chosen) == {1, 2}, "some take another than the local one"
    assert (found.ensemble.offsets is None) == (not unseen)


# What is then predicted.


@pytest.mark.parametrize("split", ["test", "train"])
def test_an_ensemble_predicts_with_weighted_probabilities(
    split: str, whose: Clients, options: dict[str, Predictor]
) -> None:
    found = deploy(options, whose, Stack())
    evaluation, offsets = found.evaluate(whose, split), offsets_of(whose)
    for i in range(K):
        x, y = data(whose, i, split)
        logits = [outputs(one(predictor.networks, i), x) + offsets[i] for predictor in options.values()]
        p = sum(w * h.exp() / h.exp().sum(1, keepdim=True) for w, h in zip(found.weights[i], logits, strict=True))
        close(evaluation.score[i], (p.argmax(1) == y).double().mean())
        close(evaluation.loss[i], -p[torch.arange(len(y)), y].log().mean(), 1e-6)


# What must not be able to break it.


def test_without_local_training_it_is_refused(whose: Clients, options: dict[str, Predictor]) -> None:
    without = {name: options[name] for name in ("first", "last")}
    refuses(lambda: deploy(without, whose, Stack()), "candidates are first, last, expected 'local' among them")


def broken(params: Params, value: float, who: slice = slice(None)) -> Predictor:
    """Networks of which some are not finite any more."""
    spoilt = {name: tensor.clone() for name, tensor in params.items()}
    spoilt["3.bias"][who] = value
    return Predictor(spoilt)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_candidate_that_diverged_is_hardly_relied_on(
    rule: Rule, value: float, whose: Clients, options: dict[str, Predictor]
) -> None:
    several = {**options, "broken": broken(networks(whose), value)}
    noted = Noted()
    deploy(several, whose, noted)
    assert bool((noted.log_p[:, 3][noted.mask] >= SURE).all())
    assert torch.equal(noted.mask.sum(1), torch.tensor(VALIDATION))
    with_it, without = deploy(several, whose, rule), deploy(options, whose, rule)
    assert float(with_it.weights[:, 3].max()) < 0.05
    close(with_it.weights[:, :3], without.weights, 0.1)


def test_no_candidate_is_surer_than_sure(whose: Clients, options: dict[str, Predictor]) -> None:
    """One that is certain and wrong is not the end of it."""
    certain = Predictor({name: 1e4 * value for name, value in networks(whose, 4).items()})
    deploy({"local": options["local"], "certain": certain}, whose, noted := Noted())
    found = noted.log_p[:, 1][noted.mask]
    assert set(found.tolist()) == {0.0, SURE}


@pytest.mark.parametrize("value", [torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("who", [slice(None), slice(0, 1)], ids=["all", "one"])
@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_candidate_that_diverged_breaks_no_prediction(
    rule: Rule, who: slice, value: float, whose: Clients, options: dict[str, Predictor]
) -> None:
    """Whatever is left of its weight, what the client predicts with is a number."""
    found = deploy({**options, "broken": broken(networks(whose, 4), value, who)}, whose, rule)
    predicted, _ = whose.predict(found.ensemble)
    assert bool(predicted.isfinite().all())
    assert bool(found.evaluate(whose).loss.isfinite().all())


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_where_nobody_has_validation_images_everybody_takes_the_local_network(rule: Rule) -> None:
    whose = clients().for_federation(federation(K, [(6, 0, 4)] * K))
    options = {name: Predictor(networks(whose, seed)) for name, seed in (("mixed", 1), ("local", 2))}
    found = deploy(options, whose, rule)
    close(found.weights, torch.tensor([0.0, 1.0]).expand(K, 2))
    assert bool(found.evaluate(whose).loss.isfinite().all())


@pytest.mark.parametrize("name", ["vectors", "text"])
@pytest.mark.parametrize("rule", [Stack(), Single(unseen=True)], ids=["stack", "single"])
def test_tasks_without_classes_have_no_unseen_ones(rule: Rule, name: str) -> None:
    whose = tasks.clients(tasks.federation(name))
    params = whose.init(0)
    options = {"local": Predictor(params), "others": Predictor(tasks.shifted(params))}
    found = deploy(options, whose, rule)
    assert found.ensemble.offsets is None
    close(found.weights.sum(1), torch.ones(whose.num_clients))
    losses = [whose.evaluate(predictor.networks, "validation").loss for predictor in options.values()]
    assert float(losses[0].mean()) < float(losses[1].mean())
    assert float(found.weights[:, 0].mean()) > 0.5, "the better is relied on more"


# The rules themselves.


def test_the_rules_by_name_have_their_defaults() -> None:
    assert {"stack": Stack(20.0, True), "single": Single(1.0, False)} == RULES


@pytest.mark.parametrize(
    ("make", "value", "words"),
    [
        (Stack, 0.5, "Stack has alpha=0.5, expected a number of at least 1"),
        (Stack, torch.nan, "alpha=nan"),
        (Stack, torch.inf, "alpha=inf"),
        (Stack, "20", "alpha=20, expected a number"),
        (Single, -0.1, "Single has errors=-0.1, expected a number of standard errors from 0 up"),
        (Single, torch.nan, "errors=nan"),
        (Single, torch.inf, "errors=inf"),
        (Single, "1", "errors=1, expected a number"),
    ],
)
def test_rules_refuse_what_they_cannot_use(make: Any, value: Any, words: str) -> None:
    refuses(lambda: make(value), words)


def test_the_least_that_rules_take() -> None:
    assert (Stack(1).alpha, Single(0).errors) == (1, 0)
    with pytest.raises(InputError):
        Single(None)  # type: ignore[arg-type]

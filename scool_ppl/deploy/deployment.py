"""Deploy: what each client ships, of all the networks that training has come to, decided on held-out images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from scool_ppl.base.arguments import finite, positive
from scool_ppl.deploy.single import single
from scool_ppl.deploy.stacking import stack
from scool_ppl.deploy.unseen import unseen_log_odds
from scool_ppl.em.absence import add_failed
from scool_ppl.em.em import EM
from scool_ppl.em.state import Deployment, EMState
from scool_ppl.errors import ClientError, InputError
from scool_ppl.graph.candidates import not_finite
from scool_ppl.train.contract import AnyClients, Plan
from scool_ppl.train.questions import Ensemble, PredictionLoss, Predictor

LOCAL = "local"
"""The candidate that a client has trained alone, and the track that it comes from."""
TINY = 1e-30
"""No weight is smaller that counts."""
SURE = -100.0
"""Nats: no candidate is surer than this that an image is not what it is."""


@runtime_checkable
class Rule(Protocol):
    """How candidates are combined: weights (K, C) from log p (K, C, n, T) of held-out labels, with mask (K, n)."""

    @property
    def unseen(self) -> bool:
        """Are classes that a client has never seen made less likely, see `unseen_log_odds`?"""

    def __call__(self, log_p: Tensor, mask: Tensor, local: int) -> Tensor:
        """Weights; `local` is the place of the candidate that the client trained alone."""


@dataclass(frozen=True)
class Stack:
    """Hierarchical stacking: predictions sum_c E[w_ic] p_c(y | x), see `stack`; alpha: images' worth of what the others
    rely on. Of sequences every position is predicted by the mixture, so every position counts as an image.
    """

    alpha: float = 20.0
    unseen: bool = True

    def __post_init__(self) -> None:
        if not finite(self.alpha) or self.alpha < 1:
            raise InputError(f"Stack has alpha={self.alpha}, expected a number of at least 1")

    def __call__(self, log_p: Tensor, mask: Tensor, local: int) -> Tensor:
        return stack(log_p.flatten(2), mask.repeat_interleave(log_p.shape[3], 1), self.alpha).weights


@dataclass(frozen=True)
class Single:
    """One network for each client: the best if it is better by so many standard errors on held-out images, else the local
    one; see `single`.
    """

    errors: float = 1.0
    unseen: bool = False

    def __post_init__(self) -> None:
        if not (positive(self.errors) or self.errors == 0):
            raise InputError(f"Single has errors={self.errors}, expected a number of standard errors from 0 up")

    def __call__(self, log_p: Tensor, mask: Tensor, local: int) -> Tensor:
        chosen = single(log_p.mean(3), mask, local, self.errors)
        return torch.nn.functional.one_hot(chosen, log_p.shape[1]).double()


RULES: dict[str, Rule] = {"stack": Stack(), "single": Single()}
"""Rules by name, with their defaults."""


def rule_named(name: str, own: Rule) -> Rule:
    """The rule of that name; a model's own, with its settings, where it is of the same kind."""
    return own if type(own) is type(RULES[name]) else RULES[name]


def candidates(em: EM, state: EMState, name: str = "mixed") -> dict[str, Predictor]:
    """The networks that a state has come to, or mixtures of them, by `name`; and those after one more round of local
    training, "tuned": a global network often needs it. Clients who fail at that keep theirs as they are.

    Training alone has only the first: it is local already. So have private clients: more training would reveal more.
    """
    found = {name: em.predictor(state)}
    if name == LOCAL or em.clients.account is not None:
        return found
    names, away = em.clients.names, dict[str, str]()
    while True:
        absent = tuple(names.index(client) for client in away)
        plan = Plan(em.schedule.local_epochs, em.schedule.local_steps, state.seed, state.round, absent)
        try:
            found[f"{name}, tuned"] = Predictor(em.clients.train(state.params, state.optimizer, plan).params)
            return found
        except ClientError as fault:
            away = add_failed(away, fault, names, state.round)


def deploy(options: Mapping[str, Predictor], clients: AnyClients, rule: Rule) -> Deployment:
    """Each client's combination of its candidates, by a rule, on its validation images.

    "local" must be among the candidates. Who has no held-out images follows the others; if nobody has any, everybody takes
    the local network. A network that gives no finite loss, or has no finite parameters, is no candidate for its client.
    """
    if LOCAL not in options:
        raise InputError(
            f"candidates are {', '.join(options)}, expected '{LOCAL}' among them: what a client trained alone; train a "
            "track of it beside the model"
        )
    offsets = _offsets(clients) if rule.unseen else None
    asked = {name: PredictionLoss(predictor, "validation", offsets) for name, predictor in options.items()}
    losses = clients.answer(asked, seed=0, round=0)
    log_p = -torch.stack([losses[name] for name in options], 1).double()
    mask = ~log_p.isnan().any(3).any(1)
    sound = ~(log_p == -torch.inf).any(3).any(2) & torch.stack(
        [_finite(predictor) for predictor in options.values()], 1
    )
    local = list(options).index(LOCAL)
    alone = torch.nn.functional.one_hot(torch.full((len(mask),), local), len(options)).double()
    weights = alone
    if bool(mask.any()):
        chosen = rule(log_p.nan_to_num(0.0, neginf=SURE).clamp(min=SURE), mask, local) * sound
        total = chosen.sum(1, keepdim=True)
        weights = torch.where(total > 0, chosen / total.clamp(min=TINY), alone)
    return Deployment(tuple(options), Ensemble(tuple(options.values()), weights, offsets))


def _finite(predictor: Predictor) -> Tensor:
    """(K,) whether all parameters are finite of each client's network, or of all those in its mixture."""
    stacks = predictor.networks.values()
    broken = [found.cpu() for value in stacks if (found := not_finite(value.flatten(1))) is not None]
    count = len(next(iter(stacks)))
    sound = ~torch.stack(broken).any(0) if broken else torch.ones(count, dtype=torch.bool)
    if predictor.mixture is None:
        return sound
    weights, peers = predictor.mixture
    return (sound[peers.columns().expand_as(weights)] | (weights.cpu() == 0)).all(1)


def _offsets(clients: AnyClients) -> Tensor | None:
    """Log-odds (K, width) of classes that clients have never trained on; None where there are no classes."""
    roster = clients.roster
    if not roster.num_classes:
        return None
    return unseen_log_odds(roster.label_counts("train"), roster.label_counts("validation"))

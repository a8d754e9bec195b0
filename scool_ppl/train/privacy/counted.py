"""Counting: everything that private clients reveal in a round goes into their account, whoever asks and however often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import ClientError
from scool_ppl.train.batches import batch_sizes
from scool_ppl.train.contract import AnyClients, Plan, Trained, Wrapper
from scool_ppl.train.privacy.account import STEPS, Account
from scool_ppl.train.privacy.evidence import releases
from scool_ppl.train.questions import OwnLoss, PairLoss, Params, Question


class Asked(NamedTuple):
    """A round of training that was asked for."""

    params: Params
    state: Params
    plan: Plan

    def same(self, other: Asked) -> bool:
        """Is this what the other is, but for who is absent? Then all who answered both have given the same answer."""
        ours, theirs = (asked.plan._replace(absent=()) for asked in (self, other))
        alike = not any(
            term is not None for plan in (ours, theirs) for term in (plan.pull, plan.shares, plan.importance)
        )
        return alike and ours == theirs and _equal(self.params, other.params) and _equal(self.state, other.state)


def _equal(one: Params, other: Params) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


class Counted(Wrapper):
    """Private clients, and what they have spent (K, 2), see `account.SPENT`: a model that trains several times a round, or
    asks several questions, spends as often.

    Steps and releases are in the keys of their noise, so that no two have the same, also where a round is begun again
    because somebody failed: the others may have sent their networks by then, so unless they are asked for the same once
    more, they pay for both.
    """

    def __init__(self, clients: AnyClients, account: Account, spent: Tensor) -> None:
        super().__init__(clients)
        self.account_of, self.spent = account, spent
        self._failed: Asked | None = None

    @property
    def epsilon(self) -> Tensor:
        """(K,): what that says of any one image."""
        return self.account_of.epsilon(self.spent)

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        """Local training, from the step on that each client has come to, whatever state its optimiser is in."""
        asked = Asked(params, optimizer_state or {}, plan)
        if self._failed is not None and not self._failed.same(asked):
            self.spent = self.spent + _planned(self.account_of, self._failed.plan)
        self._failed = None
        try:
            trained = self.clients.train(params, {**asked.state, STEPS: self.spent[:, 0].long()}, plan)
        except ClientError:
            self._failed = asked
            raise
        state = dict(trained.optimizer_state)
        self.spent = torch.stack([state.pop(STEPS).double(), self.spent[:, 1]], 1)
        return trained._replace(optimizer_state=state)

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        """The answers; counted before they are there, as some may come where others fail."""
        if self.account_of.privacy.evidence_noise is None:
            return self.clients.answer(questions, seed=seed, round=round)
        asked = dict(questions)
        for name, question in questions.items():
            if isinstance(question, PairLoss | OwnLoss):
                asked[name] = question._replace(release=self.spent[:, 1].long())
            made = releases(question, self.num_clients)
            self.spent = torch.stack([self.spent[:, 0], self.spent[:, 1] + made], 1)
        return self.clients.answer(asked, seed=seed, round=round)


def _planned(account: Account, plan: Plan) -> Tensor:
    """(K, 2): what training by a plan takes of everybody who is there."""
    sizes = account.sizes.tolist()
    steps = [len(batch_sizes(each, account.batch_size, epochs=plan.epochs, steps=plan.steps)) for each in sizes]
    taken = torch.tensor([[each, 0] for each in steps], dtype=torch.float64)
    return taken.index_fill(0, torch.tensor(plan.absent, dtype=torch.long), 0)


def counted(clients: AnyClients, spent: Tensor | None) -> AnyClients:
    """The clients, who count on from what they have spent (K, 2) if they are private; of newcomers that is nan."""
    account = clients.account
    if account is None:
        return clients
    start = torch.zeros(clients.num_clients, 2, dtype=torch.float64) if spent is None else spent.nan_to_num(0)
    return Counted(clients, account, start)

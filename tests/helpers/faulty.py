"""Clients that fail where they are told to: a wrapper around any clients that the tests of quarantine are driven by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from scool_ppl.errors import ClientError
from scool_ppl.train.contract import AnyClients, Plan, Trained, Wrapper
from scool_ppl.train.questions import PairLoss, Params, Question

Kind = Literal["nan loss", "inf update", "raise", "vanish", "nan network", "nan data"]


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a client, by position, in a round, counted from 0.

    "nan loss" and "inf update": in training. "raise": its training raises. "vanish": it trains and does not answer when it
    is to be looked at. "nan network", "nan data": losses of its network, or on its data, are NaN.
    """

    kind: Kind
    client: int
    round: int


class FaultyClients(Wrapper):
    """The clients given, with these faults. `calls` counts trainings."""

    def __init__(self, clients: AnyClients, *faults: Fault) -> None:
        super().__init__(clients)
        self.faults, self.now, self.calls = faults, -1, 0

    def due(self, *kinds: Kind) -> list[Fault]:
        return [fault for fault in self.faults if fault.round == self.now and fault.kind in kinds]

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        self.now, self.calls = plan.round, self.calls + 1
        raising = [fault.client for fault in self.due("raise") if fault.client not in plan.absent]
        if raising:
            raise ClientError({self.names[client]: "OSError: no such device" for client in raising})
        trained = super().train(params, optimizer_state, plan)
        for fault in self.due("nan loss", "inf update"):
            if trained.moved[fault.client]:
                self._break(trained, fault)
        return trained

    def _break(self, trained: Trained, fault: Fault) -> None:
        if fault.kind == "nan loss":
            trained.loss[fault.client] = torch.nan
            values = [*trained.params.values(), *trained.optimizer_state.values()]
        else:
            values = [next(iter(trained.params.values()))]
        for value in values:
            if value.dtype != torch.bool:
                value[fault.client] = torch.nan if fault.kind == "nan loss" else torch.inf

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        answers = super().answer(questions, seed=seed, round=round)
        for name, question in questions.items():
            if isinstance(question, PairLoss):
                self._spoil(answers[name], question)
        return answers

    def _spoil(self, losses: Tensor, question: PairLoss) -> None:
        peers = question.peers
        receivers = torch.arange(self.num_clients)[:, None].expand_as(peers.mask)
        senders = peers.columns().expand_as(peers.mask)
        for fault in self.due("vanish", "nan network", "nan data"):
            mine = peers.mask & ((receivers == fault.client) | (senders == fault.client))
            if fault.kind == "vanish" and bool(mine.any()):
                raise ClientError({self.names[fault.client]: "no answer within 60 seconds"})
            networks, data = (senders, receivers) if question.whose == "sender" else (receivers, senders)
            losses[mine & ((networks if fault.kind == "nan network" else data) == fault.client)] = torch.nan

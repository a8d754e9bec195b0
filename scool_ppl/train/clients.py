"""Clients: K networks as stacked tensors; parameters go in and come out, nothing is kept between calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from scool_ppl.errors import InputError, unknown
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.batches import Batches, Probe, drawn, labelled, padded
from scool_ppl.train.contract import Evaluation, Mixture, Params, Pull, Trained
from scool_ppl.train.executors.executor import mixed
from scool_ppl.train.executors.loop import Loop
from scool_ppl.train.executors.stacked import Stacked
from scool_ppl.train.trainers import EXECUTORS, Trainers

__all__ = ["EXECUTORS", "Batches", "Clients", "Evaluation", "Mixture", "Params", "Probe", "Pull", "Trained"]

_ELEMENTS_AT_ONCE = 2**25  # of the widest layer in one forward pass: some hundred MB
_SPLITS = ("train", "validation", "test")


class Clients(Trainers):
    """K networks of one architecture, each with a client's data.

    executor: `stacked` (vmap), `loop` (one by one), or `auto`: both are timed once, at the first use, and the faster is
    kept in `executor_name`. The two agree up to rounding; networks with dropout draw different noise in each, so for
    them `auto` does not measure but takes the stack wherever it runs.
    """

    @torch.no_grad()
    def evaluate(self, params: Params, split: str = "test", mixture: Mixture | None = None) -> Evaluation:
        """Every client's network on its own images of a split, with its own labels.

        With `mixture` (weights (K, M), peers) client i predicts with sum_j w_ij p(y | h_theta_j(x)), rows normalised.
        """
        index, mask = padded(self._members(split))
        targets, mask = labelled(self.federation, index).to(self.device), mask.to(self.device)
        totals = torch.zeros(3, self.num_clients, device=self.device)
        for columns, outputs in self._outputs(params, index, mixture):
            theirs = self._own.view(len(outputs), *(1,) * (outputs.dim() - 2), -1)
            own = outputs.masked_fill(~theirs, -torch.inf)
            labels = targets[:, columns]
            scores = [self._task.scores(predicted, labels) for predicted in (outputs, own)]
            each = torch.stack([*scores, self._task.losses(outputs, labels)])
            totals = totals + each.where(mask[:, columns], 0).sum(-1)
        return Evaluation(*(totals / mask.sum(-1)).cpu())

    @torch.no_grad()
    def predict(self, params: Params, split: str = "test", mixture: Mixture | None = None) -> tuple[Tensor, Tensor]:
        """Outputs (K, n, ...) of every client's network, or mixture, on its own rows of a split, and mask (K, n)."""
        index, mask = padded(self._members(split))
        return torch.cat([outputs for _, outputs in self._outputs(params, index, mixture)], 1).cpu(), mask

    def _outputs(self, params: Params, index: Tensor, mixture: Mixture | None) -> Iterator[tuple[slice, Tensor]]:
        """Outputs for rows (K, n) of the data, some columns at a time."""
        index, executor = index.to(self.device), self._executor(params, {}, None)
        for columns in self._chunks(index.shape[1], executor):
            inputs = self.inputs[index[:, columns]]
            outputs = executor.forward(params, inputs) if mixture is None else mixed(executor, params, inputs, *mixture)
            yield columns, outputs

    def _members(self, split: str) -> tuple[Tensor, ...]:
        if split not in _SPLITS:
            raise unknown("split", split, _SPLITS)
        return getattr(self.federation, split)

    def _chunks(self, length: int, executor: Stacked | Loop, shared: bool = False) -> Iterator[slice]:
        """Slices of `length` samples per network, so short that the activations of the networks at work fit."""
        models = self.num_clients if executor is self._stacked else self._loop.workers
        gathered = 0 if shared else self.num_clients * self.inputs[0].numel()
        at_once = max(1, _ELEMENTS_AT_ONCE // max(models * self._footprint, gathered))
        for start in range(0, length, at_once):
            yield slice(start, start + at_once)

    def probe(self, seed: int, round: int, split: str = "train") -> Probe:
        """One fixed batch per client of at most probe_size of its images; all of them if there are no more."""
        self._members(split)
        return drawn(self.federation, split, self.probe_size, seed=seed, round=round)

    @torch.no_grad()
    def cross_loss(
        self, params: Params, peers: Peers, probe: Probe, *, model: Literal["receiver", "sender"] = "receiver"
    ) -> Tensor:
        """Losses of pairs (K, M), 0 where masked. With j = senders[i, m] and loss[a, b] of model a on client b's probe:

        model="receiver": entry [i, m] = loss[i, j]; model="sender": entry [i, m] = loss[j, i].
        """
        if model not in ("receiver", "sender"):
            raise unknown("model", model, ("receiver", "sender"))
        if peers.num_clients != self.num_clients:
            raise InputError(f"peers are of {peers.num_clients} clients, expected {self.num_clients}: one row for each")
        own = torch.arange(self.num_clients)[:, None].expand_as(peers.mask)
        senders = peers.columns().expand_as(peers.mask).to(own.device).where(peers.mask.cpu(), own)
        data = senders if model == "receiver" else own
        if bool((~probe.mask.any(1).cpu()[data] & peers.mask.cpu()).any()):
            empty = ", ".join(self.names[i] for i in (~probe.mask.any(1)).nonzero().flatten().tolist())
            raise InputError(
                f"no images in the probe of: {empty}; expected one at least; probe another split or mask them"
            )
        if peers.is_table:
            losses = self._columns(params, senders.to(self.device), probe, model)
        else:
            losses = self._all_pairs(params, probe)
            losses = losses if model == "receiver" else losses.T
        return losses.to(peers.mask.device).where(peers.mask, 0)

    def probe_loss(self, params: Params, probe: Probe) -> Tensor:
        """Mean loss (P,) of networks (P, ...), each on its own row of a probe; differentiable in the parameters."""
        mask, executor = probe.mask.to(self.device), self._stacked if self.executor_name == "stacked" else self._loop
        index, targets = probe.index.to(self.device), probe.targets.to(self.device)
        losses = self._task.losses(executor.forward(params, self.inputs[index]), targets)
        return (losses * mask).sum(-1) / mask.sum(-1)

    def _all_pairs(self, params: Params, probe: Probe) -> Tensor:
        """loss[i, j] of every model i on every client j's probe (K, K): each model sees the same pile of images."""
        mask, executor = probe.mask, self._executor(params, {}, None)
        index, targets = probe.index[mask].to(self.device), probe.targets[mask].to(self.device)
        owner = mask.nonzero()[:, 0].to(self.device)
        totals = next(iter(params.values())).new_zeros(self.num_clients, self.num_clients)
        for part in self._chunks(len(index), executor, shared=True):
            outputs = executor.forward(params, self.inputs[index[part]], shared=True)
            labels = targets[part].expand(self.num_clients, *targets[part].shape)
            totals.index_add_(1, owner[part], self._task.losses(outputs, labels))
        return totals / mask.sum(-1).to(self.device)

    def _columns(self, params: Params, senders: Tensor, probe: Probe, model: str) -> Tensor:
        """The same for a table (K, M), a column at a time: memory stays at one more copy of the parameters."""
        mask, executor = probe.mask.to(self.device), self._executor(params, {}, None)
        index, targets = probe.index.to(self.device), probe.targets.to(self.device)
        columns = []
        for chosen in senders.T:
            rows = chosen if model == "receiver" else torch.arange(len(chosen), device=self.device)
            models = params if model == "receiver" else {name: value[chosen] for name, value in params.items()}
            total = next(iter(params.values())).new_zeros(len(chosen))
            for part in self._chunks(index.shape[1], executor):
                where = rows, part
                losses = self._task.losses(executor.forward(models, self.inputs[index[where]]), targets[where])
                total += losses.where(mask[where], 0).sum(-1)
            columns.append(total / mask[rows].sum(-1))
        return torch.stack(columns, 1)

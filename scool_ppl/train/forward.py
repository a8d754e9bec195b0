"""Forward passes: networks at work on the data of clients in this process, in pieces that fit into memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from scool_ppl.base.machine import threads
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.stacks import per_client
from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Probe
from scool_ppl.train.executors.executor import Executor, mixed
from scool_ppl.train.networks.parts import EVERYTHING, Parts
from scool_ppl.train.privacy.evidence import bounded
from scool_ppl.train.questions import Ensemble, Mixture, Params, PredictionLoss, Predictor

_ELEMENTS_AT_ONCE = 2**25  # of the widest layer in one forward pass: some hundred MB
_ELEMENTS_IN_CACHE = 2**20  # shared with other cores, and more than one layer
_MANY = 4096  # common inputs: for so many one network after the other is quicker than all at once


@dataclass(frozen=True)
class Forward:
    """An executor and the inputs that it runs on; `width`: elements of the networks' widest layer for one input.

    one_by_one: the executor for networks that all see the same many inputs. clip: of the losses of single inputs whose
    means are evidence, see `privacy.evidence`. parts: of the networks, of which each meets a client's images with what is
    private of that client.
    """

    executor: Executor
    one_by_one: Executor
    task: Task
    inputs: Tensor
    width: int
    clip: float = math.inf
    parts: Parts = EVERYTHING

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Losses input by input, as evidence counts them."""
        return bounded(self.task.losses(outputs, targets), self.clip)

    @property
    def fitting(self) -> int:
        """Inputs whose widest layer in one network fits: into a processor's cache, elsewhere into memory."""
        elements = _ELEMENTS_IN_CACHE if self.inputs.device.type == "cpu" else _ELEMENTS_AT_ONCE
        return elements // self.width

    def chunks(self, length: int, networks: int) -> Iterator[slice]:
        """Slices of `length` inputs per network, so short that the activations of the networks at work fit."""
        gathered = _ELEMENTS_AT_ONCE // (networks * self.inputs[0].numel())
        at_once = max(1, min(self.fitting // self.executor.together(networks), gathered))
        for start in range(0, length, at_once):
            yield slice(start, start + at_once)

    def on_common(
        self, networks: Params, index: Tensor, then: Callable[[slice, Tensor, slice], Tensor]
    ) -> Iterator[tuple[slice, Tensor]]:
        """What then(rows, outputs, which) makes of the outputs of all networks on the same inputs, some rows at a time.

        then is called with the outputs (k, rows, ...) of the networks `which`, so few that a processor's cache holds them.
        """
        many = self.inputs.device.type == "cpu" and len(index) >= _MANY
        executor = self.one_by_one if many else self.executor
        count = len(next(iter(networks.values())))
        rows = max(1, self.fitting // (1 if self.inputs.device.type == "cpu" else count))
        # A stack holds a layer twice, before and after its bias or activation; fresh memory costs more than the sums.
        block = max(1, self.fitting // (2 * min(rows, max(1, len(index)))))
        for start in range(0, len(index), rows):
            part = slice(start, start + rows)
            with threads(1):
                inputs = taken(self.inputs, index[part])
            yield part, executor.on_common(networks, inputs, partial(then, part), block)

    def outputs(
        self, networks: Params | Ensemble, rows: Tensor, mixture: Mixture | None
    ) -> Iterator[tuple[slice, Tensor]]:
        """Outputs of networks, of mixtures or of ensembles for rows (K, n) of the inputs, some columns at a time."""
        rows = rows.to(self.inputs.device)
        for columns in self.chunks(rows.shape[1], len(rows)):
            inputs = taken(self.inputs, rows[:, columns])
            if isinstance(networks, Ensemble):
                yield columns, self._combined(networks, inputs)
            else:
                yield columns, self._predicted(Predictor(networks, mixture), inputs, None)

    def _predicted(self, predictor: Predictor, inputs: Tensor, offsets: Tensor | None) -> Tensor:
        """Outputs (K, n, ...) of what each client predicts with, and the client's offsets."""
        networks, mixture = predictor
        if mixture is None:
            outputs = self.executor.forward(networks, inputs)
        else:
            outputs = mixed(self.executor, networks, inputs, *mixture, self.parts)
        return outputs if offsets is None else outputs + _beside(offsets, outputs)

    def _combined(self, ensemble: Ensemble, inputs: Tensor) -> Tensor:
        """Outputs that predict as sum_c w_ic p_c; predictors that nobody uses are not run, and what a client does not use
        need not be finite.
        """
        predicted: Tensor | float = 0.0
        for predictor, share in zip(ensemble.predictors, ensemble.weights.T, strict=True):
            if float(share.max()) > 0:
                each = self.task.predictive(self._predicted(predictor, inputs, ensemble.offsets))
                weight = per_client(share.to(each), each)
                predicted = predicted + torch.where(weight > 0, weight * each, torch.zeros_like(each))
        return self.task.from_predictive(torch.as_tensor(predicted))

    def prediction_losses(self, question: PredictionLoss, rows: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        """Losses (K, n, T) of what each client predicts with on its own rows, see `questions.PredictionLoss`."""
        targets, losses = targets.to(self.inputs.device), []
        for columns in self.chunks(rows.shape[1], len(rows)):
            inputs = self.inputs[rows[:, columns].to(self.inputs.device)]
            outputs = self._predicted(question.predictor, inputs, question.offsets)
            losses.append(self.task.position_losses(outputs, targets[:, columns]))
        found = torch.cat(losses, 1) if losses else torch.zeros(*mask.shape, 1)
        return _told(found).masked_fill(~mask.to(found.device)[..., None], torch.nan)

    def own_loss(self, networks: Params, probe: Probe) -> Tensor:
        """Mean loss (P,) of networks (P, ...), each on its own row of a probe; differentiable in the parameters."""
        index, targets, mask = (field.to(self.inputs.device) for field in probe)
        total: Tensor | float = 0.0
        for columns, outputs in self.outputs(networks, index, None):
            total = total + (self.losses(outputs, targets[:, columns]) * mask[:, columns]).sum(-1)
        return torch.as_tensor(total) / mask.sum(-1)

    def all_losses(self, networks: Params, probe: Probe) -> Tensor:
        """loss[i, j] of every network i on every row j of a probe (K, P): each network sees the same pile of inputs, but
        where a part of it is the rows' own.
        """
        mask, count = probe.mask, len(next(iter(networks.values())))
        if self.parts.private:
            return self.pair_losses(networks, Peers(mask.new_ones(len(mask), count)), probe, "sender").T
        index, targets, owner, _ = self._pile(probe)
        totals = next(iter(networks.values())).new_zeros(count, len(mask))

        def by_owner(part: slice, outputs: Tensor, which: slice) -> Tensor:
            losses = self.losses(outputs, targets[part].expand(len(outputs), *targets[part].shape))
            return losses.new_zeros(len(losses), len(mask)).index_add_(1, owner[part], losses)

        for _, each in self.on_common(networks, index, by_owner):
            totals += each
        return totals / mask.sum(-1).to(self.inputs.device)

    @threads(1)
    def _pile(self, probe: Probe) -> tuple[Tensor, ...]:
        """Index and targets (n, ...) of all inputs of a probe, and the row and column (n,) that each of them is from.

        By one thread: others would stay awake for some milliseconds, waiting for more, beside the executor's.
        """
        fields = (probe.index[probe.mask], probe.targets[probe.mask], *probe.mask.nonzero(as_tuple=True))
        return tuple(field.to(self.inputs.device) for field in fields)

    def image_losses(self, networks: Params, senders: Tensor | None, probe: Probe, temperature: Tensor) -> Tensor:
        """Losses (K, M, n, T) of the senders' networks on the images of each row of a probe, see `questions.ImageLoss`.

        senders: (K, M), None if column m is network m. temperature: (K,), of each network.
        """
        rows = torch.arange(len(probe.mask), device=self.inputs.device)
        if senders is None and not self.parts.private:
            return self._image_losses_of_all(networks, probe, temperature)
        senders = torch.arange(len(temperature)).expand(len(rows), -1) if senders is None else senders
        columns = []
        for chosen in senders.to(self.inputs.device).T:
            models = self.parts.completed(networks, chosen, rows)
            columns.append(self._own_image_losses(models, probe, temperature[chosen]))
        return torch.stack(columns, 1)

    def _image_losses_of_all(self, networks: Params, probe: Probe, temperature: Tensor) -> Tensor:
        """Every network on every row: each network sees the same pile of inputs."""
        mask, count = probe.mask, len(temperature)
        index, targets, owner, place = self._pile(probe)
        found: list[Tensor] = []

        def by_image(part: slice, outputs: Tensor, which: slice) -> Tensor:
            labels = targets[part].expand(len(outputs), *targets[part].shape)
            return _told(self.task.position_losses(self._tempered(outputs, temperature[which]), labels))

        for part, each in self.on_common(networks, index, by_image):
            if not found:
                found.append(each.new_full((count, *mask.shape, each.shape[-1]), torch.nan))
            found[0][:, owner[part], place[part]] = each
        return found[0].transpose(0, 1)

    def _own_image_losses(self, networks: Params, probe: Probe, temperature: Tensor) -> Tensor:
        """Each network on its own row, (K, n, T)."""
        index, targets, mask = (field.to(self.inputs.device) for field in probe)
        losses = [
            self.task.position_losses(self._tempered(outputs, temperature), targets[:, columns])
            for columns, outputs in self.outputs(networks, index, None)
        ]
        return _told(torch.cat(losses, 1)).masked_fill(~mask[..., None], torch.nan)

    def temperatures(self, networks: Params, probe: Probe) -> Tensor:
        """T_i >= 1 of each network from its own row of a probe, (K,), see `questions.ImageLoss`; 1 without images."""
        index, targets, mask = (field.to(self.inputs.device) for field in probe)
        options = torch.logspace(0, 4, 33, base=2.0, dtype=next(iter(networks.values())).dtype).to(self.inputs.device)
        surprise = (options.log().square() / 2).expand(len(mask), -1)
        for columns, outputs in self.outputs(networks, index, None):
            there, told = mask[:, columns], targets[:, columns]
            losses = [self.task.losses(self._tempered(outputs, t.expand(len(mask))), told) for t in options]
            surprise = surprise + torch.stack([_told(each).where(there, 0).sum(1) for each in losses], 1)
        return options[surprise.argmin(1)]

    def _tempered(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return self.task.tempered(outputs, per_client(temperature.to(outputs), outputs))

    def pair_losses(self, networks: Params, peers: Peers, probe: Probe, whose: str) -> Tensor:
        """Losses of pairs (K, M), see `questions.PairLoss`, some of them at a time, so that what is copied stays small."""
        probe = Probe(*(field.to(self.inputs.device) for field in probe))
        if whose == "receiver" and not self.parts.private:
            return self._of_own_networks(networks, peers, probe)
        rows, columns, senders = (part.to(self.inputs.device) for part in peers.pairs())
        models, images = (rows, senders) if whose == "receiver" else (senders, rows)
        size = sum(value[0].numel() for value in networks.values())
        losses = next(iter(networks.values())).new_zeros(peers.mask.shape)
        for pairs in torch.arange(len(rows), device=rows.device).split(max(1, _ELEMENTS_IN_CACHE // size)):
            chosen = self.parts.completed(networks, models[pairs], images[pairs])
            own = Probe(*(field[images[pairs]] for field in probe))
            losses[rows[pairs], columns[pairs]] = self.own_loss(chosen, own)
        return losses

    def _of_own_networks(self, networks: Params, peers: Peers, probe: Probe) -> Tensor:
        """Each network on the probes of all its senders, (K, M)."""
        asked, (count, width) = peers.mask.to(self.inputs.device), peers.mask.shape
        # Every row is as long as the longest; a network's own probe stands where it has no sender, and is not told.
        own = torch.arange(count, device=asked.device)[:, None]
        senders = peers.columns().to(asked.device).expand_as(asked).where(asked, own)
        length = probe.mask.shape[1]
        at_once = max(1, self.fitting // max(1, width * length))
        found = []
        for rows in torch.arange(count, device=senders.device).split(at_once):
            index, targets, mask = (field[senders[rows]].flatten(1, 2) for field in probe)
            models = {name: value[rows[0] : rows[-1] + 1] for name, value in networks.items()}
            losses = [self.losses(each, targets[:, part]) for part, each in self.outputs(models, index, None)]
            each = torch.cat(losses, 1) if losses else torch.zeros(mask.shape, device=mask.device)
            told = each.where(mask, 0).view(len(rows), width, length)
            found.append(told.sum(2) / mask.view(len(rows), width, length).sum(2))
        return torch.cat(found).where(asked, 0)


def taken(table: Tensor, rows: Tensor) -> Tensor:
    """table[rows], whole rows at a time, which is quicker."""
    return table.index_select(0, rows.flatten()).view(*rows.shape, *table.shape[1:])


def _beside(offsets: Tensor, outputs: Tensor) -> Tensor:
    """Offsets (K, width) as they are added to outputs (K, n, ..., width)."""
    return offsets.to(outputs).view(len(offsets), *(1,) * (outputs.dim() - 2), offsets.shape[-1])


def _told(losses: Tensor) -> Tensor:
    """Losses in which infinity stands for what cannot be computed: nan says that there is nothing."""
    return losses.nan_to_num(torch.inf, torch.inf)

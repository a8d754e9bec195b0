"""Forward passes: networks at work on the data of clients in this process, in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Probe
from scool_ppl.train.executors.executor import Executor, mixed
from scool_ppl.train.questions import Ensemble, Mixture, Params, PredictionLoss, Predictor

_ELEMENTS_AT_ONCE = 2**25  # of the widest layer in one forward pass: some hundred MB


@dataclass(frozen=True)
class Forward:
    """An executor and the inputs that it runs on; `width`: elements of the networks' widest layer for one input."""

    executor: Executor
    task: Task
    inputs: Tensor
    width: int

    def chunks(self, length: int, networks: int, shared: bool = False) -> Iterator[slice]:
        """Slices of `length` inputs per network, so short that the activations of the networks at work fit."""
        gathered = 0 if shared else networks * self.inputs[0].numel()
        at_once = max(1, _ELEMENTS_AT_ONCE // max(self.executor.at_once(networks) * self.width, gathered))
        for start in range(0, length, at_once):
            yield slice(start, start + at_once)

    def outputs(
        self, networks: Params | Ensemble, rows: Tensor, mixture: Mixture | None
    ) -> Iterator[tuple[slice, Tensor]]:
        """Outputs of networks, of mixtures or of ensembles for rows (K, n) of the inputs, some columns at a time."""
        rows = rows.to(self.inputs.device)
        for columns in self.chunks(rows.shape[1], len(rows)):
            inputs = self.inputs[rows[:, columns]]
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
            outputs = mixed(self.executor, networks, inputs, *mixture)
        return outputs if offsets is None else outputs + _beside(offsets, outputs)

    def _combined(self, ensemble: Ensemble, inputs: Tensor) -> Tensor:
        """Outputs that predict as sum_c w_ic p_c; predictors that nobody uses are not run, and what a client does not use
        need not be finite.
        """
        predicted: Tensor | float = 0.0
        for predictor, share in zip(ensemble.predictors, ensemble.weights.T, strict=True):
            if float(share.max()) > 0:
                each = self.task.predictive(self._predicted(predictor, inputs, ensemble.offsets))
                weight = share.to(each).view(-1, *(1,) * (each.dim() - 1))
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
            total = total + (self.task.losses(outputs, targets[:, columns]) * mask[:, columns]).sum(-1)
        return torch.as_tensor(total) / mask.sum(-1)

    def all_losses(self, networks: Params, probe: Probe) -> Tensor:
        """loss[i, j] of every network i on every row j of a probe (K, P): each network sees the same pile of inputs."""
        mask, count = probe.mask, len(next(iter(networks.values())))
        index, targets = (field[mask].to(self.inputs.device) for field in (probe.index, probe.targets))
        owner = mask.nonzero()[:, 0].to(self.inputs.device)
        totals = next(iter(networks.values())).new_zeros(count, len(mask))
        for part in self.chunks(len(index), count, shared=True):
            outputs = self.executor.forward(networks, self.inputs[index[part]], shared=True)
            labels = targets[part].expand(count, *targets[part].shape)
            totals.index_add_(1, owner[part], self.task.losses(outputs, labels))
        return totals / mask.sum(-1).to(self.inputs.device)

    def image_losses(self, networks: Params, senders: Tensor | None, probe: Probe, temperature: Tensor) -> Tensor:
        """Losses (K, M, n, T) of the senders' networks on the images of each row of a probe, see `questions.ImageLoss`.

        senders: (K, M), None if column m is network m. temperature: (K,), of each network.
        """
        if senders is None:
            return self._image_losses_of_all(networks, probe, temperature)
        columns = []
        for chosen in senders.to(self.inputs.device).T:
            models = {name: value[chosen] for name, value in networks.items()}
            columns.append(self._own_image_losses(models, probe, temperature[chosen]))
        return torch.stack(columns, 1)

    def _image_losses_of_all(self, networks: Params, probe: Probe, temperature: Tensor) -> Tensor:
        """Every network on every row: each network sees the same pile of inputs."""
        mask, count = probe.mask.to(self.inputs.device), len(temperature)
        index, targets = (field.to(self.inputs.device)[mask] for field in (probe.index, probe.targets))
        losses = []
        for part in self.chunks(len(index), count, shared=True):
            outputs = self._tempered(
                self.executor.forward(networks, self.inputs[index[part]], shared=True), temperature
            )
            losses.append(self.task.position_losses(outputs, targets[part].expand(count, *targets[part].shape)))
        each = torch.cat(losses, 1)
        found = each.new_full((*mask.shape, count, each.shape[-1]), torch.nan)
        found[mask] = _told(each).transpose(0, 1)
        return found.transpose(1, 2)

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
        return self.task.tempered(outputs, temperature.to(outputs).view(-1, *(1,) * (outputs.dim() - 1)))

    def column_losses(self, networks: Params, senders: Tensor, probe: Probe, whose: str) -> Tensor:
        """Losses (K, M) of pairs with these senders (K, M), see `questions.PairLoss`; a column at a time, so that memory
        stays at one more copy of the networks.
        """
        columns = []
        for chosen in senders.to(self.inputs.device).T:
            rows = chosen.cpu() if whose == "receiver" else torch.arange(len(chosen))
            models = networks if whose == "receiver" else {name: value[chosen] for name, value in networks.items()}
            columns.append(self.own_loss(models, Probe(*(field[rows] for field in probe))))
        return torch.stack(columns, 1)


def _beside(offsets: Tensor, outputs: Tensor) -> Tensor:
    """Offsets (K, width) as they are added to outputs (K, n, ..., width)."""
    return offsets.to(outputs).view(len(offsets), *(1,) * (outputs.dim() - 2), offsets.shape[-1])


def _told(losses: Tensor) -> Tensor:
    """Losses in which infinity stands for what cannot be computed: nan says that there is nothing."""
    return losses.nan_to_num(torch.inf, torch.inf)

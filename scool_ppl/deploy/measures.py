"""How good what the clients deploy is in ways beside the task's score: AUC, F1, calibration, ..."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.train.batches import labelled, padded
from scool_ppl.train.contract import AnyClients
from scool_ppl.train.questions import Ensemble, Params


def measures(clients: AnyClients, deployed: Params | Ensemble, split: str = "test") -> dict[str, Tensor]:
    """The task's `measures` of every client (K,) on its own rows of a split, by name; nan where not defined."""
    outputs, mask = clients.predict(deployed, split)
    task, targets = clients.federation.task, targets_of(clients.federation, split)
    predictive = task.predictive(outputs)
    each = [task.measures(own[there], true[there]) for own, true, there in zip(predictive, targets, mask, strict=True)]
    return {name: torch.tensor([found[name] for found in each]) for name in each[0]}


def targets_of(federation: Federation, split: str) -> Tensor:
    """(K, n, ...): the targets of every client's rows of a split in their order, as it calls them; padded."""
    index, _ = padded(getattr(federation, split))
    return labelled(federation, index)

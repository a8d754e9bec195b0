"""How good what the clients deploy is in ways beside the task's score: AUC, F1, calibration, ..."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.train.batches import labelled, padded
from scool_ppl.train.contract import AnyClients
from scool_ppl.train.questions import Ensemble, Params


def measures(clients: AnyClients, deployed: Params | Ensemble, split: str = "test") -> dict[str, Tensor]:
    """The task's `measures` of every client (K,) on its own rows of a split, by name; nan where not defined."""
    outputs, mask = clients.predict(deployed, split)
    federation = clients.federation
    targets = labelled(federation, padded(getattr(federation, split))[0])
    predictive = federation.task.predictive(outputs)
    each = [
        federation.task.measures(own[there], true[there])
        for own, true, there in zip(predictive, targets, mask, strict=True)
    ]
    return {name: torch.tensor([found[name] for found in each]) for name in each[0]}

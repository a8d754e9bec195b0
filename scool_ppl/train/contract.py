"""What the rest of the library may ask of clients, wherever they live."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from scool_ppl.graph.candidates import Peers

Params = dict[str, Tensor]
"""Parameters of K networks: name -> (K, *shape)."""


class Pull(NamedTuple):
    """A proximal term: adds strength_i (theta_i - centre_i) to client i's gradient at every step; strength (K,)."""

    centre: Params
    strength: Tensor


Mixture = tuple[Tensor, Peers]
"""Weights (K, M) of candidates, and who these are."""


class Evaluation(NamedTuple):
    """Per client (K,), nan without images: the task's score, the same among the client's own classes, the mean loss.

    The score of classification is accuracy; other tasks keep the name here and call it theirs in tables.
    """

    accuracy: Tensor
    task_accuracy: Tensor
    loss: Tensor


class Trained(NamedTuple):
    """params and optimizer_state (name -> (K, ...), e.g. "momentum_buffer/0.weight"); loss (K,), of the last epoch.

    While some clients have not moved yet, optimizer_state also has "started" (K,) bool: who has state at all.
    """

    params: Params
    optimizer_state: Params
    loss: Tensor

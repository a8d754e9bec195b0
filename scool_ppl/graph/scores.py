"""How near a graph is to the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.graph.blocks import by_appearance
from scool_ppl.graph.candidates import Peers


class Scores(NamedTuple):
    """How near a graph is to the truth; None where a score is undefined.

    l1: mean over receivers of sum_j |w_ij - t_ij|, rows normalised with the self loop; 0 is perfect, 2 the worst.
    auc: area under the ROC curve of the weights as a test for true edges, over looked-at pairs; 1 is perfect.
    ari: adjusted Rand index between the blocks and the true groups; 1 is perfect, 0 is chance.
    """

    l1: float | None
    auc: float | None
    ari: float | None


def same_group(groups: Sequence[int]) -> Tensor:
    """The true graph of known groups: t_ij = 1 where i and j != i share one; (K, K) float64."""
    codes = by_appearance(groups)
    return (codes[:, None] == codes).double().fill_diagonal_(0)


def row_distance(graph: Tensor, truth: Tensor) -> float:
    """mean_i sum_j |w_ij - t_ij| of (K, K) matrices, self loops added (unless given) and rows normalised."""
    return float((_with_self(graph) - _with_self(truth)).abs().sum(dim=1).mean())


def edge_score(weights: Tensor, peers: Peers, truth: Tensor) -> float | None:
    """Area under the ROC curve of weights (K, M) as a test for true edges, over looked-at pairs of two clients."""
    looked = peers.mask & ~peers.own()
    labels = peers.take(truth)[looked] > 0
    if bool(labels.all()) or not bool(labels.any()):
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels.numpy(), weights[looked].double().numpy()))


def block_score(blocks: Tensor, groups: Sequence[int]) -> float:
    """Adjusted Rand index between the blocks (K,) and the true groups."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(by_appearance(groups).numpy(), blocks.numpy()))


def _with_self(matrix: Tensor) -> Tensor:
    """Rows with the self loop as the mixing uses it, normalised; a client without any sender keeps to itself."""
    matrix = matrix.double()
    identity = torch.eye(len(matrix), dtype=torch.float64)
    matrix = matrix if bool(matrix.diagonal().any()) else matrix + identity
    total = matrix.sum(dim=1, keepdim=True)
    return torch.where(total > 0, matrix / total.where(total > 0, 1.0), identity)

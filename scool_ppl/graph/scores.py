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


def group_distance(weights: Tensor, peers: Peers, groups: Tensor) -> float:
    """`row_distance` of weights (K, M) to the graph of groups (K,), without a matrix of all pairs.

    A sender that is no candidate has weight 0: there the distance is its share of the group.
    """
    own, weights = peers.own(), torch.where(peers.mask, weights.double(), 0.0)
    beside = ~own.any(1)  # a client that is none of its own candidates
    given = bool((weights * own).any())
    itself = torch.where((weights.sum(1) > 0) & given, 0.0, 1.0).double()
    weights = weights + own * itself[:, None]
    total = weights.sum(1) + beside * itself
    share = 1 / torch.bincount(groups)[groups].double()
    alike = (groups[:, None] == peers.gather(groups)) & peers.mask
    distance = ((weights / total[:, None] - alike * share[:, None]).abs() * peers.mask).sum(1)
    distance += beside * (itself / total - share).abs()
    return float((distance + 1 - share * (alike.sum(1) + beside)).mean())


def edge_score(weights: Tensor, peers: Peers, truth: Tensor) -> float | None:
    """Area under the ROC curve of weights (K, M) as a test for the edges of a true graph (K, K)."""
    return area(weights, peers, peers.take(truth) > 0)


def area(weights: Tensor, peers: Peers, linked: Tensor) -> float | None:
    """Area under the ROC curve of weights (K, M) as a test for who is `linked` (K, M), over pairs of two clients."""
    looked = peers.mask & ~peers.own()
    labels = linked[looked]
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

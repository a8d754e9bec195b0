"""CooperationGraph: who learns from whom, as tensors, as a networkx graph, as a file, and against a truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import networkx as nx
import torch
from torch import Tensor

from scool_ppl.base.arguments import check_whole, finite
from scool_ppl.base.describe import shown_png
from scool_ppl.base.randomness import generator
from scool_ppl.errors import InputError, unknown
from scool_ppl.graph import files
from scool_ppl.graph.belief import believed, pieces
from scool_ppl.graph.blocks import by_appearance, communities, merged
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.scores import Scores, area, block_score, edge_score, group_distance, row_distance

Kind = Literal["edges", "rows", "point"]


@dataclass(frozen=True, eq=False, repr=False)
class CooperationGraph:
    """The posterior over cooperation, w_ij = E_q[Y_ij], with what is known of each client.

    weights: (K, M), row = receiver, columns as in `peers`; what `peers` masks is set to 0.
    kind: q(Y) is a product of Bernoulli "edges", of one-hot "rows", or a "point" mass at the weights.
    memberships: (K, G) E_q[z]; `blocks_are_final` says that they are what `blocks` returned, as after reading a file.
    groups: the true group of each client.  accuracy, samples: (K,).
    positions: (K, 2) places in the plane that the prior inferred; they become the layout of the drawing.
    low, high: (K, M) credible intervals of the weights, where they are known; `EM.intervals` finds them.
    components: (K, G) how much each client uses each component, a seat without data, where there are any. The weights are
    of clients, through components, too; in files and pictures components are nodes.
    """

    weights: Tensor
    names: tuple[str, ...]
    peers: Peers
    kind: Kind = "edges"
    memberships: Tensor | None = None
    groups: tuple[int, ...] | None = None
    accuracy: Tensor | None = None
    samples: Tensor | None = None
    positions: Tensor | None = None
    blocks_are_final: bool = False
    low: Tensor | None = None
    high: Tensor | None = None
    components: Tensor | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise unknown("kind of graph", str(self.kind), get_args(Kind))
        shape, count = tuple(self.peers.mask.shape), len(self.names)
        if count == 0 or tuple(self.weights.shape) != shape or shape[0] != count:
            raise InputError(
                f"graph has weights of shape {tuple(self.weights.shape)}, a mask of shape {shape} and {count} names; "
                "expected one row per receiver and one column per candidate in both; pass the peers of that round"
            )
        if len(set(self.names)) < count or not all(name and name.isprintable() for name in self.names):
            raise InputError("names of clients repeat, are empty or hold control characters; give each its own name")
        for field in ("memberships", "groups", "accuracy", "samples", "positions", "components"):
            value = getattr(self, field)
            if value is not None and len(value) != count:
                raise InputError(f"{field} has {len(value)} entries, expected {count}: one per client")
        weights = torch.where(self.peers.mask, self.weights.detach(), torch.zeros_like(self.weights))
        if not bool(torch.isfinite(weights).all()):
            raise InputError("graph has weights that are not finite; expected numbers; mask the pairs not looked at")
        if self.kind != "point" and (float(weights.min()) < -1e-6 or float(weights.max()) > 1 + 1e-6):
            raise InputError(
                f"graph of kind '{self.kind}' has weights in [{float(weights.min()):.3g}, {float(weights.max()):.3g}], "
                "expected probabilities in [0, 1]; use kind='point' for weights that are none"
            )
        object.__setattr__(self, "weights", weights)
        if self.low is not None or self.high is not None:
            low, high = self._intervals()
            object.__setattr__(self, "low", low)
            object.__setattr__(self, "high", high)

    def _intervals(self) -> tuple[Tensor, Tensor]:
        """Both ends of the intervals, 0 where a pair was not looked at."""
        if self.low is None or self.high is None:
            raise InputError("graph has one of low and high, expected both ends of the intervals or none; give both")
        shape = tuple(self.weights.shape)
        for name, end in (("low", self.low), ("high", self.high)):
            if tuple(end.shape) != shape:
                raise InputError(f"{name} has shape {tuple(end.shape)}, expected {shape}: as the weights")
        low, high = (torch.where(self.peers.mask, end.detach(), torch.zeros_like(end)) for end in (self.low, self.high))
        if not bool((low <= high).all()):
            raise InputError("intervals have a low end that is not below the high one; expected low <= high, no nan")
        return low, high

    def __repr__(self) -> str:
        believed, weighed = int(self.believed.sum()), int((self.weights != 0).sum())
        return f"CooperationGraph({self.num_clients} clients, {believed} of {weighed} edges believed)"

    def _repr_png_(self) -> bytes | None:
        return shown_png(self)

    @property
    def num_clients(self) -> int:
        return len(self.names)

    @property
    def component_names(self) -> tuple[str, ...]:
        """What the components are called beside the clients."""
        count = 0 if self.components is None else self.components.shape[1]
        word = "component"
        while any(name.startswith(f"{word} ") for name in self.names):
            word += "'"
        return tuple(f"{word} {number}" for number in range(1, count + 1))

    def dense(self) -> Tensor:
        """The weights as a (K, K) matrix [receiver, sender], 0 where a pair was not looked at."""
        return self.peers.dense(self.weights)

    @property
    def believed(self) -> Tensor:
        """(K, M) bool, the edges that are believed: w > 1/2 where edges are independent; else see `graph.belief`."""
        return believed(self.weights, self.kind)

    def chosen(self, threshold: float | None = None) -> Tensor:
        """(K, M) bool: the edges that are believed; with a threshold those above it, with 0 all whose weight is not 0."""
        if threshold is None:
            return self.believed
        if not finite(threshold) or threshold < 0:
            raise InputError(f"threshold is {threshold}, expected a weight of at least 0; 0 is all edges")
        return self.weights.abs() > threshold

    def edges(self, threshold: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Receivers, senders and weights of the E edges that are `chosen`, ordered by receiver: three (E,) tensors."""
        receivers, columns, senders = self.peers._replace(mask=self.chosen(threshold)).pairs()
        return receivers, senders, self.weights[receivers, columns]

    def blocks(self) -> Tensor:
        """The block of each client, (K,) long, numbered from 0 in order of first appearance.

        Without memberships, Louvain communities of w + w^T; the unconnected are alone. With them, the likeliest block
        of each client, where blocks between which most looked-at pairs cooperate are one (see `blocks.merged`).

        A block model with more blocks than there are groups may split a group into blocks between which B is as high
        as inside: one community for whoever reads the graph. Blocks between which no pair was looked at stay apart,
        and so do those of kind "rows": rows that sum to one get light as groups grow and measure no density.
        """
        return self._blocks.clone()

    @cached_property
    def _blocks(self) -> Tensor:
        if self.memberships is not None:
            chosen, nowhere = self.memberships.argmax(dim=1), ~self.memberships.any(dim=1)
            chosen[nowhere] = self.memberships.shape[1] + torch.arange(int(nowhere.sum()))  # each on its own
            likeliest = by_appearance(chosen.tolist())
            return (
                likeliest
                if self.kind == "rows" or self.blocks_are_final
                else merged(likeliest, self.weights, self.peers)
            )
        return communities(self.weights, self.peers, self.kind)

    def connected_blocks(self) -> Tensor:
        """The blocks cut into the pieces that believed edges connect, (K,) long, numbered by first appearance.

        What a reader sees: clients may share a block because nobody learns from either of them. These are alone here.
        """
        receivers, senders, _ = self.edges()
        return pieces(self._blocks, receivers, senders)

    def to_networkx(self, threshold: float | None = None) -> nx.DiGraph:
        """A DiGraph on the names: the edge u -> v is "v learns from u", with weight w[v, u].

        Edges are those that are believed; with a threshold those of greater weight, with 0 all whose weight is not 0. They
        have `weight`, `believed`, `probability` unless the graph is a point mass, and `low` and `high` where known; nodes
        have `block`, and what is known of each client: `group`, `accuracy`, `samples`, place `x`, `y`. Components are nodes
        whose `seat` is "component"; an edge from one is how much a client uses it.
        """
        return files.to_networkx(self, threshold)

    @classmethod
    def from_networkx(cls, graph: nx.Graph) -> CooperationGraph:
        """The inverse of `to_networkx(threshold=0)`, in float64; any simple networkx graph will do.

        Clients are called as the nodes are. An edge without a weight weighs 1, an undirected edge goes both ways, a graph
        of unknown kind is a point mass. Soft memberships come back as one-hot blocks. A graph written from a table of
        peers comes back as a table of its edges; looked-at pairs of weight 0 are then forgotten.
        """
        return files.from_networkx(graph, cls)

    def save(self, path: str | Path, threshold: float | None = 0) -> None:
        """Write .graphml or .gexf by networkx; an existing file is replaced in one step or left as it was.

        All edges are written, so that `load` gives the same graph again; their `believed` says which ones a reader wants.
        With threshold=None these are the only ones, with a number those above it, as in `to_networkx`.
        """
        files.save(self, path, threshold)

    @classmethod
    def load(cls, path: str | Path) -> CooperationGraph:
        """Read what `save` or another program wrote; see `from_networkx` for what is forgotten."""
        return files.load(path, cls)

    def sample(self, num_samples: int = 1, seed: int = 0) -> Tensor:
        """Draws of Y from q, (S, K, M) bool; a point mass gives the weights above one half."""
        check_whole("num_samples", num_samples, least=0)
        shape = (num_samples, *self.weights.shape)
        random = generator(seed, "graph", "sample")
        if self.kind == "point":
            return (self.weights > 0.5).expand(shape).clone()
        if self.kind == "edges":
            return torch.rand(shape, generator=random, dtype=torch.float64) < self.weights.double()
        draws = torch.zeros(shape, dtype=torch.bool)
        rows = (self.weights.sum(dim=1) > 0).nonzero().squeeze(1)
        if num_samples and len(rows):
            probabilities = self.weights[rows].double().clamp(min=0)
            columns = torch.multinomial(probabilities, num_samples, replacement=True, generator=random)
            draws[torch.arange(num_samples)[:, None], rows, columns.T] = True
        return draws

    def score(self, truth: Tensor | None = None, groups: Sequence[int] | None = None) -> Scores:
        """Compare with a true graph (K, K) and true groups (K,); by default those of the graph itself.

        l1 = mean_i sum_j |w_ij - t_ij| after adding the self loop (unless self edges are given) and normalising rows.
        """
        groups = self.groups if groups is None else tuple(groups)
        if groups is not None and len(groups) != self.num_clients:
            raise InputError(f"groups has {len(groups)} entries, expected {self.num_clients}: one per client")
        if truth is not None and tuple(truth.shape) != (self.num_clients,) * 2:
            raise InputError(
                f"truth has shape {tuple(truth.shape)}, expected {(self.num_clients,) * 2}: [receiver, sender]"
            )
        ari = None if groups is None else block_score(self.blocks(), groups)
        if truth is not None:
            return Scores(row_distance(self.dense(), truth), edge_score(self.weights, self.peers, truth), ari)
        if groups is None:
            return Scores(None, None, ari)
        codes = by_appearance(groups)
        linked = (codes[:, None] == self.peers.gather(codes)).expand(self.peers.mask.shape)
        return Scores(group_distance(self.weights, self.peers, codes), area(self.weights, self.peers, linked), ari)

"""GraphPrior: P(Y | ...) as a Pyro program, with the plates of the round's candidates given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pyro
import torch
from pyro import poutine
from torch import Tensor

from scool_ppl.base.arguments import check_whole
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import Kind
from scool_ppl.infer.distributions import NEVER
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.program import Program
from scool_ppl.look.evidence import Evidence, Need
from scool_ppl.train.contract import AnyClients


class GraphPrior(Program):
    """A prior over cooperation graphs. Subclass it, write `model`; the guide is automatic unless you write one.

    `model(evidence)` samples the site "Y" inside ``with self.edges:`` and returns it, shape (K, M): does receiver i
    (row) learn from its m-th candidate sender (column)? The prior itself is the Pyro program: ``prior(evidence)`` runs
    it, and it can be traced, rendered, given to Predictive or to SVI. Parameters declared as PyroParam or nn.Parameter
    are learned by raising the bound, in closed form where `closed_form` returns them.
    """

    includes_self = False
    """May a row choose its own client?"""
    kind: Kind = "edges"
    """What q(Y) is: independent "edges", one-hot "rows", or a "point" mass."""
    needs: Collection[Need] = ()
    """What the program reads of the evidence, e.g. {"loss"}; see `look.Evidence`."""
    client_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """What is learned for each client, and which of its axes are clients, e.g. {"alpha": (0, 1)}: it rests while a client
    is absent, and moves along when clients join or leave."""
    positions: str | None = None
    """The site with a place (K, 2) for each client, which becomes the layout of the drawing."""

    def __init__(self, num_clients: int) -> None:
        super().__init__()
        check_whole("num_clients", num_clients)
        self.num_clients = num_clients
        self._peers: Peers | None = None
        self._present = torch.ones(num_clients, dtype=torch.bool)
        self._plates: dict[str, Any] = {}

    def model(self, evidence: Evidence) -> Tensor:
        """Sample "Y" inside ``with self.edges:`` and return it, (K, M)."""
        raise InputError(f"{type(self).__name__} has no `model`; write one that samples 'Y' and returns it")

    def guide(self, evidence: Evidence) -> Any:
        """q(Y, ...): by default the mean field of AutoMeanField; override it to write your own Pyro guide."""
        return AutoMeanField(self)(evidence)

    def starts(self, evidence: Evidence, log_lik: Any, generator: torch.Generator) -> list[dict[str, Tensor]]:
        """Where q may start, each as moments by site, the richest last; log_lik: what the likelihood returned.

        NaturalGradient tries all, ModeSearch the best, and the highest bound wins; SVIStep takes the last.
        Sites that are not named start flat, one-hot ones at random. Used where there is no earlier round to start from.
        """
        return []

    def prepare(self, clients: AnyClients, seed: int) -> None:
        """Create parameters whose shape depends on the clients' networks; called once, before the first round."""

    def initial_graph(self) -> Tensor | None:
        """The graph (K, K) before the first round, for mixing rules that act during training; None is no graph."""
        return None

    def forward(self, evidence: Evidence) -> Tensor:
        with self.opened(evidence):
            return self.model(evidence)

    @contextmanager
    def opened(self, evidence: Evidence) -> Iterator[None]:
        """Opens the plates of this round's candidates, once per run of the program."""
        if evidence.num_clients != self.num_clients:
            raise InputError(
                f"the prior is for {self.num_clients} clients, the evidence has {evidence.num_clients}; "
                f"build it with num_clients={evidence.num_clients}"
            )
        if self._peers is evidence.peers:
            yield
            return
        num_clients, num_candidates = evidence.peers.mask.shape
        self._peers, self._present = evidence.peers, evidence.present
        self._plates = {
            "clients": pyro.plate("clients", num_clients, dim=-1),
            "receivers": pyro.plate("receivers", num_clients, dim=-2),
            "senders": pyro.plate("senders", num_candidates, dim=-1),
        }
        try:
            yield
        finally:
            self._peers, self._plates = None, {}

    @property
    def clients(self) -> AbstractContextManager[None]:
        """The plate over clients, dim -1, with the mask of those present."""
        return self._clients()

    @contextmanager
    def _clients(self) -> Iterator[None]:
        plate = self._opened()[1]["clients"]
        with plate, nullcontext() if bool(self._present.all()) else poutine.mask(mask=self._present):
            yield

    @property
    def edges(self) -> AbstractContextManager[None]:
        """The plates receivers (dim -2) and senders (dim -1) with the mask of looked-at pairs."""
        return self._edges()

    @contextmanager
    def _edges(self) -> Iterator[None]:
        peers, plates = self._opened()
        with plates["receivers"], plates["senders"], poutine.mask(mask=peers.mask):
            yield

    def receiver(self, x: Tensor) -> Tensor:
        """x (K, ...) as seen by rows: (K, 1, ...)."""
        return x.unsqueeze(1)

    def sender(self, x: Tensor) -> Tensor:
        """x (K, ...) as seen by columns: (1, K, ...), or (K, M, ...) for a table of peers."""
        return self._opened()[0].gather(x)

    def row_logits(self, logits: Tensor) -> Tensor:
        """Logits (K, M) with those of masked candidates so low that their probability is 0."""
        return torch.where(self._opened()[0].mask, logits, torch.full_like(logits, NEVER))

    def _opened(self) -> tuple[Peers, dict[str, Any]]:
        if self._peers is None:
            raise InputError("the prior's plates are open only while it runs; call prior(evidence), not prior.model")
        return self._peers, self._plates


@dataclass(frozen=True)
class Joint:
    """log P(Y, Z, D) = log P(Y, Z) + log P(D | Y) as a Pyro program.

    `log_lik` is a table (K, M), for the term sum_ij log_lik[i, j] Y_ij over the pairs that take part, or a function of
    the graph that returns the term itself.
    """

    prior: GraphPrior
    log_lik: Tensor | Callable[[Tensor], Tensor]

    def __call__(self, evidence: Evidence) -> Tensor:
        with self.prior.opened(evidence):
            graph = self.prior(evidence)
            self.score(graph, evidence)
        return graph

    def score(self, graph: Tensor, evidence: Evidence) -> None:
        """The factor log P(D | Y), once the plates are open."""
        if callable(self.log_lik):
            pyro.factor("evidence", self.log_lik(graph))
        else:
            with self.prior.edges:
                pyro.factor("evidence", torch.where(evidence.peers.mask, self.log_lik.double(), 0.0) * graph)

    @property
    def table(self) -> Tensor | None:
        """The table, where the evidence is one."""
        return None if callable(self.log_lik) else self.log_lik

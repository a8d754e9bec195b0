"""GraphPrior: P(Y | ...) as a Pyro program, with the plates of the round's candidates given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import get_plates
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
    demands: Collection[str] = ()
    """What it asks of clients beyond rounds of their own training, e.g. ("all networks",)."""
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
        self._summed = _Enumerated()

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
        self._summed = _Enumerated()
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
        with self._summed, plate, nullcontext() if bool(self._present.all()) else poutine.mask(mask=self._present):
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
        """x (K, ...) as seen by rows: (K, 1, ...). Draws of a plate around the program stay in front, here as below."""
        x, lead = self._in_front(x)
        return x.unsqueeze(lead + 1)

    def sender(self, x: Tensor) -> Tensor:
        """x (K, ...) as seen by columns: (1, K, ...), or (K, M, ...) for a table of peers."""
        peers, (x, lead) = self._opened()[0], self._in_front(x)
        if lead == 0:
            return peers.gather(x)
        if peers.senders is None:
            return x.unsqueeze(lead)
        own: tuple[Any, ...] = (*[slice(None)] * lead, peers.senders)
        return x[own]

    def row_logits(self, logits: Tensor) -> Tensor:
        """Logits (K, M) with those of masked candidates so low that their probability is 0."""
        logits = torch.where(self._opened()[0].mask, logits, torch.full_like(logits, NEVER))
        return logits.unsqueeze(-3) if logits.dim() > 2 and self._depth() > 2 else logits

    def _in_front(self, x: Tensor) -> tuple[Tensor, int]:
        """x (K, ...) and 0, or x (S, K, ...) and 1 of S draws at once: what the clients' plate has as (S, 1, K, ...)."""
        self._summed.check(x, self.num_clients)
        depth = self._depth()
        if depth > 2 and tuple(x.shape[depth - 2 : depth]) == (1, self.num_clients):
            return x.squeeze(depth - 2), depth - 2
        return x, int(depth == 2 and x.dim() > 1 and x.shape[1] == self.num_clients)

    def _depth(self) -> int:
        """How many dimensions there are up to the outermost plate around the program; 0 without one."""
        around = (frame.dim for frame in get_plates() if frame.name not in self._plates)
        return max((-dim for dim in around if dim is not None), default=0)

    def _opened(self) -> tuple[Peers, dict[str, Any]]:
        if self._peers is None:
            raise InputError("the prior's plates are open only while it runs; call prior(evidence), not prior.model")
        return self._peers, self._plates


class _Enumerated(Messenger):
    """Notes the sites of the clients that Pyro enumerates, which no edge can be given."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def _pyro_post_sample(self, msg: Any) -> None:
        if "_enumerate_dim" in msg["infer"]:
            self.names.append(msg["name"])

    def check(self, x: Tensor, num_clients: int) -> None:
        """Refuses what a value of clients is computed from while all its values are tried at once: (G, 1, 1, ...)."""
        if self.names and (x.shape[0] != num_clients or (x.dim() > 2 and x.shape[1] == 1)):
            raise InputError(
                f"site '{self.names[-1]}' of the clients is enumerated and used by edges, which join two clients: Pyro "
                "cannot sum over both, they share a dimension; use MomentELBO with AutoMeanField, or NaturalGradient"
            )


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
            return
        odds = torch.where(evidence.peers.mask, self.log_lik.double(), 0.0)
        if self.prior.kind == "rows" and graph.dim() > 2:  # many rows of each client at once, (S, 1, K, M)
            with self.prior.clients:
                pyro.factor("evidence", (odds * graph).sum(-1))
        else:
            with self.prior.edges:
                pyro.factor("evidence", odds * graph)

    @property
    def table(self) -> Tensor | None:
        """The table, where the evidence is one."""
        return None if callable(self.log_lik) else self.log_lik

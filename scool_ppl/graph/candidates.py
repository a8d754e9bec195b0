"""Peers: who may learn from whom in a round, as a (K, M) table of candidate senders for each receiver."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from scool_ppl.data.federation import MANY
from scool_ppl.errors import InputError
from scool_ppl.graph.stacks import is_shared, pieces, rows_here, shared, unshared


class Entries(NamedTuple):
    """A (K, M) table of values on its own, with the sender of each, (K, M) long, -1 where there is none."""

    values: Tensor
    senders: Tensor


class Peers(NamedTuple):
    """The table of candidate senders per receiver.

    mask: (K, M) bool, True where the pair (receiver row, sender column) takes part.
    senders: (K, M) long, the client in each column of each row; None means column m is client m (M = K).
    looked: (K, M) bool, the pairs of `mask` that are looked at anew this round; None means all. What is known of the
    others comes from the rounds before.
    components: how many seats without data there are: of a table the senders K to K + components - 1. They own a network
    and are no receivers.
    """

    mask: Tensor
    senders: Tensor | None = None
    looked: Tensor | None = None
    components: int = 0

    @property
    def fresh(self) -> Peers:
        """The same table with only the pairs that are looked at this round."""
        return self if self.looked is None else self._replace(mask=self.mask & self.looked, looked=None)

    @property
    def num_clients(self) -> int:
        return int(self.mask.shape[0])

    @classmethod
    def everybody(cls, num_clients: int, includes_self: bool = False) -> Peers:
        """Every client is a candidate for every other (and for itself if asked)."""
        mask = torch.ones(num_clients, num_clients, dtype=torch.bool)
        return cls(mask if includes_self else mask.fill_diagonal_(False))

    @property
    def is_table(self) -> bool:
        """Has each receiver candidates of its own? If not, column m is client m."""
        return self.senders is not None

    @property
    def is_mutual(self) -> bool:
        """Is column m client m, and a pair a candidate in both directions or in none? What is of pairs has a transpose."""
        return self.senders is None and torch.equal(self.mask, self.mask.T)

    @classmethod
    def of_components(cls, num_clients: int, components: int) -> Peers:
        """Every component is a candidate for every client, and nobody else is."""
        senders = num_clients + torch.arange(components)
        return cls(torch.ones(num_clients, components).bool(), senders.repeat(num_clients, 1), None, components)

    def with_components(self, components: int) -> Peers:
        """The candidates, all of them clients, and behind them every component."""
        more = Peers.of_components(self.num_clients, components)
        looked = None if self.looked is None else torch.cat([self.looked, more.mask], 1)
        senders = torch.cat([self.columns().expand_as(self.mask), more.columns()], 1)
        return Peers(torch.cat([self.mask, more.mask], 1), senders, looked, components)

    def without_components(self) -> Peers:
        """The candidates that `with_components` was asked of."""
        return Peers(*(None if table is None else self.clients_of(table) for table in self[:3]))  # type: ignore[arg-type]

    def clients_of(self, values: Tensor) -> Tensor:
        """The columns of a (K, M) table that are not of components."""
        return values[:, : values.shape[1] - self.components]

    def among(self, present: Tensor) -> Peers:
        """The same table with rows and columns of clients who are not `present` (K,) masked."""
        if bool(present.all()):
            return self
        return self._replace(mask=self.mask & present[:, None] & ~self.whose(~present))

    def whose(self, clients: Tensor) -> Tensor:
        """Pairs whose sender is one of these clients (K,) bool; components are none."""
        return self.gather(torch.cat([clients, torch.zeros(self.components).bool()]))

    def columns(self) -> Tensor:
        """The sender in each column, (1, K) or (K, M)."""
        return torch.arange(self.mask.shape[1])[None] if self.senders is None else self.senders

    def own(self) -> Tensor:
        """The pairs of a client with itself among those of the mask, (K, M) bool."""
        return (self.columns() == torch.arange(self.num_clients)[:, None]) & self.mask

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and sender of each of the N pairs of the mask, by row: three (N,) tensors."""
        rows, columns = self.mask.nonzero(as_tuple=True)
        return rows, columns, columns if self.senders is None else self.senders[rows, columns]

    def gather(self, x: Tensor) -> Tensor:
        """Rows of x (K, ...) seen by each receiver: (1, K, ...) for everybody, else (K, M, ...); components have
        rows in x, too.
        """
        return x.unsqueeze(0) if self.senders is None else self._of_seats(x)[self.senders]

    def _of_seats(self, x: Tensor) -> Tensor:
        """The same, refused unless it has a row for each component."""
        if self.components and len(x) != self.num_clients + self.components:
            raise InputError(
                f"{len(x)} values for {self.num_clients} clients and {self.components} components, expected one for each; "
                "components have networks, and neither data nor memberships: choose parts that need no others of them"
            )
        return x

    def take(self, matrix: Tensor) -> Tensor:
        """Entries of a (K, K) matrix at the candidates: (K, M)."""
        if self.components:
            raise InputError(
                f"a matrix of pairs of clients was to be read at {self.components} components, of which it says nothing; "
                "choose a prior and a likelihood that need none"
            )
        return matrix if self.senders is None else matrix.gather(1, self.senders)

    def lookup(self, values: Tensor, others: Peers, fill: float = 0.0) -> Tensor:
        """Entries of a (K, M) table of these candidates at the candidates of another table: (K, M'), `fill` for pairs that
        are not of the mask.
        """
        if self.senders is None:
            return others.take(self.dense(values, fill))
        keys, order = torch.where(self.mask, self.senders, self.num_clients + self.components).sort(1)
        wanted = others.columns().expand(self.num_clients, -1).contiguous()
        places = torch.searchsorted(keys, wanted).clamp(max=keys.shape[1] - 1)
        found = values.gather(1, order.gather(1, places))
        return torch.where(keys.gather(1, places) == wanted, found, torch.as_tensor(fill, dtype=values.dtype))

    def kept(self, values: Tensor) -> Tensor | Entries:
        """A (K, M) table as files keep it: as a (K, K) matrix, see `dense`, or, of more than MANY clients, as it is."""
        if self.senders is None or self.num_clients <= MANY:
            return self.dense(values)
        return Entries(torch.where(self.mask, values, 0), torch.where(self.mask, self.senders, -1))

    @classmethod
    def read(cls, kept: Tensor | Entries) -> tuple[Peers, Tensor]:
        """The candidates and the values of what `kept` has made; of a matrix everybody is a candidate."""
        if isinstance(kept, Entries):
            return cls(kept.senders >= 0, kept.senders.clamp(min=0)), kept.values
        return cls.everybody(len(kept), includes_self=bool(kept.diagonal().any())), kept

    def dense(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """A (K, M) table as a (K, K) matrix of clients; pairs that are not candidates get `fill`."""
        values = torch.where(self.mask, values, torch.as_tensor(fill, dtype=values.dtype))
        if self.senders is None:
            return values
        out = torch.full((self.num_clients, self.num_clients), fill, dtype=values.dtype)
        clients = self._replace(mask=self.mask & (self.senders < self.num_clients)) if self.components else self
        rows, columns, senders = clients.pairs()
        out[rows, senders] = values[rows, columns]
        return out

    def shares(self, values: Tensor) -> Tensor:
        """Of a (K, M) table what is of components, (K, components), 0 where masked."""
        out = values.new_zeros(self.num_clients, self.components)
        own = self._replace(mask=self.mask & (self.columns() >= self.num_clients))
        rows, columns, senders = own.pairs()
        out[rows, senders - self.num_clients] = values[rows, columns]
        return out

    def through(self, values: Tensor) -> tuple[Peers, Tensor]:
        """Who learns from whom, directly or through components: w_ij + sum_c w_ic w_jc / sum_l w_lc, (K, K).

        Of more than MANY clients what goes through components is left out: all who share one would be pairs.
        """
        direct = self.without_components()
        if self.num_clients > MANY:
            own = torch.arange(self.num_clients)[:, None]
            some = Peers(torch.ones_like(own).bool(), own) if direct.mask.shape[1] == 0 else direct
            return some, self.clients_of(values) if some is direct else values.new_zeros(len(own), 1)
        shares = self.shares(values)
        shared = shares @ (shares / shares.sum(0).clamp(min=1e-30)).T
        everybody = Peers.everybody(self.num_clients, includes_self=True)
        return everybody, shared + direct.dense(self.clients_of(values))

    def combine(self, weights: Tensor | None, x: Tensor, out: Tensor | None = None, *, finite: bool = False) -> Tensor:
        """sum_j weights[i, j] x[j] over each receiver's candidates, for x (K, ...) -> (K, ...); None: all weigh 1.

        Components, where there are any, have rows in x, too. out: memory for the sums, used where everybody is a
        candidate. finite: is it known that all of x is?
        """
        weights = self.mask.to(x) if weights is None else weights.masked_fill(~self.mask, 0).to(x)
        flat = x.reshape(len(x), -1)
        broken = None if finite else not_finite(flat)
        if broken is not None:  # 0 * nan is nan: what broke reaches only those who give it weight
            out = self.combine(weights, flat.masked_fill(broken[:, None], 0))
            reached = self.combine(weights.ne(0).to(x), broken.to(x)) > 0
            return out.masked_fill(reached[:, None], torch.nan).view(len(weights), *x.shape[1:])
        if is_shared(flat):
            return self._combine_pieces(weights, flat).view_as(x)
        if self.senders is None:
            return torch.mm(weights, flat, out=None if out is None else out.view_as(flat)).view_as(x)
        if flat.shape[1] == 0:
            return x[: len(weights)].clone()
        flat, senders = self._of_seats(flat), self.senders.to(x.device)
        # What embeddings are made for: rows of x, weighted and summed without a copy of them.
        return embedding_bag(senders, flat, per_sample_weights=weights, mode="sum").view(len(weights), *x.shape[1:])

    def _combine_pieces(self, weights: Tensor, flat: Tensor) -> Tensor:
        """The same of a stack (K, P) that ranks share: each sums up what its own clients get, as the pieces pass by."""
        here, own = rows_here(flat)
        receivers, columns, senders = self.pairs()
        mine = (receivers >= here.start) & (receivers < here.stop)
        receivers, senders, values = receivers[mine] - here.start, senders[mine], weights[receivers, columns][mine]
        out = torch.zeros_like(own)
        for start, rows in pieces(flat):
            among = (senders >= start) & (senders < start + len(rows))
            share = torch.zeros(len(out), len(rows), dtype=out.dtype)
            share.index_put_((receivers[among], senders[among] - start), values[among], accumulate=True)
            out.addmm_(share, rows)
        return shared(out, len(flat), flat.device_mesh)  # type: ignore[attr-defined]

    def distance(self, own: Tensor, theirs: Tensor, norm: float = 2.0) -> Tensor:
        """|theirs_j - own_i| of each receiver i and candidate j, rows (K, P) -> (K, M) float64, masked or not.

        A table goes column by column, so that memory stays at one copy of the rows.
        """
        if is_shared(theirs):
            _, rows = rows_here(own.double())
            columns = [torch.cdist(rows, piece, p=norm) for _, piece in pieces(theirs.double())]
            return self.take(unshared(shared(torch.cat(columns, 1), len(theirs), theirs.device_mesh)))
        if self.senders is None:
            return torch.cdist(own.double(), theirs.double(), p=norm)
        columns = [
            torch.linalg.vector_norm((theirs[c] - own).double(), norm, dim=1) for c in self.senders.T.to(own.device)
        ]
        return torch.stack(columns, 1)

    def inner(self, own: Tensor, theirs: Tensor) -> Tensor:
        """<own_i, theirs_j> of each receiver i and candidate j, rows (K, D) -> (K, M), masked or not."""
        own, theirs = unshared(own), unshared(theirs)
        if self.senders is None:
            return own @ theirs.T
        return torch.einsum("kd,kmd->km", own, theirs[self.senders])


def not_finite(rows: Tensor) -> Tensor | None:
    """Which rows (K, P) are not finite, (K,) bool; None if all are, which their sum says sooner than each of them."""
    if bool(rows.sum().isfinite()):
        return None
    broken = unshared(~rows.isfinite().all(1))
    return broken if bool(broken.any()) else None

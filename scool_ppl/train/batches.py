"""Which images each client sees at each step, as index tables into the one flat tensor, and the steps themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.data.federation import Federation


class Batches(NamedTuple):
    """The steps of one round of training: client i's loss at step s is sum_b weight[i, s, b] loss(theta_i; sample b).

    index: (K, S, B) long into the flat inputs. weight: (K, S, B), 1/n in a batch of n, 0 is padding. targets: (K, S, B)
    for labels, with more dimensions for what is larger. A client whose weights are all 0 at a step does not move, nor do
    its optimiser's buffers.

    lot, keys: of private training only, (K, S) long: how many images a batch is expected to have, 0 where no step is
    made, and the key of a step's noise. There a step with an empty batch is a step, too: the noise is all that it adds.
    """

    index: Tensor  # type: ignore[assignment]  # hides tuple.index, on purpose
    weight: Tensor
    targets: Tensor
    lot: Tensor | None = None
    keys: Tensor | None = None

    @property
    def active(self) -> Tensor:
        """Which clients move at which steps, (K, S) bool."""
        return (self.weight != 0).any(-1) if self.lot is None else self.lot != 0

    @property
    def samples(self) -> Tensor:
        """How many images the loss of a step is the mean of, (K, S)."""
        return (self.weight != 0).sum(-1) if self.lot is None else self.lot

    def each(self, change: Callable[[Tensor], Tensor]) -> Batches:
        """The same done to every field that is there."""
        return Batches(*(None if field is None else change(field) for field in self))  # type: ignore[arg-type]

    def steps(self, start: int, stop: int) -> Batches:
        """Those of some steps."""
        return self.each(lambda field: field[:, start:stop])

    def without(self, clients: Sequence[int]) -> Batches:
        """Those in which these clients do not move."""
        absent = torch.tensor(clients, dtype=torch.long)
        lot = None if self.lot is None else self.lot.index_fill(0, absent, 0)
        return self._replace(weight=self.weight.index_fill(0, absent, 0), lot=lot)


class Probe(NamedTuple):
    """One fixed batch per client, labelled as that client does: index (K, P) long, targets (K, P, ...), mask (K, P)."""

    index: Tensor  # type: ignore[assignment]  # hides tuple.index, on purpose
    targets: Tensor
    mask: Tensor


def padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows of unequal length as an (len(rows), longest) table and its mask; padding repeats a row's first entry."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    first = torch.stack([row[0] if len(row) else torch.zeros((), dtype=torch.long) for row in rows])
    table = first[:, None].repeat(1, mask.shape[1])
    table[mask] = torch.cat(list(rows))
    return table, mask


def labelled(federation: Federation, index: Tensor) -> Tensor:
    """The targets of index (K, ...) as each row's client calls them, (K, ..., *one sample's)."""
    targets = federation.targets[index]
    if federation.relabel is None:
        return targets
    return federation.relabel.gather(1, targets.flatten(1)).view_as(targets)


def shuffled(
    federation: Federation, batch_size: int, *, epochs: int, steps: int | None, seed: int, round: int
) -> Batches:
    """A fresh shuffle of every client's training images in every epoch, keyed by the client's name, cut into batches.

    With `steps`, exactly that many batches per client. Clients with fewer batches run out of them earlier: their steps
    come first and the padding last.
    """
    lengths = federation.sizes("train").tolist()
    tables = {count: _order(count, batch_size, epochs, steps) for count in sorted(set(lengths))}
    length, size = (max(mask.shape[axis] for _, mask in tables.values()) for axis in (0, 1))
    index = torch.zeros(len(lengths), length, size, dtype=torch.long)
    weight = torch.zeros(len(lengths), length, size, dtype=torch.float64)
    for count, (rounds, mask) in tables.items():
        alike = [client for client, other in enumerate(lengths) if other == count]
        if not len(mask):
            continue
        noise = [
            torch.rand(
                rounds,
                count,
                generator=generator(seed, "batches", round, federation.names[client]),
                dtype=torch.float64,
            )
            for client in alike
        ]
        members = torch.stack([federation.train[client] for client in alike])
        order = members[:, None].expand(-1, rounds, -1).gather(2, torch.stack(noise).argsort(2))
        index[alike] = order[:, :1, :1]
        filler = order[:, :, :1].expand(-1, -1, mask.shape[1] * -(-count // mask.shape[1]) - count)
        table = torch.cat([order, filler], 2).reshape(len(alike), -1, mask.shape[1])[:, : len(mask)]
        index[alike, : len(mask), : mask.shape[1]] = table
        weight[alike, : len(mask), : mask.shape[1]] = mask.double() / mask.sum(-1, keepdim=True)
    return Batches(index, weight, labelled(federation, index))


def shared(
    own: Batches, weights: Tensor, own_weight: Tensor, sampled: torch.Generator | None = None, negligible: float = 1e-6
) -> Batches:
    """Batches in which client i's loss is own_weight_i L(D_i) + sum_j weights_ij L(D_j), by j's batch of the same step.

    weights: (K, K) with a zero diagonal, own_weight: (K,). Clients with fewer batches begin theirs again. With `sampled`
    one j is drawn per step with probability weights_ij / sum_l weights_il, and weighted by that sum.
    """
    count, steps, _ = own.index.shape
    lengths = own.active.sum(1).clamp(min=1)
    step = torch.arange(steps)
    if sampled is None:
        width = max(1, int((weights > negligible).sum(1).max()))
        weight, peer = weights.topk(min(width, count), dim=1)
        weight = torch.where(weight > negligible, weight, torch.zeros_like(weight))
        peer, weight = peer[:, None].expand(-1, steps, -1), weight[:, None].expand(-1, steps, -1)
    else:
        total = weights.sum(1, keepdim=True)
        chance = torch.where(total > 0, weights, torch.ones_like(weights))
        peer = torch.multinomial(chance, max(1, steps), replacement=True, generator=sampled)[:, :steps, None]
        weight = total[:, :, None].expand(-1, steps, -1)
    there = step[None, :, None] % lengths[peer]
    active = own.active[:, :, None]
    fields = [field[peer, there].flatten(2, 3) for field in (own.index, own.targets)]
    joined = (own.weight[peer, there] * weight[..., None] * active[..., None]).flatten(2)
    return Batches(
        torch.cat([own.index, fields[0]], 2),
        torch.cat([own.weight * own_weight[:, None, None], joined], 2),
        torch.cat([own.targets, fields[1]], 2),
    )


def batch_table(sizes: Tensor, weights: Tensor, own_weight: Tensor, sampled: torch.Generator | None = None) -> Batches:
    """Whose which batch counts how much at which step of `shared`: (K, S, M) of owners (`index`), numbers (`targets`) and
    weights.

    sizes: (K, S), images in each client's own batches, 0 after its last.
    """
    count, steps = sizes.shape
    own = Batches(
        torch.arange(count)[:, None, None].expand(count, steps, 1),
        (sizes > 0).double()[..., None],
        torch.arange(steps)[None, :, None].expand(count, steps, 1),
    )
    return shared(own, weights, own_weight, sampled)


def weighted(batches: Batches, members: Sequence[Tensor], importance: Tensor) -> Batches:
    """Batches in which the n-th of the `members` of client i counts importance_in times as much, importance (K, n).

    Members behind the table count what those of their client in it do on average.
    """
    rows, mask = padded(members)
    known = importance[:, : rows.shape[1]].to(batches.weight)
    inside = mask[:, : known.shape[1]]
    mean = (known * inside).sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp(min=1)
    table = torch.cat([known, mean.expand(-1, rows.shape[1] - known.shape[1])], 1)
    ordered, order = rows.sort(dim=1, stable=True)
    place = torch.searchsorted(ordered, batches.index.flatten(1)).clamp(max=rows.shape[1] - 1)
    factor = table.gather(1, order.gather(1, place)).view_as(batches.weight)
    return batches._replace(weight=batches.weight * factor.where(batches.weight != 0, 0))


def _order(count: int, batch_size: int, epochs: int, steps: int | None) -> tuple[int, Tensor]:
    """With so many images: how often a client goes through them, and which places of its batches are filled, (S, B)."""
    size = max(1, min(batch_size, count))
    per_epoch = -(-count // size)
    if per_epoch == 0:
        return 0, torch.zeros(0, size, dtype=torch.bool)
    if steps is not None:
        epochs = -(-steps // per_epoch)
    mask = (torch.arange(per_epoch * size) < count).expand(epochs, -1).reshape(-1, size)
    return epochs, mask[:steps]


def batch_sizes(count: int, batch_size: int, *, epochs: int, steps: int | None) -> Tensor:
    """(S,) long: images in each batch of a round of a client who has so many."""
    return _order(count, batch_size, epochs, steps)[1].sum(-1)


def last_epoch(losses: Tensor, samples: Tensor, active: Tensor, per_epoch: Tensor) -> Tensor:
    """Mean loss (K,) over each client's last steps, as many as one pass over its own images takes, (K,).

    losses, samples: (K, S), of each step and of how many images it is. active: (K, S) bool, the steps that are made.
    """
    left = active.flip(1).cumsum(1).flip(1)
    counted = samples * (left <= per_epoch[:, None])
    return (losses * counted).sum(1) / counted.sum(1)


def drawn(federation: Federation, split: str, size: int, *, seed: int, round: int) -> Probe:
    """At most `size` images of every client's split, keyed by the client's name; all of them if there are no more."""
    rows = []
    for members, name in zip(getattr(federation, split), federation.names, strict=True):
        if len(members) > size:
            random = generator(seed, "probe", round, name)
            members = members[torch.randperm(len(members), generator=random)[:size].sort().values]
        rows.append(members)
    index, mask = padded(rows)
    return Probe(index, labelled(federation, index), mask)

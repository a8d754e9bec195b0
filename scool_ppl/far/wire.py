"""What travels between a driver and those who have the data: requests and replies of plain values and tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from scool_ppl.train.networks.parts import Parts
from scool_ppl.train.questions import Params

Option = str | int | float | bool | None
Shapes = Mapping[str, torch.Size]
"""Name -> shape of each parameter of one network, in the order in which they are laid out flat."""


class Networks(NamedTuple):
    """Rows `use` of a stack of flat networks (N, P); copied only where they are needed."""

    stack: Tensor
    use: tuple[int, ...]

    def picked(self) -> Tensor:
        """(len(use), P)."""
        return self.stack if self.use == tuple(range(len(self.stack))) else self.stack[list(self.use)]

    @property
    def bytes(self) -> int:
        """Size of these rows."""
        return len(self.use) * self.stack.shape[1] * self.stack.element_size()


class Job(NamedTuple):
    """One thing that one client is asked to do."""

    verb: str
    options: Mapping[str, Option]
    tensors: Mapping[str, Tensor]
    networks: Networks | None = None

    @property
    def bytes(self) -> int:
        """Size of its tensors."""
        return size(self.tensors) + (0 if self.networks is None else self.networks.bytes)


Request = tuple[Job, ...]
"""All that one client is asked at once."""
Reply = tuple[dict[str, Tensor], ...]
"""Its answers, one for each job."""
Build = Callable[[str], Request]
"""The request to a client, by name; called only where it travels."""


class Answers(NamedTuple):
    """What came back: replies by name, and who did not answer, with the reason."""

    replies: dict[str, Reply]
    faults: dict[str, str]


class Description(NamedTuple):
    """What a client says of itself before the first round, in plain values; nothing in it is a row of its data.

    rows: of training, validation and test. counts: how often it has each class in each of them. task: as text, None for a
    class of the user's own. statistics: see `Task.statistics`. entropy: the loss of knowing only how its own training
    targets are distributed. network: names, shapes and dtype of the parameters that cooperate. private: names and shapes of
    what stands for those that do not: these themselves, or the seal of what stays at home. facts: see `AnyClients.facts`.
    privacy: the fields of its `train.Privacy`, None if it has none.
    """

    rows: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]
    input_shape: tuple[int, ...]
    tokens: bool
    kind: str
    task: str | None
    statistics: tuple[float, ...]
    entropy: float
    network: tuple[tuple[str, tuple[int, ...]], ...]
    dtype: str
    bytes_per_model: int
    draws_noise: bool
    batch_size: int
    probe_size: int
    executor: str
    fingerprint: str
    facts: dict[str, list[str]]
    privacy: dict[str, float | None] | None = None
    private: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Fabric(Protocol):
    """How requests travel. Whoever raises or does not answer is among the faults."""

    @property
    def near(self) -> bool:
        """Is a message so quick that one can be sent at every step of training?"""

    @property
    def bytes(self) -> int:
        """Of the tensors that have travelled so far, in either direction."""

    def describe(self) -> dict[str, Description]:
        """All clients, by name."""

    def ask(self, names: Sequence[str], build: Build) -> Answers:
        """The replies to build(name) of each of these."""

    def away(self, round: int) -> Mapping[str, str]:
        """Who is known to sit a round out, and why."""


def size(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of tensors by name."""
    return sum(value.numel() * value.element_size() for value in tensors.values())


class Sent(NamedTuple):
    """Networks as they travel: what cooperates, flat (K, P), to whoever is to see it; and what stands for each client's
    private part, flat (K, H), to this client alone; None where nothing is private.
    """

    stack: Tensor
    private: Tensor | None

    @classmethod
    def of(cls, networks: Params, parts: Parts) -> Sent:
        own = parts.at_home(networks)
        return cls(flat(parts.cooperating(networks)), flat(own) if own else None)

    def home(self, client: int, number: int | str = "") -> dict[str, Tensor]:
        """What one client gets back of its own, under the name that a job has for it."""
        return {} if self.private is None else {f"{HOME}{number}": self.private[client].detach()}


HOME = "home"
"""What stands for a client's private part."""
STATE = "state/"
"""What the names of an optimiser's tensors begin with."""
RELEASE = "release"
"""How many releases of losses a private client has made before."""


def flat(params: Params) -> Tensor:
    """A stack of networks (K, P)."""
    return torch.cat([value.flatten(1) for value in params.values()], 1)


def shaped(networks: Tensor, shapes: Shapes) -> Params:
    """Flat networks (K, P) as name -> (K, *shape)."""
    parts = networks.split([shape.numel() for shape in shapes.values()], 1)
    return {
        name: part.reshape(len(networks), *shape).contiguous()
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }

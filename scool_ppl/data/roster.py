"""Roster: who takes part and in what, without anybody's data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scool_ppl.data.preparation import Preparation
from scool_ppl.data.reading import SPLITS
from scool_ppl.errors import InputError, unknown
from scool_ppl.tasks.base import Task

if TYPE_CHECKING:
    from scool_ppl.data.federation import Federation


@dataclass(frozen=True, eq=False)
class Roster:
    """All that a driver has to know of K clients: names, task, shape of an input, and how many rows there are.

    rows: (3, K) long, of training, validation and test. counts: (3, K, C) long, how often each client has each class in
    each of them; C = 0 where the task has none. groups, truth: the true graph, regions: a number of each, where known.
    """

    names: tuple[str, ...]
    task: Task
    input_shape: tuple[int, ...]
    tokens: bool
    rows: Tensor
    counts: Tensor
    groups: tuple[int, ...] | None = None
    truth: Tensor | None = None
    regions: tuple[int, ...] | None = None
    preparation: Preparation | None = None

    def __post_init__(self) -> None:
        count = len(self.names)
        if count == 0 or len(set(self.names)) != count:
            raise InputError(
                f"the roster has the names {', '.join(self.names) or 'of nobody'}, expected different ones"
            )
        for what, values in (("rows", self.rows), ("counts", self.counts)):
            if tuple(values.shape[:2]) != (len(SPLITS), count):
                found, expected = tuple(values.shape), (len(SPLITS), count)
                raise InputError(f"{what} of the roster have shape {found}, expected {expected}: a row for each split")

    @classmethod
    def of(cls, federation: Federation) -> Roster:
        """That of clients whose data are here."""
        return cls(
            names=tuple(federation.names),
            task=federation.task,
            input_shape=tuple(federation.inputs.shape[1:]),
            tokens=not federation.inputs.is_floating_point(),
            rows=torch.stack([federation.sizes(split) for split in SPLITS]),
            counts=torch.stack([federation.label_counts(split) for split in SPLITS]),
            groups=federation.groups,
            truth=federation.truth,
            regions=federation.regions,
            preparation=federation.preparation,
        )

    @property
    def num_clients(self) -> int:
        return len(self.names)

    @property
    def num_classes(self) -> int:
        return self.task.num_classes

    @property
    def kind(self) -> str:
        """What kind of data clients have; those of one kind can learn from each other."""
        return kind_of(self.task, self.input_shape)

    def sizes(self, split: str = "train") -> Tensor:
        """(K,) long: rows per client."""
        return self.rows[_place(split)]

    def label_counts(self, split: str = "train") -> Tensor:
        """(K, C) long: how often a client has each class, as it calls them (or token) in a split; (K, 0) in regression."""
        return self.counts[_place(split)]


def kind_of(task: Task, input_shape: tuple[int, ...]) -> str:
    """The kind of data of this task with inputs of this shape, in words."""
    return f"{task.name} of {task.width} outputs from inputs of shape {input_shape}"


def _place(split: str) -> int:
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    return SPLITS.index(split)

"""Federation: one flat tensor of inputs, one of targets, and an index list per client for each split."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from scool_ppl.base.arguments import check_kind, check_names, check_whole, whole
from scool_ppl.base.arrays import ArrayLike, float_tensor, long_tensor
from scool_ppl.base.describe import feed, shown_html
from scool_ppl.base.files import write_npz
from scool_ppl.data.checks import check, warn_of_clients, warn_of_range
from scool_ppl.data.items import read_datasets
from scool_ppl.data.preparation import Preparation
from scool_ppl.data.reading import SPLITS, fractions, read_npz, read_npz_of_one, rows_per_client, split_codes
from scool_ppl.data.roster import Roster, kind_of
from scool_ppl.errors import InputError, unknown
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import Classification
from scool_ppl.tasks.named import read_task, written

MANY = 4000
"""Clients above which nothing is written out as a matrix of all pairs: no true graph of groups, no table of candidates."""


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Who has which data: K clients' rows of inputs (N, ...) and targets (N, ...), never copied per client.

    task: what is learned, by default Classification(num_classes) of inputs float32 and targets (N,) long.

    train, validation, test: K long index lists each; held-out rows may be shared, training rows belong to one client.
    relabel: (K, C) long, client i calls class c relabel[i, c]. groups: the true group of each client.
    truth: (K, K) true graph [receiver, sender], zero diagonal; from groups when these are given and it is not, but for
    more than MANY clients, of whom the groups say as much in less space. regions: a number that is known of each client,
    such as where it is, and which may say something of its group.
    preparation: how a table's rows became these inputs, and what the classes are called, where that is known.
    """

    inputs: Tensor
    targets: Tensor
    train: tuple[Tensor, ...]
    validation: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
    names: tuple[str, ...]
    num_classes: int = 0
    relabel: Tensor | None = None
    groups: tuple[int, ...] | None = None
    truth: Tensor | None = None
    regions: tuple[int, ...] | None = None
    spec: str = ""
    task: Task = None  # type: ignore[assignment]  # classification, where none is given
    preparation: Preparation | None = None

    def __post_init__(self) -> None:
        if self.task is None:
            object.__setattr__(self, "task", Classification(self.num_classes))
        object.__setattr__(self, "num_classes", self.num_classes or self.task.num_classes)
        if self.truth is None and self.groups is not None and len(self.groups) <= MANY:
            group = torch.tensor(self.groups)
            object.__setattr__(self, "truth", (group[:, None] == group).float().fill_diagonal_(0))
        check(self)
        object.__setattr__(self, "task", self.task.fitted(self.targets[torch.cat(self.train)]))

    def __repr__(self) -> str:
        sizes = self.sizes()
        return f"Federation({self.num_clients} clients, {sizes.min()} to {sizes.max()} training rows each, {self.kind})"

    def _repr_html_(self) -> str | None:
        return shown_html(self)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that it holds: inputs, targets, who has which rows, names and true groups; computed once.

        Not of `spec`: how it was asked for, e.g. under which path.
        """
        found = hashlib.sha256()
        for field_ in fields(self):
            absent = field_.name == "regions" and self.regions is None
            if field_.name not in ("spec", "preparation") and not absent:
                found.update(field_.name.encode())
                feed(found, getattr(self, field_.name))
        if self.preparation is not None and self.preparation.columns:  # names of classes change no number
            feed(found, self.preparation)
        return found.hexdigest()

    @property
    def num_clients(self) -> int:
        return len(self.names)

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the classes are called, () where nobody has said so."""
        return () if self.preparation is None else self.preparation.labels

    @property
    def kind(self) -> str:
        """What kind of data clients have; those of one kind can learn from each other."""
        return kind_of(self.task, tuple(self.inputs.shape[1:]))

    @cached_property
    def roster(self) -> Roster:
        """Who takes part, without the data."""
        return Roster.of(self)

    def labels(self, client: int, indices: Tensor) -> Tensor:
        """Targets of these rows as the client calls them."""
        client = self._place("labels", client)
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(self.targets):
            low, high = int(indices.min()), int(indices.max())
            raise InputError(f"labels was given rows {low} to {high}, expected 0 to {len(self.targets) - 1}")
        targets = self.targets[indices]
        return targets if self.relabel is None else self.relabel[client][targets]

    def label_counts(self, split: str = "train") -> Tensor:
        """(K, C) long: how often a client has each class, as it calls them (or token) in a split; (K, 0) in regression."""
        rows = enumerate(self._lists(split))
        return torch.stack([self.task.counts(self.labels(i, own)) for i, own in rows])

    def all_counts(self) -> Tensor:
        """(K, C) long: `label_counts` of all parts together."""
        return torch.stack([self.label_counts(split) for split in SPLITS]).sum(0)

    def class_mask(self) -> Tensor:
        """(K, C) bool: the classes of each client's task, in any of its parts."""
        return self.all_counts() > 0

    def classes(self, client: int) -> Tensor:
        """The classes of a client's task, in any of its parts, ascending."""
        return self.class_mask()[self._place("classes", client)].nonzero().flatten()

    def sizes(self, split: str = "train") -> Tensor:
        """(K,) long: rows per client."""
        return torch.tensor([len(rows) for rows in self._lists(split)])

    def select(self, clients: Sequence[int]) -> Federation:
        """The federation of these clients in this order, on the same tensors; its spec is empty, as it has none."""
        chosen = [self._place("select", client) for client in clients]
        return Federation(
            inputs=self.inputs,
            targets=self.targets,
            train=tuple(self.train[i] for i in chosen),
            validation=tuple(self.validation[i] for i in chosen),
            test=tuple(self.test[i] for i in chosen),
            names=tuple(self.names[i] for i in chosen),
            num_classes=self.num_classes,
            relabel=None if self.relabel is None else self.relabel[chosen],
            groups=None if self.groups is None else tuple(self.groups[i] for i in chosen),
            truth=None if self.truth is None else self.truth[chosen][:, chosen],
            regions=None if self.regions is None else tuple(self.regions[i] for i in chosen),
            task=self.task,
            preparation=self.preparation,
        )

    def join(self, newcomers: Federation) -> Federation:
        """These clients and the newcomers after them, names all different; its spec is empty, as it has none.

        It has groups, and the true graph that they are, where both have groups; else no true graph.
        """
        from scool_ppl.data.joining import joined

        check_kind("newcomers", newcomers, Federation, "load_federation(spec) makes one")

        return joined(self, newcomers)

    @classmethod
    def from_arrays(
        cls,
        inputs: ArrayLike,
        targets: ArrayLike,
        clients: ArrayLike,
        *,
        split: ArrayLike | None = None,
        validation: float = 0.2,
        test: float = 0.2,
        seed: int = 0,
        names: Sequence[str] | None = None,
        groups: ArrayLike | None = None,
        truth: ArrayLike | None = None,
        regions: ArrayLike | None = None,
        num_classes: int | None = None,
        task: Task | str | None = None,
        spec: str = "",
        preparation: Preparation | None = None,
    ) -> Federation:
        """Rows divided by their owner. clients: (N,) ids, taken in ascending order, or K index lists.

        split: (N,) of 0 train, 1 validation, 2 test; without it, seeded fractions of every client's rows.
        task: classification, unless it is given, as a Task or as text: "regression:sigma=0.5", "next-token".
        """
        if num_classes is not None:
            check_whole("num_classes", num_classes, least=0)
        if names is not None:
            check_names("names", names)
        if task is None:
            task = "classification" if num_classes is None else Classification(num_classes)
        task, x, y = read_task(task, inputs, targets)
        count = x.shape[0] if x.ndim else 0
        lists, ids = rows_per_client(clients, count)
        labels = tuple(str(name) for name in names) if names is not None else tuple(f"client {i}" for i in ids)
        if len(labels) != len(lists):
            raise InputError(f"{len(labels)} names for {len(lists)} clients, expected one name a client")
        if split is None:
            parts = [fractions(rows, validation, test, seed, name) for rows, name in zip(lists, labels, strict=True)]
        else:
            codes = split_codes(split, count)
            parts = [[rows[codes[rows] == code] for code in range(len(SPLITS))] for rows in lists]
        made = cls(
            inputs=x,
            targets=y,
            train=tuple(part[0] for part in parts),
            validation=tuple(part[1] for part in parts),
            test=tuple(part[2] for part in parts),
            names=labels,
            num_classes=num_classes or 0,
            groups=None if groups is None else tuple(long_tensor(groups, "groups").flatten().tolist()),
            truth=None if truth is None else float_tensor(truth, "truth"),
            regions=None if regions is None else tuple(long_tensor(regions, "regions").flatten().tolist()),
            spec=spec,
            task=task,
            preparation=preparation,
        )
        warn_of_range(made)
        return made

    @classmethod
    def from_tables(
        cls,
        source: Any,
        target: str | None = None,
        *,
        features: Sequence[str] | None = None,
        without: Sequence[str] = (),
        client: str | None = None,
        split: str | None = None,
        groups: ArrayLike | Mapping[str, int] | str | None = None,
        validation: float = 0.2,
        test: float = 0.2,
        seed: int = 0,
        task: Task | str | None = None,
        missing: Literal["error", "mean"] = "error",
        scale: Literal["pooled", "client", "none"] = "pooled",
        truth: ArrayLike | None = None,
        preparation: Preparation | None = None,
    ) -> Federation:
        """Clients with a table each; `target` is the column to predict, `features` the inputs, by default all others
        but `without`.

        source: a mapping name -> table, a list of paths or a folder (a file's stem is its client's name), where a table is
        a DataFrame (of pandas, or with `to_pandas`, as those of polars and pyarrow have) or the path of a csv, parquet or
        npz file; or one table whose column `client` says whose a row is.
        split: a column of train, validation and test; without it, seeded fractions of every client's rows. groups: a column
        with one value a client, a mapping, or a list. task: "classification" of labels of any kind, which is the default,
        "regression", or a Task.

        Numbers become (x - mean) / std, of the training rows only; texts become an input for each category, those of all
        clients' rows. scale: whose mean and std. "pooled" is of all clients, who thereby reveal the sum over clients of
        each column's values and squares, and so of the target in regression; "client" is each client's own, which reveals
        nothing, and hides what distinguishes clients; "none" leaves numbers as they are. Which categories and labels there
        are is revealed in any case. missing: "mean" puts the training mean (of a category, the shares of its values) where
        a value is missing: that of the client with scale="client", else that of all clients.

        preparation: that of another federation, for newcomers; target, features, task, scale and missing are then its own,
        but for the scales of clients where each has one.
        """
        from scool_ppl.data.tables.making import made

        return made(
            source,
            target=target,
            features=features,
            without=without,
            client=client,
            split=split,
            groups=groups,
            validation=validation,
            test=test,
            seed=seed,
            task=task,
            missing=missing,
            scale=scale,
            truth=truth,
            preparation=preparation,
        )

    @classmethod
    def from_datasets(
        cls,
        datasets: Mapping[str, Dataset[Any]] | Sequence[Dataset[Any]],
        *,
        input: str | None = None,
        label: str | None = None,
        validation: float = 0.2,
        test: float = 0.2,
        seed: int = 0,
        names: Sequence[str] | None = None,
        groups: ArrayLike | None = None,
        truth: ArrayLike | None = None,
        num_classes: int | None = None,
        task: Task | str | None = None,
    ) -> Federation:
        """A map-style Dataset per client, by name or in a sequence, split by seeded fractions.

        Items are pairs (input, label), or mappings with the keys `input` and `label`, by default usual ones such as "image"
        and "label". Inputs are tensors, arrays or PIL images; labels numbers or texts, whose names are remembered.
        """
        named = dict(datasets) if isinstance(datasets, Mapping) else {f"client {i}": d for i, d in enumerate(datasets)}
        joined = read_datasets(named, input, label)
        preparation = joined.preparation
        if preparation is not None and task is None and num_classes is None:
            num_classes = len(preparation.labels)
        federation = cls.from_arrays(
            joined.inputs,
            joined.targets,
            joined.owner,
            validation=validation,
            test=test,
            seed=seed,
            names=list(named) if names is None else names,
            groups=groups,
            truth=truth,
            num_classes=num_classes,
            task=task,
        )
        if preparation is not None and federation.num_classes == len(preparation.labels):
            federation = replace(federation, preparation=preparation)
        warn_of_clients(federation)
        return federation

    @classmethod
    def from_npz(
        cls,
        path: str | Path,
        *,
        name: str | None = None,
        task: Task | str | None = None,
        validation: float = 0.2,
        test: float = 0.2,
        seed: int = 0,
    ) -> Federation:
        """Read the format of `save_npz`; the fractions are used when there is no array `split`.

        name: the file is of one client, who is called so; it needs no array `client`. task: in place of the one that the
        file names, else classification of as many classes as the file has; "classification:num_classes=10" where others
        have more.
        """
        check_kind("path", path, str | Path, "name an .npz file")
        arrays = read_npz(path) if name is None else read_npz_of_one(path, name)
        classes = arrays.get("num_classes")
        try:
            federation = cls.from_arrays(
                arrays["inputs"],
                arrays["targets"],
                arrays["client"],
                split=arrays.get("split"),
                validation=validation,
                test=test,
                seed=seed,
                names=arrays["names"].flatten().tolist() if "names" in arrays else None,
                groups=arrays.get("groups"),
                truth=arrays.get("truth"),
                regions=arrays.get("regions"),
                num_classes=None
                if classes is None or task is not None
                else int(long_tensor(classes, "num_classes").sum()),
                task=str(arrays["task"]) if task is None and "task" in arrays else task,
                spec=str(path),
                preparation=Preparation.from_json(str(arrays["preparation"])) if "preparation" in arrays else None,
            )
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        warn_of_clients(federation)
        return federation

    def save_npz(self, path: str | Path) -> None:
        """Write an .npz that numpy reads without pickle; a row for every image of every client.

        inputs (N, ...), targets (N, ...) as the owner calls them, client (N,) the owner 0 to K - 1, optional split (N,)
        0 train, 1 validation, 2 test, names (K,), groups (K,), truth (K, K), regions (K,), num_classes (), task () as
        text, see `from_arrays`, preparation () as JSON. A held-out image that several clients share becomes a row for each.
        """
        lists = [rows for own in zip(self.train, self.validation, self.test, strict=True) for rows in own]
        sizes = torch.tensor([len(rows) for rows in lists])
        owner = torch.arange(self.num_clients).repeat_interleave(len(SPLITS))
        arrays = {
            "inputs": self.inputs[torch.cat(lists)],
            "targets": torch.cat([self.labels(int(i), rows) for i, rows in zip(owner, lists, strict=True)]),
            "client": owner.repeat_interleave(sizes),
            "split": torch.arange(len(SPLITS)).repeat(self.num_clients).repeat_interleave(sizes),
            "num_classes": torch.tensor(self.num_classes),
        }
        if self.groups is not None:
            arrays["groups"] = torch.tensor(self.groups)
        if self.truth is not None:
            arrays["truth"] = self.truth
        if self.regions is not None:
            arrays["regions"] = torch.tensor(self.regions)
        numbers = {name: values.cpu().numpy() for name, values in arrays.items()}
        texts = {"names": np.array(self.names), "task": np.array(written(self.task))}
        if self.preparation is not None:
            texts["preparation"] = np.array(self.preparation.to_json())
        write_npz(path, {**numbers, **texts})

    def _place(self, what: str, client: int) -> int:
        if not whole(client, least=0) or client >= self.num_clients:
            raise InputError(
                f"{what} was given client {client!r}, expected a position from 0 to {self.num_clients - 1}"
            )
        return int(client)

    def _lists(self, split: str) -> tuple[Tensor, ...]:
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        return {"train": self.train, "validation": self.validation, "test": self.test}[split]

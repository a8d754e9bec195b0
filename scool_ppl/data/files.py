"""Federations that a user's files are: tables of any kind, and the .npz file of a whole federation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from scool_ppl.base.options import accepted, parse_options
from scool_ppl.data.federation import Federation
from scool_ppl.data.tables.learning import Missing, Scale
from scool_ppl.data.texts import texts
from scool_ppl.errors import InputError

TABLES, TEXT = "tables", "text"
HIDDEN = ("path", "seed")
"""Arguments of the functions below that are no options of a spec."""


def tables(
    path: str,
    seed: int,
    *,
    target: str | None = None,
    client: str | None = None,
    features: str | None = None,
    without: str | None = None,
    split: str | None = None,
    groups: str | None = None,
    validation: float = 0.2,
    test: float = 0.2,
    task: str = "classification",
    missing: Missing = "error",
    scale: Scale = "pooled",
) -> Federation:
    """A folder of csv, parquet or npz files, one a client, or one file with a column `client`; features=a+b+c.

    See `Federation.from_tables`.
    """
    return Federation.from_tables(
        path,
        target,
        client=client,
        features=None if features is None else features.split("+"),
        without=() if without is None else without.split("+"),
        split=split,
        groups=groups,
        validation=validation,
        test=test,
        seed=seed,
        task=task,
        missing=missing,
        scale=scale,
    )


def own_npz(path: str, seed: int, *, task: str | None = None, validation: float = 0.2, test: float = 0.2) -> Federation:
    """The file of `Federation.save_npz`, or one with arrays inputs, targets and client."""
    return Federation.from_npz(path, task=task, validation=validation, test=test, seed=seed)


FOLDERS: dict[str, Callable[..., Federation]] = {TABLES: tables, TEXT: texts}
"""What reads `kind:PATH:key=value,...`."""


def is_folder_of_texts(spec: str) -> bool:
    """Is it `text:FOLDER`, and not `text:key=value,...`, which makes texts up?"""
    kind, _, rest = spec.partition(":")
    return kind == TEXT and bool(rest) and ("=" not in rest.split(",")[0].split(":")[0] or Path(rest).is_dir())


class OwnFile(NamedTuple):
    """What reads a path, and `key=value` texts for it."""

    read: Callable[..., Federation]
    path: str
    options: tuple[str, ...]

    def load(self, seed: int, spec: str) -> Federation:
        """The federation, named by the spec that repeats it."""
        if lone := [option for option in self.options if "=" not in option]:
            raise InputError(
                f"'{lone[0]}' in {spec} is no name=value; expected columns with plus signs between them, features=age+sex, "
                "and no comma inside a value"
            )
        options = parse_options(f"option of {spec.partition(':')[0]}", self.options, self.read, HIDDEN)
        return replace(self.read(self.path, seed, **options), spec=spec)


def find_own(spec: str) -> OwnFile | None:
    """What reads `tables:PATH:key=value,...`, `text:FOLDER:key=value,...` or `FILE.npz:key=value,...`; None for a spec of
    another form.

    A path may have colons and equals signs: the options begin with the first name that is one of theirs.
    """
    kind, _, rest = spec.partition(":")
    read, text = (FOLDERS[kind], rest) if kind in FOLDERS else (own_npz, spec)
    known = "|".join(accepted(read, HIDDEN))
    begin = re.search(rf":(?=\s*({known})\s*=)", text) or re.search(r":(?=\w+=[^/]*$)", text)
    path, options = (text[: begin.start()], text[begin.end() :]) if begin else (text.removesuffix(":"), "")
    if kind not in FOLDERS and not path.endswith(".npz"):
        return None
    return OwnFile(read, path, tuple(filter(None, options.split(","))))


def refuse_bare_tables(spec: str) -> None:
    """A table or a folder that is named alone is refused with the spec that reads it."""
    path = re.split(r":(?=\w+=[^/]*$)", spec)[0]
    if path.lower().endswith((".csv", ".parquet")) or (path and Path(path).is_dir()):
        raise InputError(f"'{path}' may be tables; write {TABLES}:{path}:target=COLUMN, see `scool federations`")

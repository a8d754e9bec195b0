"""Federations by name: `recipe:dataset:key=value,...`, a name of `generated.py`, or the user's own `files.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind, check_whole
from scool_ppl.base.options import accepted, parse_options
from scool_ppl.base.randomness import generator
from scool_ppl.data.checks import warn_of_range
from scool_ppl.data.datasets import DATASETS, find_reader, load_dataset
from scool_ppl.data.federation import Federation
from scool_ppl.data.files import find_own, is_folder_of_texts, refuse_bare_tables
from scool_ppl.data.generated import GENERATED
from scool_ppl.data.own import READERS, Arrays
from scool_ppl.data.preparation import Preparation, with_labels
from scool_ppl.data.recipes import RECIPES
from scool_ppl.data.recipes.finish import finished
from scool_ppl.data.recipes.splitting import Partition, Pool
from scool_ppl.data.recipes.turning import darkest, turned
from scool_ppl.errors import InputError, unknown

DEFAULT_FEDERATION = "permuted:digits:clients=20,groups=4,train=50"
_AT_ONCE = 1024  # images that are made ready together
_DEFAULT_RECIPE, _, _DEFAULT_OPTIONS = DEFAULT_FEDERATION.split(":")


class Spec(NamedTuple):
    """A spec taken apart: a recipe or a generated federation, its dataset ("" if generated), and `key=value` texts."""

    recipe: str
    dataset: str
    options: tuple[str, ...]


def load_federation(
    spec: str,
    *,
    seed: int = 0,
    data_root: str | Path | None = None,
    download: bool = False,
    clients: int | None = None,
) -> Federation:
    """The federation of a spec, see `parse`, or of the user's own files, see `find_own`.

    `clients` overrides the option of that name; `download` lets torchvision fetch a named dataset that is not there.
    """
    check_kind("federation", spec, str, "name it, e.g. 'digits'")
    if clients is not None:
        check_whole("clients", clients)
    known = spec.partition(":")[0] in (*RECIPES, *READERS, *GENERATED) and not is_folder_of_texts(spec)
    own = None if known else find_own(spec)
    if own is not None:
        federation = own.load(seed, spec)
        if clients not in (None, federation.num_clients):
            raise InputError(
                f"{spec} has {federation.num_clients} clients, not {clients}; leave the number out, or use select"
            )
        return federation
    try:
        parsed = parse(spec)
    except InputError:
        refuse_bare_tables(spec)
        raise
    random = generator(seed, "federation")
    pairs, rest = _taken(f"option of recipe {parsed.recipe}", parsed.options, finished, ("federation", "seed"))
    if parsed.recipe in GENERATED:
        generate = GENERATED[parsed.recipe]
        options = _options(f"option of federation {parsed.recipe}", pairs, generate, "random", clients)
        return finished(replace(generate(random, **options), spec=_written(parsed, options | rest)), seed, **rest)
    recipe, reader = RECIPES[parsed.recipe], find_reader(parsed.dataset)
    read: dict[str, Any] = {}
    if reader:
        pairs, read = _taken(f"option of {parsed.dataset}", pairs, reader[0], ("path",))
    options = _options(f"option of recipe {parsed.recipe}", pairs, recipe, "pool", clients)
    arrays = load_dataset(parsed.dataset, data_root, download, **read)
    pool = Pool(
        arrays.targets_train,
        arrays.targets_test,
        arrays.num_classes,
        random,
        arrays.inputs_train,
        arrays.inputs_test,
        arrays.ready,
    )
    federation = assemble(arrays, recipe(pool, **options), _written(parsed, options | read | rest))
    federation = finished(federation, seed, **rest)
    if reader:
        warn_of_range(federation)
    return federation


def parse(spec: str) -> Spec:
    """`recipe:dataset:key=value,...` taken apart; the names are checked before any data is read.

    A dataset is a name, a path ending in .npz, `features:` before such a path, or `imagefolder:` before a folder; its
    name alone means the recipe and options of `DEFAULT_FEDERATION`. A generated federation is `name:key=value,...`.
    """
    spec = spec.strip()
    recipe, colon, rest = spec.partition(":")
    if recipe in GENERATED:
        return Spec(recipe, "", _pairs(rest))
    if not colon and recipe not in RECIPES:
        find_reader(spec)
        return Spec(_DEFAULT_RECIPE, spec, _pairs(_DEFAULT_OPTIONS))
    if recipe not in (*RECIPES, *READERS, *DATASETS):
        raise unknown("recipe", recipe, (*RECIPES, *GENERATED, "tables"))
    dataset, _, options = rest.rpartition(":")
    if options and "=" not in options:
        dataset, options = rest, ""
    path = dataset.endswith(".npz") or dataset.partition(":")[0] in READERS
    if recipe not in RECIPES or not dataset or (":" in dataset and not path):
        raise InputError(f"federation '{spec}', expected recipe:dataset:key=value,...; e.g. {DEFAULT_FEDERATION}")
    find_reader(dataset)
    return Spec(recipe, dataset, _pairs(options))


def _pairs(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _taken(
    kind: str, pairs: Sequence[str], function: Callable[..., Any], hidden: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """The pairs that are none of the function's options, and its keyword arguments from those that are."""
    known = accepted(function, hidden)
    own = [pair for pair in pairs if pair.partition("=")[0].strip() in known]
    return [pair for pair in pairs if pair not in own], parse_options(kind, own, function, hidden)


def _options(
    kind: str, pairs: Sequence[str], function: Callable[..., Any], hidden: str, clients: int | None
) -> dict[str, Any]:
    """Keyword arguments of a recipe or a generated federation, the number of clients overridden if given."""
    options = parse_options(kind, pairs, function, (hidden,))
    if clients is not None:
        known = accepted(function, (hidden,))
        if "clients" not in known:
            raise unknown(kind, "clients", known)
        options["clients"] = clients
    return options


def _written(spec: Spec, options: Mapping[str, Any]) -> str:
    """The spec that repeats this federation."""
    pairs = ",".join(f"{name}={'none' if value is None else value}" for name, value in options.items())
    return ":".join(filter(None, (spec.recipe, spec.dataset, pairs)))


def assemble(arrays: Arrays, partition: Partition, spec: str) -> Federation:
    """A federation that keeps only the rows that someone uses, pool first, held-out images after it.

    Where clients see their images rotated, there is a copy of the rows that are used at each of the A angles; where images
    repeat across clients, there is one for each time.
    """
    clients = len(partition.train)
    turns = partition.turned or (0.0,) * clients
    kinds = sorted(set(zip(turns, partition.copies or (0,) * clients, strict=True)))
    kind = [kinds.index(each) for each in zip(turns, partition.copies or (0,) * clients, strict=True)]
    angles = sorted(set(turns))
    angle = [angles.index(turn) for turn in turns]
    pool = torch.zeros(len(kinds), len(arrays.targets_train), dtype=torch.bool)
    held_out = torch.zeros(len(angles), len(arrays.targets_test), dtype=torch.bool)
    for rows, validation, copy in zip(partition.train, partition.validation, kind, strict=True):
        pool[copy, rows] = pool[copy, validation] = True
    # Clients may share one list of held-out images: they go on sharing it, so it costs memory once.
    lists = {(copy, id(rows)): rows for copy, rows in zip(angle, partition.test, strict=True)}
    for (copy, _), rows in lists.items():
        held_out[copy, rows] = True
    place, place_held_out = (used.flatten().cumsum(0).view(used.shape) - 1 for used in (pool, held_out))
    place_held_out += pool.sum()
    moved = {key: place_held_out[key[0], rows] for key, rows in lists.items()}
    used = [
        (arrays.inputs_train, arrays.targets_train, turn, rows) for (turn, _), rows in zip(kinds, pool, strict=True)
    ]
    used += [(arrays.inputs_test, arrays.targets_test, turn, rows) for turn, rows in zip(angles, held_out, strict=True)]
    return Federation(
        inputs=_inputs(arrays, [(images, degrees, rows.nonzero().flatten()) for images, _, degrees, rows in used]),
        targets=torch.cat([targets[rows] for _, targets, _, rows in used]),
        train=tuple(place[copy, rows] for copy, rows in zip(kind, partition.train, strict=True)),
        validation=tuple(place[copy, rows] for copy, rows in zip(kind, partition.validation, strict=True)),
        test=tuple(moved[copy, id(rows)] for copy, rows in zip(angle, partition.test, strict=True)),
        names=tuple(f"client {client}" for client in range(clients)),
        num_classes=arrays.num_classes,
        relabel=partition.relabel,
        groups=partition.groups,
        truth=partition.truth,
        spec=spec,
        preparation=_prepared(arrays, partition),
    )


def _inputs(arrays: Arrays, used: Sequence[tuple[Tensor, float, Tensor]]) -> Tensor:
    """Rows of images, turned by so many degrees, as networks get them; some at a time, so that nothing is there twice."""
    fill = torch.zeros(1, dtype=torch.float32)
    if any(degrees for _, degrees, _ in used):
        fill = arrays.ready(darkest(arrays.inputs_train)[:, None, None]).flatten()
    pieces = [(images, degrees, some) for images, degrees, rows in used for some in rows.split(_AT_ONCE)]
    sizes = [len(some) for *_, some in pieces]
    inputs = torch.empty(sum(sizes), *arrays.inputs_train.shape[1:], dtype=torch.float32)
    for place, (images, degrees, some) in zip(inputs.split(sizes), pieces, strict=True):
        place.copy_(turned(arrays.ready(images[some]), degrees, fill))
    return inputs


def _prepared(arrays: Arrays, partition: Partition) -> Preparation | None:
    """What is known of inputs and labels; where clients rename the classes, each has names of its own."""
    names = arrays.class_names if partition.relabel is None else ()
    return with_labels(names, scaling=arrays.scaling) if names or arrays.scaling is not None else None

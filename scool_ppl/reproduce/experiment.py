"""What an experiment is: a grid of federations (columns), methods (rows) and seeds, and what is drawn of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

from scool_ppl.base.codec import Row
from scool_ppl.errors import InputError, unknown
from scool_ppl.reproduce.measures import MEASURES
from scool_ppl.train.hostile import Attack
from scool_ppl.workbench.settings import Settings
from scool_ppl.zoo.load import as_typed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scool_ppl.reproduce.results import Results


Deployed = Literal["chosen", "mixed", "trained", "deployed", "local", "stack", "single", "unseen as likely"]
BY_CLIENT = ("chosen", "mixed", "trained", "deployed")
"""What cells that are not compact keep, by client."""
Accuracy = Literal["accuracy", "task_accuracy"]
SCALES = ("smoke", "small", "medium", "paper")
"""From seconds to days; `medium` is of those experiments that give values for it."""


class Method(NamedTuple):
    """A row: a model, the hyperparameters to choose from, and which of its networks counts.

    candidates: hyperparameters by name, settings of the training as on the command line ("--learning-rate"), or options of
    the federation after a colon (":common"). With more than one, that of the best validation accuracy under the
    experiment's tuning seed is used.
    deployed: the networks after mixing ("mixed"), after local training ("trained"), or for each client whichever of
    the two has the lower loss on its own validation images ("chosen"); "deployed": what a portfolio makes of its
    candidates by its own rule. Compact cells of a portfolio know "local", "stack",
    "single", "unseen as likely" and "without TRACK", see `compact.deployments`; the candidate {"--deploy": "stack"} makes a
    portfolio of any model and local-only training. only: the columns in which it is run, all by default; seeds: only the
    first so many of the experiment's.
    """

    label: str
    model: str
    candidates: tuple[Row, ...] = ({},)
    deployed: Deployed | str = "chosen"
    only: tuple[str, ...] | None = None
    seeds: int | None = None

    def runs_in(self, column: Column) -> bool:
        """Is it run in this column?"""
        return self.only is None or column.label in self.only


class Column(NamedTuple):
    """A federation and how its clients train; `attack` makes a share of them hostile, see `train.HostileClients`.

    seeds: only the first so many of the experiment's.
    """

    label: str
    federation: str
    settings: Settings = Settings()
    attack: Attack | None = None
    share: float = 0.0
    seeds: int | None = None


Labelled = TypeVar("Labelled", Method, Column)

ALWAYS = (
    *("rounds", "local_epochs", "warmup_epochs", "local_steps", "learning_rate", "momentum", "weight_decay"),
    *("batch_size", "network", "width", "executor", "e_step", "seed"),
)
"""Settings that every request names; the others where they are not as usual, so that new ones leave older cells valid."""


class Cell(NamedTuple):
    """One fit: everything that its numbers depend on, but for the code and the machine."""

    column: Column
    model: str
    choice: Row
    seed: int
    graphs: tuple[int, ...] = ()
    predictions: bool = False
    compact: bool = False

    @property
    def key(self) -> str:
        """What the cell is called in the result store."""
        return " | ".join([self.column.label, as_typed(self.model, self.choice), f"seed {self.seed}"])

    @property
    def settings(self) -> Settings:
        """The column's settings with those of the choice."""
        chosen = {name[2:].replace("-", "_"): value for name, value in self.choice.items() if name.startswith("--")}
        known = [setting.name for setting in fields(Settings)]
        for name in chosen:
            if name not in known:
                raise unknown("setting", f"--{name.replace('_', '-')}", [f"--{n.replace('_', '-')}" for n in known])
        return replace(self.column.settings, seed=self.seed, **chosen)

    @property
    def hyperparameters(self) -> Row:
        """The choice without the settings of the training and the options of the federation."""
        return {name: value for name, value in self.choice.items() if not name.startswith(("--", ":"))}

    @property
    def federation(self) -> str:
        """The column's federation with the options of the choice."""
        options = [f"{name[1:]}={value}" for name, value in self.choice.items() if name.startswith(":")]
        return ",".join([self.column.federation, *options])

    @property
    def request(self) -> Row:
        """What is compared with a stored cell before that is used again."""
        settings = _asked(self.settings)
        for name in settings.keys() - set(ALWAYS):
            if settings[name] == getattr(Settings, name):
                del settings[name]
        if self.compact:
            usual = {name: value for name, value in _asked(Settings()).items() if name in settings}
            settings = {name: value for name, value in settings.items() if value != usual[name]}
            settings["else"] = hashlib.sha256(json.dumps(usual).encode()).hexdigest()[:12]
        request = {"federation": self.federation, "model": self.model, "hyperparameters": self.hyperparameters}
        flags = {"predictions": self.predictions, "compact": self.compact}
        more: Row = {name: True for name, flag in flags.items() if flag}
        if self.column.attack is not None:
            more |= {"attack": self.column.attack, "share": self.column.share}
        return {**request, "settings": settings, "graphs": self.graphs, **more}


def _asked(settings: Settings) -> Row:
    """The settings by name, but for the device, and the rate that none stands for."""
    found = {setting.name: getattr(settings, setting.name) for setting in fields(Settings)}
    del found["device"]
    return found | {"learning_rate": settings.rate}


@dataclass(frozen=True)
class Experiment:
    """A table or figure at one scale.

    paper: what the paper prints, row label -> column label -> text. measures: what is shown of each column, see
    `measures.MEASURES`. accuracy: over all classes, or "task_accuracy", over those that the client has.
    graphs: the rounds whose graphs are kept for the figures, in the cells of the first seed; predictions: are the
    clients' outputs on test data kept there, too? transposed: are methods the columns of the table? compact: cells keep
    means and spreads over the clients only, of all that could be deployed, and the document has an overview of regrets.
    """

    title: str
    columns: tuple[Column, ...]
    methods: tuple[Method, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    tuning_seed: int = 100
    measures: tuple[str, ...] = ("accuracy",)
    accuracy: Accuracy = "accuracy"
    paper: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    graphs: tuple[int, ...] = ()
    predictions: bool = False
    transposed: bool = False
    compact: bool = False
    figures: Callable[[Results], dict[str, Figure]] | None = None

    def __post_init__(self) -> None:
        for what, labels in (
            ("columns", [column.label for column in self.columns]),
            ("methods", [method.label for method in self.methods]),
        ):
            if not labels or len(set(labels)) < len(labels):
                raise InputError(f"experiment '{self.title}' has {what} {labels}, expected different ones; rename one")
        if self.tuning_seed in self.seeds or not self.seeds:
            raise InputError(
                f"experiment '{self.title}' has seeds {self.seeds} and tuning seed {self.tuning_seed}, expected at "
                "least one seed and another for tuning"
            )
        # Now, not when the table is drawn, hours later.
        self._check_names()

    def _check_names(self) -> None:
        names = {
            "measure": (self.measures, MEASURES),
            "accuracy": ((self.accuracy,), get_args(Accuracy)),
            "deployed networks": (
                [method.deployed for method in self.methods if not method.deployed.startswith("without ")],
                get_args(Deployed),
            ),
            "column": (
                [label for method in self.methods for label in method.only or ()],
                [column.label for column in self.columns],
            ),
            "row of the paper": (self.paper, [method.label for method in self.methods]),
        }
        for kind, (given, known) in names.items():
            for name in given:
                if name not in known:
                    raise unknown(f"{kind} in experiment '{self.title}':", name, known)
        for method in self.methods:
            if not self.compact and method.deployed not in BY_CLIENT:
                raise InputError(
                    f"'{method.label}' in experiment '{self.title}' deploys '{method.deployed}', which only compact cells "
                    f"keep; expected one of {', '.join(BY_CLIENT)}, or compact=True"
                )
            if self.compact and (method.deployed in ("chosen", "deployed") or len(method.candidates) > 1):
                raise InputError(
                    f"'{method.label}' in experiment '{self.title}' chooses by validation data, which compact cells do not "
                    "keep; expected one candidate, and deployed to be mixed, trained, stack or single"
                )
            if not method.candidates:
                raise InputError(
                    f"'{method.label}' in experiment '{self.title}' has no candidates, expected one; use {{}}"
                )

    def tuning(self) -> Iterator[Cell]:
        """The cells that only choose between candidates."""
        for column in self.columns:
            for method in self.methods:
                if len(method.candidates) > 1 and method.runs_in(column):
                    yield from (self.cell(column, method, choice, self.tuning_seed) for choice in method.candidates)

    def cells(self, chosen: Callable[[Column, Method], Row]) -> Iterator[Cell]:
        """The cells of the table, with the chosen candidates; cells that two rows share come once."""
        seen = set()
        for column in self.columns:
            for seed in self.seeds:
                for method in self.methods:
                    if seed not in self.seeds_of(column, method):
                        continue
                    cell = self.cell(column, method, chosen(column, method), seed)
                    if cell.key not in seen:
                        seen.add(cell.key)
                        yield cell

    def part(self, methods: Sequence[str] = (), columns: Sequence[str] = (), seeds: int | None = None) -> Experiment:
        """Some rows and columns, by label, and the first so many seeds, all by default: the same cells, without figures."""
        if seeds is not None and not 1 <= seeds <= len(self.seeds):
            raise InputError(f"seeds is {seeds}, expected 1 to {len(self.seeds)}, as many as '{self.title}' has")
        rows, places = _labelled("method", self.methods, methods), _labelled("column", self.columns, columns)
        rows = tuple(
            row._replace(
                only=None if row.only is None else tuple(place.label for place in places if row.runs_in(place))
            )
            for row in rows
        )
        return replace(
            self,
            methods=rows,
            columns=places,
            seeds=self.seeds[:seeds],
            paper={row.label: self.paper[row.label] for row in rows if row.label in self.paper},
            figures=None,
        )

    def seeds_of(self, column: Column, method: Method) -> tuple[int, ...]:
        """The seeds of a row and column, the first ones of all; none where the method is not run."""
        most = min(known for known in (column.seeds, method.seeds, len(self.seeds)) if known is not None)
        return self.seeds[:most] if method.runs_in(column) else ()

    def cell(self, column: Column, method: Method, choice: Row, seed: int) -> Cell:
        """The cell of a row, a column and a seed."""
        first = seed == self.seeds[0]
        graphs = self.graphs if first else ()
        return Cell(column, method.model, choice, seed, graphs, self.predictions and first, self.compact)


def _labelled(kind: str, known: tuple[Labelled, ...], labels: Sequence[str]) -> tuple[Labelled, ...]:
    """Those with the labels, in the experiment's order; all if none is given."""
    for label in labels:
        if label not in [each.label for each in known]:
            raise unknown(kind, label, [each.label for each in known])
    return tuple(each for each in known if not labels or each.label in labels)


def at_scale(scale: str, **values: Any) -> Any:
    """The value for a scale, given by name: at_scale(scale, smoke=..., small=..., paper=...)."""
    if scale not in values:
        raise unknown("scale", scale, values)
    return values[scale]

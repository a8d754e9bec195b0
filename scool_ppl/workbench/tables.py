"""Tables that people read: the end of a fit, and a comparison of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from scool_ppl.base.codec import Row
from scool_ppl.base.statistics import over_seeds
from scool_ppl.runs.folder import milestone
from scool_ppl.workbench.workbench import Result

COLUMNS: dict[str, tuple[str, ...]] = {
    "accuracy": ("accuracy", "mean"),
    "worst 10 %": ("accuracy", "worst10"),
    "before mixing": ("accuracy_trained", "mean"),
    "gain over local": ("gain_over_local",),
    "harmed": ("harmed",),
    "graph L1": ("graph", "l1"),
    "graph AUC": ("graph", "auc"),
    "blocks ARI": ("graph", "ari"),
    "bound": ("elbo",),
    "epsilon": ("epsilon",),
    "MB received": ("bytes", "received"),
    "seconds": ("total_seconds",),
}
"""Column of a comparison -> where its number stands in a summary."""

_MEASURES = {"auc": "AUC", "f1": "F1", "rmse": "RMSE", "mae": "MAE"}

FIRST = 5
"""So many columns are about accuracy; the others, about graph and cost, are printed below them."""


class Summarised(Protocol):
    """A fit of a comparison, of which tables read name and summary."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> Row: ...


class Recorded(Summarised, Protocol):
    """One of which its rounds are read, too."""

    @property
    def history(self) -> list[Row]: ...


def number(summary: Row, path: tuple[str, ...]) -> float | None:
    """A number of a summary; seconds are summed over the verbs, bytes become megabytes, epsilon is the client's who has
    revealed most, if there is a bound for all.
    """
    value: Any = summary
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if path == ("epsilon",) and isinstance(value, dict):
        return None if None in value.values() else float(max(value.values()))
    if isinstance(value, dict):
        return float(sum(value.values()))
    if path[0] == "bytes" and value is not None:
        return float(value) / 1e6
    return None if value is None else float(value)


def fit_table(result: Result) -> Table:
    """One fitted model: accuracy, gain, graph recovery, traffic and the time of each verb."""
    summary = result.summary
    table = Table(title=f"{result.name} on {summary['federation']}", title_justify="left", show_header=False)
    accuracy, trained = summary["accuracy"], summary["accuracy_trained"]
    score = summary.get("score", "accuracy")
    table.add_row(score, f"{_shown(accuracy['mean'])} ± {_shown(accuracy['std'])} over clients")
    table.add_row("worst 10 %", _shown(accuracy["worst10"]))
    if "relies_on" in summary:
        table.add_row("after mixing", _shown(summary["accuracy_mixed"]["mean"]))
    table.add_row("before mixing", _shown(trained["mean"]))
    table.add_row(f"task {score}", _shown(summary["task_accuracy"]["mean"]))
    if summary.get("measures"):
        found = summary["measures"].items()
        shown = (f"{_MEASURES.get(name, name.replace('_', ' '))} {_shown(value['mean'])}" for name, value in found)
        table.add_row("also", ", ".join(shown))
    if summary.get("gain_over_local") is not None:
        beyond = "" if summary["harmed"] is None else f", {summary['harmed']:.0%} beyond noise"
        harmed = f"{summary['below_local']:.0%} of clients below it{beyond}"
        table.add_row("gain over local", f"{summary['gain_over_local']:+.3f}, {harmed}")
    if "relies_on" in summary:
        relied = sorted(summary["relies_on"].items(), key=lambda item: -item[1])
        table.add_row("clients rely on", "; ".join(f"{name} {share:.0%}" for name, share in relied if share >= 0.005))
    graph = summary["graph"]
    if any(value is not None for value in graph.values()):
        recovery = [f"{name} {_shown(value)}" for name, value in graph.items() if value is not None]
        table.add_row("graph against the truth", ", ".join(recovery))
    table.add_row("bound", "-" if summary["elbo"] is None else f"{summary['elbo']:.2f}")
    if spent := summary.get("epsilon"):
        known = [each for each in spent.values() if each is not None]
        told = f"{min(known):.3g} to {max(known):.3g}" if len(known) == len(spent) else "unbounded"
        table.add_row(f"epsilon of {summary['epsilon_of']}", f"{told}, at delta {summary['delta']:g}")
    table.add_row("received per client and round", f"{summary['bytes']['received'] / 1e6:.3g} MB")
    seconds = summary["total_seconds"]
    table.add_row("seconds", ", ".join(f"{verb} {spent:.2f}" for verb, spent in seconds.items()))
    return table


def posterior_table(summary: Row, clients: Sequence[Row]) -> Group:
    """The posterior of a graph: the whole of it, then a row a client."""
    whole = Table(title=f"{summary['draws']} draws of the graph", title_justify="left", show_header=False)
    for name in ("edges", "blocks"):
        if summary[name] is not None:
            whole.add_row(name, f"{summary[name]['mean']:.1f}, 95 % of the draws {_between(summary[name])}")
    for level, count in summary["edges above"].items():
        whole.add_row(f"edges more probable than {level}", str(count))
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    blocks = "block" in clients[0]
    for column in ("client", "learns from", "95 %", *(("block", "with its block") if blocks else ())):
        table.add_column(column, justify="left" if column == "client" else "right")
    for row in clients:
        own = (str(row["block"]), _shown(row["with its block"])) if blocks else ()
        table.add_row(row["client"], f"{row['teachers']:.2f}", _between(row), *own)
    return Group(whole, table)


def _between(ends: Row) -> str:
    return f"{ends['low']:.0f} to {ends['high']:.0f}"


def comparison(results: Sequence[Sequence[Summarised]]) -> list[Row]:
    """One row a model: mean and standard deviation over seeds of every column, None where undefined."""
    rows = []
    for runs in zip(*results, strict=True):
        row: Row = {"model": runs[0].name, "score": runs[0].summary.get("score", "accuracy")}
        for column, path in COLUMNS.items():
            values = [value for run in runs if (value := number(run.summary, path)) is not None]
            row[column] = over_seeds(values)._asdict() if values else None
        rows.append(row)
    return rows


def columns_of(rows: Sequence[Row]) -> list[str]:
    """The columns of a comparison; epsilon where that of some model is bounded."""
    return [column for column in COLUMNS if column != "epsilon" or any(row[column] is not None for row in rows)]


def comparison_table(rows: Sequence[Row], seeds: int) -> Group:
    """The comparison as text: accuracy, then graph and cost; mean, ± standard deviation where there are seeds."""
    names = columns_of(rows)
    parts = []
    for columns in (names[:FIRST], names[FIRST:]):
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("model", overflow="fold")
        for column in columns:
            # A narrow terminal breaks lines between words and never cuts a number.
            title = heading(column, rows)
            words = " ".join([title, *(cell_text(column, row[column], seeds) for row in rows)]).split()
            table.add_column(title, justify="right", min_width=max(map(len, words)))
        for row in rows:
            table.add_row(row["model"], *(cell_text(column, row[column], seeds) for column in columns))
        parts.append(table)
    return Group(*parts, f"mean over {seeds} seed{'s, ± standard deviation' if seeds > 1 else ''}")


def mean_history(histories: Sequence[Sequence[Row]]) -> Sequence[Row]:
    """Accuracy round by round, the mean over seeds."""
    if len(histories) == 1:
        return histories[0]
    rows = []
    for seeds in zip(*histories, strict=True):
        known = [row["accuracy"]["mean"] for row in seeds if row["accuracy"]["mean"] is not None]
        rows.append({**seeds[0], "accuracy": {"mean": over_seeds(known).mean if known else None}})
    return rows


def round_lines(results: Sequence[Sequence[Recorded]]) -> list[Row]:
    """A row for each model, seed and round: the accuracy after mixing, of the worst tenth of clients, and before mixing."""
    return [
        {
            "model": outcome.name,
            "seed": outcome.summary["seed"],
            "round": row["round"],
            "accuracy": row["accuracy"]["mean"],
            "worst 10 %": row["accuracy"]["worst10"],
            "before mixing": row["accuracy_trained"]["mean"],
        }
        for one_seed in results
        for outcome in one_seed
        for row in outcome.history
    ]


def rounds_table(results: Sequence[Sequence[Recorded]]) -> Table:
    """Accuracy after rounds 1, 2, 5, 10, 20, 50, ... and the last, a column a model: mean, ± deviation over seeds."""
    lines, names = round_lines(results), [outcome.name for outcome in results[0]]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("after round", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    last = max(line["round"] for line in lines)
    for round in (number for number in range(1, last + 1) if milestone(number) or number == last):
        here = [line for line in lines if line["round"] == round and line["accuracy"] is not None]
        each = [[line["accuracy"] for line in here if line["model"] == name] for name in names]
        spreads = [over_seeds(values)._asdict() if values else None for values in each]
        table.add_row(str(round), *(cell_text("accuracy", spread, len(results)) for spread in spreads))
    return table


def markdown(rows: Sequence[Row], columns: Sequence[str], seeds: int) -> str:
    """The comparison as a Markdown table."""
    cells = [[row["model"], *(cell_text(column, row[column], seeds) for column in columns)] for row in rows]
    return markdown_table(["model", *(heading(column, rows) for column in columns)], cells)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Any table of texts as Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def heading(column: str, rows: Sequence[Row]) -> str:
    """What the task calls its score stands above the column `accuracy`."""
    return str(rows[0].get("score", column)) if column == "accuracy" else column


def cell_text(column: str, value: dict[str, float] | None, seeds: int) -> str:
    """A number of a comparison as tables print it, with its deviation where there are several seeds."""
    if value is None:
        return "-"
    digits = {"bound": 1, "seconds": 2}.get(column, 3)
    sign = "+" if column == "gain over local" else ""
    text = f"{value['mean']:{sign}.{digits}f}"
    return f"{text} ±{value['std']:.{digits}f}" if seeds > 1 else text


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

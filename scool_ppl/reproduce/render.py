"""An experiment's tables as Markdown and CSV, from its store and nothing else."""

from __future__ import annotations

from dataclasses import replace

from scool_ppl.base.codec import Row
from scool_ppl.base.statistics import over_seeds
from scool_ppl.errors import InputError
from scool_ppl.reproduce.experiment import Column, Experiment, Method
from scool_ppl.reproduce.measures import MEASURES
from scool_ppl.reproduce.results import Results
from scool_ppl.runs.rows import number
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.tables import markdown_table
from scool_ppl.zoo.load import as_typed

DETAILS = (
    *("std", "worst10", "task", "gain", "below", "mixed", "trained"),
    *("l1", "auc", "ari", "trust", "epsilon", "received", "seconds"),
)
"""What the second table shows."""

_OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
_DEPLOYED = {
    "chosen": "for each client whichever of its networks, after local training or after mixing, has the lower loss "
    "on its own validation images",
    "mixed": "the networks after mixing",
    "trained": "the networks after local training",
    "deployed": "each client's candidates, combined by the portfolio's own rule",
    "stack": "each client's candidates, local-only training among them, combined by stacking on its validation images",
    "single": "one of each client's candidates, local-only training unless a paired test on validation images finds better",
    "local": "networks that were trained alone",
    "unseen as likely": "the same as stacked, with classes as likely that a client has never seen",
}


def document(results: Results) -> str:
    """The section of an experiment: what was run, our table beside the paper's, details, and the chosen candidates."""
    experiment = results.experiment
    seeds = len(experiment.seeds)
    parts = [
        f"Mean over clients{f', ± standard deviation over {seeds} seeds' if seeds > 1 else ', one seed'}; "
        + _counted(results),
        *_fewer_seeds(experiment),
        *(_compact_tables(results) if experiment.compact else [markdown_table(*main_table(results))]),
        "Federations: "
        + "; ".join(f"*{column.label}* `{column.federation}`, {training(column)}" for column in experiment.columns)
        + ".",
    ]
    if not experiment.compact:
        parts += [f"Details, *{column.label}*:\n\n{details(results, column)}" for column in experiment.columns]
    return "\n\n".join(part for part in [*parts, choices(results)] if part) + "\n"


def _fewer_seeds(experiment: Experiment) -> list[str]:
    """What was run on the first seeds only."""
    fewer = {
        "federations": [
            f"{column.label} ({column.seeds})" for column in experiment.columns if column.seeds is not None
        ],
        "methods": [f"{method.label} ({method.seeds})" for method in experiment.methods if method.seeds is not None],
    }
    told = [f"{kind} run on the first seeds only: {', '.join(labels)}" for kind, labels in fewer.items() if labels]
    return [f"Fewer seeds: {'; '.join(told)}."] if told else []


def _compact_tables(results: Results) -> list[str]:
    """All federations together, and a table of federations and methods for each of some measures."""
    tables = [f"Over all federations:\n\n{markdown_table(*overview(results))}"]
    for measure in ("accuracy", "regret", "beyond", "worst_gain", "l1_first"):
        only = replace(results.experiment, measures=(measure,), paper={})
        table = markdown_table(*main_table(results.shown_as(only)))
        tables.append(f"*{MEASURES[measure].title}*, by federation:\n\n{table}")
    return tables


def refreshed(text: str, name: str, section: str) -> str:
    """A document with a section between its marks replaced: `<!-- name -->` and `<!-- end name -->`."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
        raise InputError(f"the document has no section '{begin}' ... '{end}', expected one; add the two lines")
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{section}\n{end}{rest.split(end)[1]}"


def training(column: Column) -> str:
    """How the clients of a column train, in words."""
    own = column.settings
    if own.local_steps:
        local = f"{own.local_steps} steps"
    else:
        epochs = f"{own.local_epochs} epoch{'s' if own.local_epochs != 1 else ''}"
        local = f"{epochs} (the first {own.warmup_epochs} epochs)"
    trained = f"{_OPTIMIZERS[own.optimizer]} at {own.rate:g}"
    network = own.network if own.width is None else f"{own.network} of width {own.width:g}"
    return f"{own.rounds} rounds of {local}, network {network}, {trained}, batches of {own.batch_size}{_private(own)}"


def _private(own: Settings) -> str:
    """How training and evidence are private, in words."""
    if own.dp_noise is None:
        return ""
    evidence = "evidence as it is"
    if own.dp_evidence_noise is not None:
        evidence = f"noise {own.dp_evidence_noise:g} and clip {own.dp_evidence_clip:g} of losses"
    return f", private with noise {own.dp_noise:g} and clip {own.dp_clip:g}, {evidence}, delta {own.dp_delta:g}"


def first_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table that says most: the main one, or, of compact cells, the overview."""
    return overview(results) if results.experiment.compact else main_table(results)


def main_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: for each column and measure what the paper prints, where it does, and what was measured."""
    experiment = results.experiment
    heads, body = ["method"], [[method.label] for method in experiment.methods]
    for column in experiment.columns:
        for measure in experiment.measures:
            label = head(results, column, measure)
            printed = [experiment.paper.get(method.label, {}).get(label) for method in experiment.methods]
            if any(printed):
                heads.append(f"{label}, paper")
                for row, text in zip(body, printed, strict=True):
                    row.append(text or "-")
            heads.append(f"{label}, here" if any(printed) else label)
            for row, method in zip(body, experiment.methods, strict=True):
                row.append(cell(results, column, method, measure))
    if experiment.transposed:
        first, *rest = zip(["federation", *heads[1:]], *body, strict=True)
        return list(first), [list(row) for row in rest]
    return heads, body


def head(results: Results, column: Column, measure: str) -> str:
    """The head of a column: its label, its measure, or both where there are several."""
    experiment, title = results.experiment, MEASURES[measure].title
    if len(experiment.measures) == 1:
        return column.label
    return title if len(experiment.columns) == 1 else f"{column.label}, {title}"


def details(results: Results, column: Column) -> str:
    """What else is known of a column's rows; without measures that nobody has, or that only repeat the accuracy."""
    methods = results.experiment.methods
    shown = {m: [cell(results, column, method, m) for method in methods] for m in DETAILS}
    shown = {m: texts for m, texts in shown.items() if set(texts) != {"-"}}
    if shown.get("task") == [cell(results, column, method, "accuracy") for method in methods]:
        del shown["task"]
    rows = [[method.label, *(texts[i] for texts in shown.values())] for i, method in enumerate(methods)]
    return markdown_table(["method", *(MEASURES[measure].title for measure in shown)], rows)


def overview(results: Results) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: each method over all its federations, regret and harm in the mean and at worst, traffic and time."""
    rows = []
    for method in results.experiment.methods:
        cells = [method.label]
        for measure, worst in (("regret", max), ("beyond", max), ("worst_gain", min)):
            by_column = {
                column.label: over_seeds(values).mean * MEASURES[measure].scale
                for column in results.experiment.columns
                if (values := results.values(column, method, measure)) is not None
            }
            if not by_column:
                cells += ["-", "-"]
                continue
            label = worst(by_column, key=lambda label: by_column[label])
            digits = MEASURES[measure].digits
            cells += [
                f"{over_seeds([*by_column.values()]).mean:.{digits}f}",
                f"{by_column[label]:.{digits}f} ({label})",
            ]
        for measure in ("received", "seconds"):
            known = [results.values(column, method, measure) for column in results.experiment.columns]
            scaled = [value * MEASURES[measure].scale for values in known if values for value in values]
            cells.append(f"{over_seeds(scaled).mean:.{MEASURES[measure].digits}f}")
        rows.append(cells)
    heads = ["method", "regret, %", "worst regret, %", "harmed beyond noise, %", "most harmed, %"]
    heads += ["worst client's gain, %", "the worst of all, %", "MB received a round", "seconds"]
    return heads, rows


def choices(results: Results) -> str:
    """Which candidate was chosen where, and from which."""
    experiment = results.experiment
    rows = []
    for method in experiment.methods:
        if len(method.candidates) > 1:
            candidates = ", ".join(f"`{as_typed(method.model, choice)}`" for choice in method.candidates)
            chosen = [
                f"`{as_typed(method.model, results.chosen(column, method))}`" if method.runs_in(column) else "-"
                for column in experiment.columns
            ]
            rows.append([method.label, candidates, *chosen])
    if not rows:
        return ""
    labels = [column.label for column in experiment.columns]
    text = f"Chosen by validation accuracy under seed {experiment.tuning_seed}, which is in no table:"
    return f"{text}\n\n{markdown_table(['method', 'candidates', *labels], rows)}"


def client_rows(results: Results) -> list[Row]:
    """One row a client: accuracy and loss of its networks on test data."""
    measured = [(name, when) for when in ("mixed", "trained") for name in ("accuracy", "task_accuracy", "loss")]
    rows: list[Row] = []
    experiment = results.experiment
    for column in experiment.columns:
        for method in (method for method in experiment.methods if method.runs_in(column)):
            choice = as_typed(method.model, results.chosen(column, method))
            about: Row = {"column": column.label, "method": method.label, "choice": choice}
            seeds, records = experiment.seeds_of(column, method), results.records(column, method)
            for seed, record, scores in zip(seeds, records, results.by_client(column, method), strict=True):
                tables = {f"{name}_{when}": record["test"][when][name] for name, when in measured}
                for client, numbers in enumerate(zip(*tables.values(), strict=True)):
                    deployed: Row = {"seed": seed, "client": client, "deployed_accuracy": number(float(scores[client]))}
                    rows.append({**about, **deployed, **dict(zip(tables, numbers, strict=True))})
    return rows


def cell(results: Results, column: Column, method: Method, measure: str) -> str:
    """A measure as text: mean ± standard deviation over the seeds."""
    values = results.values(column, method, measure)
    if values is None:
        return "-"
    form = MEASURES[measure]
    mean, std = over_seeds([value * form.scale for value in values])
    text = f"{mean:{'+' if form.signed else ''}.{form.digits}f}"
    return f"{text} ± {std:.{form.digits}f}" if len(values) > 1 else text


def _counted(results: Results) -> str:
    """Which networks count for which rows."""
    methods = results.experiment.methods
    kinds = list(dict.fromkeys(method.deployed for method in methods))
    if len(kinds) == 1:
        return f"counted are {_DEPLOYED[kinds[0]]}."
    rows = {kind: ", ".join(method.label for method in methods if method.deployed == kind) for kind in kinds}
    told = {kind: _DEPLOYED.get(kind, f"the same as stacked, {kind}") for kind in kinds}
    named = [f"{told[kind]} ({rows[kind]})" for kind in kinds if kind != "chosen"]
    others = f"; for the others, {_DEPLOYED['chosen']}" if "chosen" in kinds else ""
    return f"counted are {', '.join(named)}{others}."

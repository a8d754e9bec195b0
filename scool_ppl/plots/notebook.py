"""What notebooks show: a graph as its picture, a fit as a table and that picture, tables of other results."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import singledispatch
from html import escape
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from scool_ppl.base.statistics import mean_of_worst, over_clients
from scool_ppl.data.federation import Federation
from scool_ppl.em.state import Deployment, Fit
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots.graph.drawing import draw_graph
from scool_ppl.plots.style import png_of
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 20
"""Clients in a table; of more the others are counted."""
_DRAWN = 2000
"""Clients in a picture; of more a notebook shows the text alone."""


@singledispatch
def png(thing: object) -> bytes | None:
    """The picture of a thing, None where it has none."""
    return None


@singledispatch
def html(thing: object) -> str | None:
    """The table of a thing, None where it has none."""
    return None


@png.register
def _(graph: CooperationGraph) -> bytes | None:
    if graph.num_clients > _DRAWN:
        return None
    return png_of(cast("Figure", draw_graph(graph).figure))


@html.register
def _(fit: Fit) -> str:
    last: Mapping[str, Any] = fit.history[-1] if fit.history else {}
    about = {"rounds": str(fit.state.round), **_scores(fit.score_name, fit.deployed.score)}
    if fit.deployment.chosen:
        about["clients rely on"] = _shares(fit.deployment)
    about["before mixing"] = _number(over_clients(fit.trained.score).mean)
    found = {name: value for name, value in last.get("graph", {}).items() if value is not None}
    if found:
        about["graph against the truth"] = ", ".join(f"{name} {_number(value)}" for name, value in found.items())
    if last.get("elbo") is not None:
        about["bound"] = _number(last["elbo"])
    picture = png(fit.graph)
    drawn = f'<img alt="{escape(repr(fit.graph))}" src="data:image/png;base64,{{}}">' if picture else ""
    return _table([], list(about.items()), "fit") + drawn.format(base64.b64encode(picture or b"").decode())


@html.register
def _(federation: Federation) -> str:
    columns: dict[str, Sequence[Any]] = {"client": federation.names}
    if federation.groups is not None:
        columns["true group"] = federation.groups
    columns |= {name: federation.sizes(split).tolist() for name, split in _SPLITS.items()}
    return _table(list(columns), list(zip(*columns.values(), strict=True)), repr(federation))


_SPLITS = {"training rows": "train", "validation rows": "validation", "test rows": "test"}


@html.register
def _(clients: Clients) -> str:
    about = {"networks": repr(clients), "executor": clients.executor_name, "device": str(clients.device)}
    return _table([], list(about.items()), "clients") + (html(clients.federation) or "")


@html.register
def _(evaluation: Evaluation) -> str:
    about = {**_scores("score", evaluation.score), "loss": _number(over_clients(evaluation.loss).mean)}
    return _table([], list(about.items()), f"evaluation of {len(evaluation.score)} clients")


@html.register
def _(deployment: Deployment) -> str:
    shares = deployment.weights
    found = zip(deployment.candidates, shares.mean(0).tolist(), shares.amax(0).tolist(), strict=True)
    rows = [(name, f"{mean:.0%}", f"{most:.0%}") for name, mean, most in found]
    return _table(["candidate", "clients rely on it", "at most"], rows, f"what {len(shares)} clients deploy")


def _scores(name: str, values: Tensor) -> dict[str, str]:
    mean, std = over_clients(values)
    return {name: f"{mean:.3f} ± {std:.3f} over clients", "worst 10 %": _number(mean_of_worst(values, 0.1))}


def _shares(deployment: Deployment) -> str:
    shares = zip(deployment.candidates, deployment.weights.mean(0).tolist(), strict=True)
    return "; ".join(f"{name} {share:.0%}" for name, share in sorted(shares, key=lambda item: -item[1]))


def _number(value: float) -> str:
    return f"{value:.3f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """An HTML table of at most so many rows; everything in it is text."""
    head = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in heads)}</tr>" if heads else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows[:_ROWS])
    more = f"<p>and {len(rows) - _ROWS} more</p>" if len(rows) > _ROWS else ""
    return f"<table><caption>{escape(caption)}</caption>{head}{body}</table>{more}"

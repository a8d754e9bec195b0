"""What a run writes down: one row per round, and the summary at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor

from scool_ppl.base.codec import Row
from scool_ppl.base.statistics import mean_of_worst, over_clients
from scool_ppl.data.federation import Federation
from scool_ppl.data.roster import Roster
from scool_ppl.em.state import EMInfo, Fit
from scool_ppl.graph.scores import Scores
from scool_ppl.train.contract import Evaluation


def number(value: float) -> float | None:
    """The value, or None where it is not finite, which JSON cannot say."""
    return value if math.isfinite(value) else None


def spread(values: Tensor) -> dict[str, float | None]:
    """Mean and standard deviation over clients, and the mean of the worst tenth (at least one client)."""
    mean, std = over_clients(values)
    return {"mean": number(mean), "std": number(std), "worst10": number(mean_of_worst(values, 0.1))}


def history_row(
    round: int,
    info: EMInfo,
    mixed: Evaluation,
    trained: Evaluation,
    scores: Scores,
    score: str = "accuracy",
    carried: float | None = None,
) -> Row:
    """One line of history.jsonl: `accuracy` is of the mixed networks, `accuracy_trained` of those before mixing.

    score: what the task calls it. bytes, in the mean over clients: what each would receive and send if clients gave their
    networks to one another, a network for each other client that is looked at or used; and what has travelled to them and
    from them in fact (`carried`), evaluation included, where they are elsewhere.
    """
    traffic = {"received": float(info.bytes_received.mean()), "sent": float(info.bytes_sent.mean())}
    return {
        "round": round,
        "elbo": number(info.elbo),
        "loss": number(info.loss),
        "score": score,
        "accuracy": spread(mixed.score),
        "accuracy_trained": spread(trained.score),
        "task_accuracy": spread(mixed.task_score),
        "graph": scores._asdict(),
        "bytes": traffic if carried is None else {**traffic, "carried": carried / len(info.bytes_received)},
        "seconds": info.seconds,
        "quarantined": dict(info.quarantined),
        **({} if info.epsilon is None else {"epsilon": {name: number(each) for name, each in info.epsilon.items()}}),
    }


def against_local(accuracy: Tensor, local: Tensor) -> dict[str, float | None]:
    """gain_over_local: mean accuracy minus local-only's; below_local: share of clients below their local-only accuracy.

    None where nobody has test images.
    """
    known = accuracy.isfinite() & local.isfinite()
    gain = (accuracy - local)[known].double()
    return {"gain_over_local": number(float(gain.mean())), "below_local": number(float((gain < 0).double().mean()))}


def client_rows(
    federation: Federation | Roster,
    fit: Fit,
    local: Evaluation | None,
    measures: Mapping[str, Tensor] = MappingProxyType({}),
) -> list[Row]:
    """One row a client: its images, accuracy, loss and other measures of what it deploys and of its networks on test data,
    and how much it relies on each candidate where it has several; None where undefined.
    """
    deployed, mixed, trained = fit.deployed, fit.evaluation, fit.trained
    columns: dict[str, Sequence[Any]] = {
        "client": federation.names,
        "group": federation.groups or [None] * federation.num_clients,
        **{split: federation.sizes(split).tolist() for split in ("train", "validation", "test")},
        "accuracy": deployed.score.tolist(),
        "task_accuracy": deployed.task_score.tolist(),
        "loss": deployed.loss.tolist(),
        **{name: values.tolist() for name, values in measures.items()},
        "accuracy_trained": trained.score.tolist(),
        "loss_trained": trained.loss.tolist(),
    }
    if local is not None:
        columns["accuracy_local"] = local.score.tolist()
        columns["gain_over_local"] = (deployed.score - local.score).tolist()
    if spent := fit.history[-1].get("epsilon") if fit.history else None:
        columns["epsilon"] = [spent[name] for name in federation.names]
    if fit.deployment.chosen:
        columns["accuracy_mixed"] = mixed.score.tolist()
        shares = zip(fit.deployment.candidates, fit.deployment.weights.T.tolist(), strict=True)
        columns |= {f"relies on {candidate}": share for candidate, share in shares}
    lines = zip(*columns.values(), strict=True)
    return [dict(zip(columns, (number(v) if isinstance(v, float) else v for v in line), strict=True)) for line in lines]


def total_seconds(history: Sequence[Row]) -> dict[str, float]:
    """Seconds of each verb over all rounds."""
    return {verb: sum(row["seconds"][verb] for row in history) for verb in history[-1]["seconds"]}

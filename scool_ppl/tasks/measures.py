"""How good predictions are beside a task's score; nan where a measure is not defined."""

from __future__ import annotations

import numpy as np
from torch import Tensor

Measures = dict[str, float]

_BINS = 10


def of_classes(predictive: Tensor, targets: Tensor) -> Measures:
    """Of probabilities (n, C) and labels (n,): AUC, F1, balanced accuracy, log-loss and calibration error.

    auc: of the second of two classes; of more, the mean over classes of each against the rest. f1: the same, of the most
    probable class; nan where of two classes the second neither occurs nor is predicted. balanced_accuracy: mean recall of
    the classes that occur. log_loss: mean -log p(y). calibration_error: sum_b n_b / n |accuracy_b - confidence_b| over ten
    bins of the probability of the predicted class.
    """
    from sklearn import metrics

    names = ("auc", "f1", "balanced_accuracy", "log_loss", "calibration_error")
    if len(targets) == 0:
        return dict.fromkeys(names, float("nan"))
    p, y = predictive.double().numpy(), targets.numpy()
    p = p / p.sum(1, keepdims=True)
    chosen, present = p.argmax(1), np.unique(y)
    sides = [1] if p.shape[1] == 2 else present.tolist()
    areas = [metrics.roc_auc_score(y == side, p[:, side]) for side in sides if 0 < (y == side).sum() < len(y)]
    average = {"average": "binary"} if p.shape[1] == 2 else {"average": "macro"}
    nobody = p.shape[1] == 2 and not (y == 1).any() and not (chosen == 1).any()
    values = (
        float(np.mean(areas)) if areas else float("nan"),
        float("nan") if nobody else metrics.f1_score(y, chosen, zero_division=0, **average),
        metrics.recall_score(y, chosen, labels=present, average="macro", zero_division=0),
        metrics.log_loss(y, p.clip(1e-15), labels=range(p.shape[1])) if p.shape[1] > 1 else 0.0,
        _calibration_error(p.max(1), chosen == y),
    )
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def of_numbers(predicted: Tensor, targets: Tensor) -> Measures:
    """Of predicted means (n, D) and targets (n,) or (n, D): root mean squared and mean absolute error."""
    if len(targets) == 0:
        return dict.fromkeys(("rmse", "mae"), float("nan"))
    error = (predicted - targets.reshape(predicted.shape)).double()
    return {"rmse": float(error.square().mean().sqrt()), "mae": float(error.abs().mean())}


def of_tokens(predictive: Tensor, targets: Tensor) -> Measures:
    """Of probabilities (n, T, V) and tokens (n, T): perplexity, exp of the mean of -log p(y_t)."""
    if len(targets) == 0:
        return {"perplexity": float("nan")}
    p = predictive.double().gather(-1, targets[..., None]).clamp(min=1e-30)
    return {"perplexity": float((-p.log().mean()).exp())}


def _calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, weights=right - confidence, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(right))

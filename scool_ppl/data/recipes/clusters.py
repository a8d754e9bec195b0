"""Images divided by what they look like instead of by their labels."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from scool_ppl.errors import InputError

_FITTED = 5000
"""Rows that axes and centres are found on: more change neither, and cost minutes."""


def clusters(
    train: Tensor, test: Tensor, count: int, dimensions: int, random: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The cluster of each training row (N,) and held-out row (T,): k-means in the principal axes of both together.

    Axes and centres are those of up to 5,000 rows drawn at random, every row goes to the nearest centre. Clusters are
    numbered by size, the largest first. All that is random is drawn from `random`; rounding differs between processors
    and releases of scikit-learn, so there a row as near to one centre as to another may change sides.
    """
    from sklearn.cluster import KMeans

    rows = torch.cat([train.flatten(1), test.flatten(1)])
    if not 1 <= count <= len(rows):
        raise InputError(f"latent has groups={count}, expected 1 to {len(rows)}, the number of images")
    if dimensions < 1:
        raise InputError(f"latent has dimensions={dimensions}, expected at least 1")
    fitted = torch.randperm(len(rows), generator=random)[:_FITTED].sort().values
    state = int(torch.randint(2**31 - 1, (), generator=random))
    places = _principal(rows, fitted, dimensions, state).double().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about too few distinct rows, which is refused below
        means = KMeans(count, n_init=10, random_state=state).fit(places[fitted.numpy()])
    found = torch.from_numpy(means.predict(places)).long()
    sizes = torch.bincount(found, minlength=count)
    if not sizes.all():
        raise InputError(
            f"latent found {int((sizes > 0).sum())} clusters in the images, expected groups={count}; lower groups"
        )
    number = sizes.argsort(descending=True, stable=True).argsort()
    numbered = number[found]
    return numbered[: len(train)], numbered[len(train) :]


def _principal(rows: Tensor, fitted: Tensor, dimensions: int, state: int) -> Tensor:
    """The rows in the first principal axes of the fitted ones; as they are where that would only turn them."""
    if rows.shape[1] <= dimensions:
        return rows
    from sklearn.decomposition import PCA

    axes = PCA(min(dimensions, len(fitted)), svd_solver="randomized", random_state=state)
    axes.fit(rows[fitted].double().numpy())
    # The mean moves all rows alike, so it moves no row from one centre to another.
    return rows @ torch.from_numpy(axes.components_).float().T

"""One picture of a federation: how much data each client has, and of which classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scool_ppl.data.federation import Federation
from scool_ppl.plots.style import PALETTE, new_figure, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Counts = NDArray[np.int64]
_LETTER = 4.2
"""Width of a letter of the tick labels in points, at most."""


def class_counts(federation: Federation, split: str = "train") -> Counts | None:
    """(K, C) rows of each class that each client has in a split, None where the targets are no classes."""
    targets = federation.targets
    if targets.ndim != 1 or targets.is_floating_point():
        return None
    return federation.label_counts(split).numpy()


def draw_federation(federation: Federation) -> Figure:
    """Rows per client above; below, where there are classes, a map clients x classes for training and for testing.

    Clients are sorted by group, lines are between groups; testing is left out where it has the classes of training.
    Blank is none, the darker the more.
    """
    groups = np.array(federation.groups if federation.groups is not None else [0] * federation.num_clients)
    order = groups.argsort(kind="stable")
    maps = class_maps(federation)
    classes = next(iter(maps.values())).shape[1] if maps else 0
    width = float(np.clip(2.6 + 0.2 * len(order), 6.4, 15))
    height = float(np.clip(0.2 * classes, 1.8, 6.0))
    names = short_names(federation.names)
    below = 0.06 * max(len(name) for name in names)
    figure = new_figure((width, (2.3 if maps else 2.8) + len(maps) * (height + 0.5) + below))
    axes = figure.subplots(1 + len(maps), 1, sharex=True, squeeze=False, height_ratios=[1.4, *[height] * len(maps)])
    _draw_sizes(axes[0, 0], federation, order)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    highest = max((counts.max() for counts in maps.values()), default=1)
    for ax, (split, counts) in zip(axes[1:, 0], maps.items(), strict=True):
        shown: Any = np.ma.masked_equal(counts[order].T, 0)
        # Dark is many in grey, too; the scale begins below 0 so that few are not as light as none.
        image = ax.imshow(shown, cmap="viridis_r", vmin=-0.2 * highest, vmax=highest, aspect="auto", origin="lower")
        bar = figure.colorbar(image, ax=ax, label="rows (blank: none)", pad=0.01)
        bar.ax.set_ylim(0, highest)
        ax.set_ylabel(f"class, {split}")
        _ticks(ax, [*(short_names(federation.class_names) or map(str, range(classes)))], height * 72, vertical=True)
    inner = 72 * (width - 1.6)
    last = axes[-1, 0]
    last.set(xlabel="client", xlim=(-0.5, len(order) - 0.5))
    _ticks(last, [names[client] for client in order], inner, vertical=False)
    if federation.groups is not None:
        for ax in axes[:, 0]:
            _mark_groups(ax, groups[order])
        _name_groups(axes[0, 0], groups[order], inner)
    return figure


def class_maps(federation: Federation) -> dict[str, Counts]:
    """Counts by class in training, and in testing if clients are tested on other classes; none without classes."""
    counts = {split: class_counts(federation, split) for split in ("train", "test")}
    train, test = counts["train"], counts["test"]
    if train is None or test is None:
        return {}
    # Shared held-out images have all classes of a client that may lack a rare one: that alone is no other task.
    same = ((train > 0) == (test > 0)).mean() > 0.95
    return {"training": train} if same else {"training": train, "test": test}


def _draw_sizes(ax: Axes, federation: Federation, order: Counts) -> None:
    places, floor = np.arange(len(order)), np.zeros(len(order))
    for split, colour, hatch in (("train", PALETTE[0], ""), ("validation", PALETTE[1], "////")):
        sizes = federation.sizes(split).numpy()[order]
        name = "training" if split == "train" else split
        ax.bar(places, sizes, bottom=floor, color=colour, hatch=hatch, label=name, width=0.8, linewidth=0)
        floor = floor + sizes
    ax.set_ylabel("rows")
    ax.spines[["top", "right"]].set_visible(False)


def _ticks(ax: Axes, labels: list[str], points: float, *, vertical: bool) -> None:
    """As many labels as fit: all of them, or every second, fifth, tenth, ... one. points: the length of the axis."""
    longest = max(len(label) for label in labels)
    turned = not vertical and longest > 3
    needed = 10.0 if vertical or turned else _LETTER * longest + 5
    step = next(
        step
        for step in (1, 2, 5, *(10**p * s for p in range(1, 9) for s in (1, 2, 5)))
        if step * points / len(labels) >= needed
    )
    places = range(0, len(labels), step)
    (ax.set_yticks if vertical else ax.set_xticks)(places, [labels[place] for place in places])
    ax.tick_params(axis="y" if vertical else "x", labelsize=7, length=2, rotation=90 if turned else 0)


def _mark_groups(ax: Axes, groups: Counts) -> None:
    ends = np.flatnonzero(np.diff(groups)) + 0.5
    if len(ends) <= 60:
        for end in ends:
            ax.axvline(end, color="black", linewidth=0.8)


def _name_groups(ax: Axes, groups: Counts, points: float) -> None:
    """The names of the groups above their middles; those that would touch the one before are left out."""
    names, middles, free = [], [], -np.inf
    for group in np.unique(groups):
        middle = float(np.flatnonzero(groups == group).mean())
        half = (_LETTER * len(str(group)) + 4) / 2 * len(groups) / points
        if middle - half >= free:
            names.append(str(group))
            middles.append(middle)
            free = middle + half
    above = ax.secondary_xaxis("top")
    above.set_xticks(middles, names)
    above.tick_params(length=0, labelsize=7)
    above.set_xlabel("group")
    above.spines["top"].set_visible(False)

"""The picture of a federation: what it shows, and that no two texts of one axis overlap."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from scool_ppl import Federation, load_federation
from scool_ppl.plots.federation import class_counts, draw_federation


def wide(clients: int, classes: int, groups: int) -> Federation:
    """`clients` clients with two classes of `classes` each."""
    targets = torch.arange(clients * 10) % 2 + torch.arange(clients * 10) // 10 % (classes // 2) * 2
    owner = torch.arange(clients * 10) // 10
    group = torch.arange(clients) * groups // clients
    return Federation.from_arrays(torch.zeros(len(targets), 2), targets, owner, groups=group, num_classes=classes)


@pytest.mark.parametrize(
    ("clients", "classes", "groups"), [(1, 2, 1), (5, 10, 2), (20, 10, 4), (100, 10, 100), (100, 100, 10), (70, 40, 7)]
)
def test_labels_do_not_overlap(clients: int, classes: int, groups: int) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = draw_federation(wide(clients, classes, groups))
    FigureCanvasAgg(figure).draw()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis, *(child.xaxis for child in ax.child_axes)):
            boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
            for first, second in pairwise(boxes):
                assert not first.overlaps(second)
            for box in boxes:
                assert not axis.label.get_window_extent().overlaps(box) or not axis.label.get_text()


def panels(federation: Federation) -> list[Any]:
    return [ax.images[0].get_array() for ax in draw_federation(federation).axes if ax.images]


def test_the_map_is_the_label_counts_sorted_by_group() -> None:
    federation = load_federation("groups:digits:clients=6,groups=3,order=listed").select([4, 0, 2, 1, 5, 3])
    assert federation.groups == (2, 0, 1, 0, 2, 1)
    (shown,) = panels(federation)
    order = [1, 3, 2, 5, 0, 4]
    counts = federation.label_counts()[order].T.numpy()
    assert np.array_equal(shown.filled(0), counts)
    assert np.array_equal(np.ma.getmaskarray(shown), counts == 0)
    bars = draw_federation(federation).axes[0].containers
    assert [bar.get_height() for bar in bars[0]] == federation.sizes()[order].tolist()
    assert [bar.get_height() for bar in bars[1]] == federation.sizes("validation")[order].tolist()


def test_another_target_is_another_map() -> None:
    federation = load_federation("shuffled-targets:digits:clients=6,groups=3,base=groups,order=listed")
    train, test = panels(federation)
    assert np.array_equal(train.filled(0), federation.label_counts().T.numpy())
    assert np.array_equal(test.filled(0), federation.label_counts("test").T.numpy())


def test_without_classes_sizes_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = wide(4, 2, 2)
    assert class_counts(federation) is not None
    monkeypatch.setattr("scool_ppl.plots.federation.class_counts", lambda *_: None)
    figure = draw_federation(dataclasses.replace(federation, groups=None, truth=None))
    assert len(figure.axes) == 1
    assert not figure.axes[0].images

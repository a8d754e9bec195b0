"""All partitions of a few clients."""

from __future__ import annotations

from collections.abc import Iterator


def partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Labels in order of first appearance, each partition once: 1, 2, 5, 15, 52, ... of 1, 2, 3, 4, 5, ... clients."""

    def extended(labels: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(labels) == count:
            yield labels
            return
        for label in range(max(labels, default=-1) + 2):
            yield from extended((*labels, label))

    yield from extended(())

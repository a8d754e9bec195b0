"""What came out, in words: every number against the table it is said of."""

from __future__ import annotations

import numpy as np
import pytest

from scool_ppl.report.clients import Clients
from scool_ppl.report.links import links_of
from scool_ppl.report.words import run_in_words
from tests.helpers.reports import cooperation

NAMES = [f"client {client}" for client in range(8)]
GROUPS = np.arange(8) // 4


def said(weights: np.ndarray | None = None, kind: str = "edges", **told: object) -> str:
    graph = cooperation()
    links = links_of(kind, graph.weights.numpy() if weights is None else weights)
    columns = {"client": NAMES} | {name: told.pop(name) for name in list(told) if isinstance(told[name], list)}
    return " ".join(run_in_words(told, Clients(columns), links, GROUPS))  # type: ignore[arg-type]


def test_gains() -> None:
    gains = [0.1, 0.2, 0.3, -0.2, 0.0, 0.2, None, 0.1]
    text = said(gain_over_local=gains, accuracy_local=[0.5] * 8, harmed=1 / 7, score="R2")
    assert "5 of 7 clients gain by cooperating, 1 loses: the mean R2 goes from 0.500 alone to 0.600, +0.100." in text
    assert "1 is worse off by more than the noise of the test data." in text
    assert "Nobody is worse off" in said(gain_over_local=[0.1] * 8, harmed=0.0)
    assert "scool fit --baseline" in said()


def test_who_learns_from_whom() -> None:
    text = said()
    assert "A client learns from 3.0 others in the mean, and each is relied on by 3." in text
    assert "There are 2 groups of 4 clients; all links are inside a group." in text
    assert "56 of 56 pairs are open" in text
    star = np.zeros((8, 8))
    star[1:7, 0] = 0.99
    text = said(star)
    assert "0.8 others in the mean; most relied on are client 0 (by 6)." in text
    assert "1 stays alone: client 7." in text
    assert "50% of the links are inside a group." in text
    assert "Every pair is decided" in text
    assert "everybody learns alone" in said(np.zeros((8, 8)))


def test_one_graph_is_not_called_probable() -> None:
    whole = 1 - np.eye(8)
    assert "most probable graph; how probable others are the model does not say" in said(whole)
    assert "pairs" not in said(whole)
    assert "pairs" not in said(whole / 7, kind="rows")


def test_what_is_shipped_and_what_is_true() -> None:
    text = said(relies_on={"local": 0.2, "blocks": 0.797, "nothing": 0.003}, graph={"ari": 0.5})
    assert "relies, in the mean, on: blocks 80%; local 20%." in text
    assert "adjusted Rand index of 0.50" in text
    assert "The true groups are found exactly." in said(graph={"ari": 1.0})


@pytest.mark.parametrize("blocks", [np.zeros(8, int), np.arange(8)])
def test_one_group_and_no_group(blocks: np.ndarray) -> None:
    links = links_of("edges", 0.9 * (1 - np.eye(8)))
    text = " ".join(run_in_words({}, Clients({"client": list(NAMES)}), links, blocks))
    assert ("All clients are one group." in text) == (blocks.max() == 0)
    assert ("No clients are a group" in text) == (blocks.max() > 0)

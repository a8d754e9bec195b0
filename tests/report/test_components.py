"""Components on the page: who uses which, how much, and where the stars stand, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from scool_ppl.report.clients import Clients
from scool_ppl.report.components import components_of, rows, shown
from tests.helpers.reports import SHARES, cooperation

GRAPH = replace(cooperation(4), components=SHARES, kind="point", low=None, high=None)


def test_a_graph_of_clients_alone_has_none() -> None:
    assert components_of(cooperation()) is None


def test_who_uses_which_and_most() -> None:
    """Of rows, half of the heaviest of the row is believed; of a point mass all but a hundredth of the heaviest of all."""
    found = components_of(GRAPH)
    assert found is not None
    assert found.names == ("component 1", "component 2", "component 3")
    assert found.most == ["component 1", "component 1", "component 2", None]
    assert found.users.tolist() == [3, 2, 0]
    as_rows = components_of(replace(GRAPH, kind="rows"))
    assert as_rows is not None
    assert as_rows.users.tolist() == [2, 2, 0]


def test_uses_and_places_are_those_of_the_graph() -> None:
    found = components_of(GRAPH)
    assert found is not None
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.5, 0.5]])
    data = shown(found, places)
    table = np.zeros((4, 3))
    table[data["uses"]["to"], data["uses"]["from"]] = data["uses"]["w"]
    np.testing.assert_allclose(table, SHARES.numpy(), atol=5e-4)
    total = 1 + 0.6 + 0.3
    assert (data["x"][0], data["y"][0]) == (pytest.approx(0.6 / total, abs=1e-3), pytest.approx(-0.3 / total, abs=1e-3))
    assert data["x"][2] == 0.0
    assert data["y"][2] > 0.5, "nobody uses it: above all others"
    assert "x" not in shown(found, None)


def test_the_table_says_how_users_fare() -> None:
    found = components_of(GRAPH)
    assert found is not None
    clients = Clients({"client": ["a", "b", "c", "d"], "accuracy": [0.5, 0.7, None, 0.1]})
    first, second, third = rows(found, clients)
    assert first == ["component 1", ("3", 3.0), ("0.633", pytest.approx(1.9 / 3)), ("0.600", pytest.approx(0.6)), None]
    assert second[3] == ("0.700", pytest.approx(0.7))
    assert third == ["component 3", ("0", 0.0), None, None, None]
    assert torch.equal(SHARES, GRAPH.components)

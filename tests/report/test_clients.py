"""What is known of the clients: from clients.csv by name, else from the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scool_ppl.report.clients import read_clients
from tests.helpers.reports import HOSTILE, cooperation, folder


def test_the_table_is_read_by_name_in_the_order_of_the_graph(tmp_path: Path) -> None:
    graph = cooperation(4, hostile=True)
    run = folder(tmp_path / "run", graph)
    lines = (run.path / "clients.csv").read_text().splitlines()
    (run.path / "clients.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]))
    clients = read_clients(run, graph, np.arange(4))
    assert clients.columns["client"] == ["client 0", HOSTILE, "client 2", "client 3"]
    assert list(clients.columns)[:2] == ["client", "block"]
    assert clients.numbers("block") == [0, 1, 2, 3]
    assert clients.numbers("train") == [10, 11, 12, 13]
    assert clients.gains == [0.1, -0.05, None, -0.05]
    assert clients.numbers("not there") == [None] * 4


def test_of_a_run_without_the_table_or_of_other_clients_the_graph_tells(tmp_path: Path) -> None:
    graph = cooperation(4)
    run = folder(tmp_path / "run", graph)
    (run.path / "clients.csv").write_text("client,train\nsomebody,5\n")
    for _ in range(2):
        clients = read_clients(run, graph, np.arange(4))
        assert clients.columns["client"] == list(graph.names)
        assert clients.numbers("train") == [10, 11, 12, 13]
        assert clients.numbers("accuracy_local") == [None] * 4
        (run.path / "clients.csv").unlink(missing_ok=True)

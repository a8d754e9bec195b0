"""The report of a run: what its page holds is what its folder says."""

from __future__ import annotations

import base64
import html
import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.report.links import MOST_CELLS
from scool_ppl.report.run import LARGEST, MANY, MOST_BLOCKS, groups_of, run_page
from tests.helpers.reports import SHARES, cooperation, folder
from tests.helpers.runs import finished


def data_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_page(folder(tmp_path_factory.mktemp("run") / "run", cooperation(), total_seconds={"train": 12.5}))


def test_the_graph_is_that_of_the_folder(page: str) -> None:
    graph, data = cooperation(), data_of(page)
    weights = np.zeros((8, 8))
    edges = data["edges"]
    weights[edges["to"], edges["from"]] = edges["w"]
    np.testing.assert_allclose(weights, graph.weights.numpy(), atol=1e-3)
    assert data["clients"]["block"] == [0] * 4 + [1] * 4
    assert data["clients"]["learns"] == [3] * 8
    assert data["clients"]["with"] == [0.6, 0.45, None, 0.45, 0.6, 0.45, 0.6, 0.45]
    assert data["blocks"]["size"] == [4, 4]
    assert data["blocks"]["with"] == [0.5, 0.525]
    assert data["probabilities"]
    assert not data["startWithBlocks"]
    assert len(set(data["palette"])) == 2
    assert list(data["matrix"]["frames"]) == ["round 1", "round 2", "truth"]


def test_what_was_asked_is_told(page: str) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    text = " ".join(text.split())
    for told in ("mine on four:digits", "width default", "torch 9.9", "train 12.50", "mean accuracy alone 0.500"):
        assert told in text
    assert "it holds 95 % of the draws" in text


def test_blocks_are_what_links_connect_and_who_is_alone_comes_last() -> None:
    """Clients 0 and 4 learn from nobody and teach nobody, though their memberships are those of the others."""
    graph = cooperation()
    weights = graph.weights.clone()
    for client in (0, 4):
        weights[client], weights[:, client] = 0, 0
    assert groups_of(replace(graph, weights=weights, low=None, high=None)).tolist() == [2, 0, 0, 0, 3, 1, 1, 1]


def test_components_are_on_the_page_in_words_in_tables_and_in_the_picture(tmp_path: Path) -> None:
    graph = replace(cooperation(4), kind="point", components=SHARES, low=None, high=None)
    page = run_page(folder(tmp_path / "run", graph))
    data = data_of(page)
    assert data["components"]["users"] == [3, 2, 0]
    assert data["clients"]["component"] == ["component 1", "component 1", "component 2", None]
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    assert "2 of 3 components, networks without data of their own, are used; most used are component 1 (by 3)" in text
    assert "component clients who use it mean weight" in text
    assert "component 2 2 0.550" in text
    assert "client block component train accuracy" in text
    assert '<option value="components">' in page


def test_without_components_nothing_is_said_of_them(page: str) -> None:
    assert data_of(page)["components"] is None
    words = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "omponent" not in words


def test_a_run_without_intervals_or_baseline_invents_none(tmp_path: Path) -> None:
    page = run_page(finished(tmp_path / "run", 2))
    data = data_of(page)
    assert "low" not in data["edges"]
    assert data["clients"]["alone"] == [None] * 3
    assert "There is no interval beside it" in page
    assert "mean gain" not in page


def test_many_clients_are_blocks_first_and_their_strongest_edges(tmp_path: Path) -> None:
    graph = cooperation(MANY + 50)
    run = folder(tmp_path / "run", graph, rounds=1)
    page = run_page(run)
    data = data_of(page)
    assert data["startWithBlocks"]
    assert data["edges"]["total"] == 200 * 199
    assert len(data["edges"]["w"]) == 10_000
    assert len(set(data["edges"]["to"])) == 200
    assert len(page) < 2_000_000


def test_thousands_of_clients_are_blocks_and_a_table_to_search_without_a_matrix(tmp_path: Path) -> None:
    """Client i learns with 0.9, 0.8, 0.7 from the next of its group of four; half of them look at another, too."""
    size = 4_100
    assert size > LARGEST
    place = torch.arange(size)[:, None]
    senders = torch.cat([place // 4 * 4 + (place + torch.tensor([1, 2, 3])) % 4, (place + 4) % size], 1)
    mask = torch.ones(size, 4, dtype=torch.bool)
    mask[::2, 3] = False
    weights = torch.tensor([0.9, 0.8, 0.7, 0.02]).double().expand(size, 4)
    names = tuple(f"client {client}" for client in range(size))
    graph = CooperationGraph(weights, names, Peers(mask, senders), samples=place[:, 0])
    run = folder(tmp_path / "run", graph, rounds=1)
    tracemalloc.start()
    page = run_page(run)
    assert tracemalloc.get_traced_memory()[1] < 4 * size**2
    tracemalloc.stop()
    data = data_of(page)
    assert len(page) < 1_500_000
    edges, blocks, clients = data["edges"], data["blocks"], data["clients"]
    assert edges["counts"] == [3, 4] * (size // 2)
    assert edges["total"] == 3.5 * size
    found = np.frombuffer(base64.b64decode(edges["from"]), "<u2")
    values = np.frombuffer(base64.b64decode(edges["w"]), "<u2") / 65535
    assert found[:7].tolist() == [1, 2, 3, 2, 3, 0, 5]
    np.testing.assert_allclose(values[:7], [0.9, 0.8, 0.7, 0.9, 0.8, 0.7, 0.02], atol=1e-4)
    assert blocks["size"] == [4] * (size // 4)
    assert len(blocks["x"]) == len(blocks["inside"]) == MOST_BLOCKS
    assert blocks["inside"] == [0.8] * MOST_BLOCKS
    between = set(zip(blocks["edges"]["to"], blocks["edges"]["from"], blocks["edges"]["w"], strict=True))
    assert between == {(block, block + 1, 0.02) for block in range(MOST_BLOCKS - 1)}
    assert clients["name"] == list(names)
    assert clients["samples"] == list(range(10, 10 + size))
    assert set(clients["learns"]) == set(clients["teaches"]) == {3}
    assert data["matrix"]["size"] == MOST_CELLS
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    assert f"the first {MOST_BLOCKS} blocks of {size // 4}" in text
    assert f"{3 * size:,} of {int(3.5 * size):,} pairs that were looked at are open" in text
    assert "of more than 4,000 clients a run's folder keeps none" in text


def test_weights_of_other_clients_are_refused(tmp_path: Path) -> None:
    run = folder(tmp_path / "run", cooperation(4))
    other: CooperationGraph = cooperation(5)
    other.save(run.path / "graph.graphml")
    with pytest.raises(InputError, match=r"weights of shape \(4, 4\) and 5 clients"):
        run_page(run)

"""A report in a real browser: it is alone in the world, the graph is there, and everything that can be touched answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.report import write_report
from tests.helpers.reports import HOSTILE, SHARES, cooperation, folder

pytestmark = pytest.mark.browser

CLIENTS = 8
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,1000"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The report of a run of eight clients, one of whom has a hostile name, as the browser shows it."""
    driver = shutil.which("chromedriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if driver is None or chromium is None:
        pytest.skip("no chromium and chromedriver here; `make browser` installs them where that is possible")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    place = tmp_path_factory.mktemp("report")
    report = write_report(folder(place / "run", cooperation(CLIENTS, hostile=True), harmed=0.25).path)
    options = ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={place / 'browser'}"):
        options.add_argument(flag)
    browser = Chrome(options, Service(driver))
    try:
        browser.get(report.as_uri())
        yield browser
    finally:
        browser.quit()


def text(page: Any, place: str) -> str:
    return str(page.execute_script("return document.getElementById(arguments[0]).innerText", place))


def counted(page: Any, what: str) -> int:
    return int(page.execute_script(f"return report.{what}.length"))


def slide(page: Any, place: str, value: float) -> None:
    move = (
        "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('input'))"
    )
    page.execute_script(move, place, value)


def point_at(page: Any, x: float, y: float) -> None:
    """The mouse over a place of the graph, in the pixels of its box."""
    from selenium.webdriver import ActionChains

    box = page.find_element("id", "network")
    page.execute_script("arguments[0].scrollIntoView()", box)
    size = box.size
    ActionChains(page, duration=20).move_to_element_with_offset(
        box, round(x - size["width"] / 2), round(y - size["height"] / 2)
    ).perform()


def test_it_asks_for_nothing_and_complains_of_nothing(page: Any) -> None:
    page.refresh()
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # Of the browser's own pages we are not to judge.
    urls = [request["request"]["url"] for request in asked if request["documentURL"].startswith("file://")]
    assert set(urls) - {"data:,"} == {page.current_url}, "the page itself, which shows that requests are seen"
    assert page.get_log("browser") == []
    refused = "return fetch('https://example.com').then(() => 'loaded', () => 'refused')"
    assert page.execute_script(refused) == "refused"
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def test_names_are_shown_and_never_obeyed(page: Any) -> None:
    assert HOSTILE in text(page, "clients")
    assert page.execute_script("return document.querySelectorAll('img').length") == 0


def test_the_graph_has_all_clients_and_first_what_is_believed(page: Any) -> None:
    assert counted(page, "nodes") == CLIENTS
    assert counted(page, "arrows") == 2 * 4 * 3
    ends = page.execute_script("return report.arrows.get().map(a => [a.from, a.to])")
    assert all(source // 4 == to // 4 for source, to in ends)
    assert page.execute_script("return document.getElementById('network').querySelector('canvas').width") > 100


def test_the_slider_shows_more_and_fewer(page: Any) -> None:
    slide(page, "threshold", 0.1)
    assert counted(page, "arrows") == CLIENTS * (CLIENTS - 1)
    assert "56 links of weight above 0.10" in text(page, "shown")
    slide(page, "threshold", 0.87)  # only those from the first of each group, 0.9
    assert counted(page, "arrows") == 2 * 3
    page.find_element("id", "believed").click()
    assert counted(page, "arrows") == 24


def test_pointing_at_a_client_tells_who_it_learns_from(page: Any) -> None:
    page.execute_script("document.getElementById('facts').textContent = ''")
    where = page.execute_script("return report.network.canvasToDOM(report.network.getPositions([4])[4])")
    point_at(page, where["x"], where["y"])
    told = text(page, "facts")
    assert told.startswith("client 4")
    for fact in ("samples\n14", "accuracy together\n0.600", "accuracy alone\n0.500", "gain\n+0.100", "block\n1"):
        assert fact in told
    assert "client 5, w = 0.85 [0.80, 0.90], open" in told
    assert "learns from 3 clients" in told
    assert "client 1" not in told


def test_pointing_at_an_arrow_tells_its_direction_and_interval(page: Any) -> None:
    page.execute_script("document.getElementById('facts').textContent = ''")
    told = page.execute_script(
        "const a = report.arrows.get().find(a => a.from === 7 && a.to === 4);"
        "report.network.body.emitter.emit('hoverEdge', {edge: a.id}); return a.title"
    )
    assert told == "client 4 learns from client 7: w = 0.75 [0.70, 0.80], open"
    assert told in text(page, "facts")


def test_a_client_is_found_by_keyboard_and_its_blanks_are_blank(page: Any) -> None:
    page.find_element("id", "who").send_keys("client 2")
    told = text(page, "facts")
    assert told.startswith("client 2")
    assert "accuracy together\n–" in told
    assert page.execute_script("return report.network.getSelectedNodes()") == [2]
    assert HOSTILE in told


def test_a_client_can_be_dragged(page: Any) -> None:
    from selenium.webdriver import ActionChains

    before = page.execute_script("return report.network.getPositions([5])[5]")
    where = page.execute_script("return report.network.canvasToDOM(report.network.getPositions([5])[5])")
    point_at(page, where["x"], where["y"])
    ActionChains(page, duration=20).click_and_hold().move_by_offset(30, 20).move_by_offset(5, 5).release().perform()
    after = page.execute_script("return report.network.getPositions([5])[5]")
    assert abs(after["x"] - before["x"]) + abs(after["y"] - before["y"]) > 10
    slide(page, "threshold", 0.3)
    assert page.execute_script("return report.network.getPositions([5])[5]") == after, "it stays where it was put"
    slide(page, "threshold", 0.5)


def test_blocks_instead_of_clients_and_back(page: Any) -> None:
    choose = "const l = document.getElementById('level'); l.value = arguments[0]; l.dispatchEvent(new Event('change'))"
    page.execute_script(choose, "blocks")
    assert counted(page, "nodes") == 2
    slide(page, "threshold", 0.1)
    assert page.execute_script("return report.arrows.get().map(a => a.title)") == [
        "block 0 learns from block 1: mean w = 0.200",
        "block 1 learns from block 0: mean w = 0.200",
    ]
    page.find_element("id", "believed").click()
    page.execute_script(choose, "clients")
    assert counted(page, "nodes") == CLIENTS


def test_the_matrix_of_every_round(page: Any) -> None:
    def pixel(row: int, column: int) -> list[int]:
        read = "return [...document.getElementById('matrix').getContext('2d').getImageData(...arguments, 1, 1).data]"
        return list(page.execute_script(read, column, row))

    last = pixel(0, 1)
    assert pixel(0, 0) != last
    slide(page, "frame", 0)
    assert text(page, "frame-name") == "round 1"
    assert pixel(0, 1) != last
    page.find_element("id", "matrix").send_keys("\ue014")  # the right arrow
    assert "round 1: client 0 learns from </script>" in text(page, "cell")
    assert text(page, "cell").endswith("w = 0.42")  # half of 0.85, in steps of 1/255


def test_headings_sort_the_table(page: Any) -> None:
    def column(place: int) -> list[str]:
        cells = (
            "return [...document.querySelector('#clients').tBodies[0].rows].map(r => r.cells[arguments[0]].innerText)"
        )
        return list(page.execute_script(cells, place))

    heads = page.find_elements("css selector", "#clients thead button")
    names = [head.text for head in heads]
    gain = names.index("gain_over_local")
    heads[gain].click()
    assert [float(value) for value in column(gain)[:-1]] == [-0.05] * 4 + [0.1] * 3
    assert column(gain)[-1] == "", "who has no test data is last"
    heads[gain].click()
    assert [float(value) for value in column(gain)[:-1]] == [0.1] * 3 + [-0.05] * 4
    assert column(gain)[-1] == ""
    heads[names.index("train")].click()
    assert column(names.index("train")) == [str(10 + client) for client in range(CLIENTS)]
    assert page.execute_script("return document.querySelectorAll('[aria-sort]').length") == 1


def test_components_are_stars_with_arrows_to_their_users(page: Any, tmp_path: Path) -> None:
    graph = replace(cooperation(4), kind="point", components=SHARES, low=None, high=None)
    page.get_log("browser")
    page.get(write_report(folder(tmp_path / "run", graph).path).as_uri())
    stars = "return report.nodes.get().filter(n => n.shape === 'star').map(n => n.label)"
    assert page.execute_script(stars) == ["component 1", "component 2", "component 3"]
    ends = page.execute_script("return report.arrows.get().map(a => [a.from, a.to, a.title])")
    assert ends[0] == ["component 0", 0, "client 0 uses component 1: w = 1.00"]
    assert len(ends) == 5
    page.execute_script("report.network.body.emitter.emit('hoverNode', {node: 'component 1'})")
    assert text(page, "facts").endswith("used by 2 clients\nclient 2, w = 0.70\nclient 1, w = 0.40")
    page.execute_script("report.network.body.emitter.emit('hoverNode', {node: 1})")
    assert "uses\ncomponent 1, w = 0.60\ncomponent 2, w = 0.40" in text(page, "facts")
    assert "component, without data (3)" in text(page, "legend")
    choose = "const l = document.getElementById('level'); l.value = 'clients'; l.dispatchEvent(new Event('change'))"
    page.execute_script(choose)
    assert (counted(page, "nodes"), counted(page, "arrows")) == (4, 12)
    assert page.get_log("browser") == []


def test_many_clients_are_blocks_and_a_table_to_search(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of more than 4,000 clients: 120, of whom each learns from the three others of its group of four."""
    for place in ("graph.candidates.MANY", "report.run.LARGEST", "runs.weights.FEW"):
        monkeypatch.setattr(f"scool_ppl.{place}", 100)
    place = torch.arange(120)[:, None]
    senders = place // 4 * 4 + (place + torch.tensor([1, 2, 3])) % 4
    weights = torch.tensor([0.9, 0.8, 0.7]).double().expand(120, 3)
    names = tuple(f"client {client}" for client in range(120))
    shares = torch.nn.functional.one_hot(torch.arange(120) % 3, 3).double()
    graph = CooperationGraph(weights, names, Peers(torch.ones(120, 3).bool(), senders), components=shares)
    page.get_log("browser")  # of the page before
    page.get(write_report(folder(tmp_path / "run", graph).path).as_uri())
    rows = "return [...document.querySelector('#clients').tBodies[0].rows].map(r => r.innerText.split('\\t'))"
    assert counted(page, "nodes") == 30
    near = (
        "const p = Object.values(report.network.getPositions());"
        "return Math.min(...p.flatMap((a, i) => p.slice(0, i).map(b => Math.hypot(a.x - b.x, a.y - b.y))))"
    )
    assert page.execute_script(near) > 2 * 17, "blocks of four have a radius of 18, and none covers another"
    assert not page.find_element("id", "level").is_displayed()
    assert text(page, "found") == "The first 100 of 120 clients."
    assert [row[0] for row in page.execute_script(rows)] == list(names[:100])
    page.find_element("id", "search").send_keys("Client 11")
    assert text(page, "found") == "11 clients found."
    assert [row[0] for row in page.execute_script(rows)] == ["client 11", *names[110:]]
    heads = page.find_elements("css selector", "#clients thead button")
    titles = [head.text for head in heads]
    assert [row[titles.index("component")] for row in page.execute_script(rows)][:2] == ["component 3", "component 3"]
    assert "component" not in text(page, "legend")
    heads[titles.index("samples")].click()
    assert page.execute_script(rows)[0][0] == "client 11"
    page.find_element("css selector", "#clients tbody button").click()
    told = text(page, "row")
    assert told.startswith("client 11\n")
    assert "learns from 3 clients\nclient 8, w = 0.90, open\nclient 9, w = 0.80, open" in told
    assert "uses\ncomponent 3, w = 1.00" in told
    assert page.get_log("browser") == []

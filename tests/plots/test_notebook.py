"""What a notebook shows: short texts, tables that say what the numbers are, the picture of the graph."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from typing import Any

import matplotlib.image
import pytest
import torch
from IPython.core.formatters import DisplayFormatter

from scool_ppl.em.state import Fit
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.plots import draw_history, notebook
from tests.helpers.pictures import grouped, history
from tests.helpers.runs import driver
from tests.helpers.small import clients, federation


@pytest.fixture(scope="module")
def fit() -> Fit:
    return driver("hedge").fit(2, progress=False)


def bundle(thing: Any) -> dict[str, Any]:
    """What IPython would send to a notebook."""
    formatter = DisplayFormatter()
    formatter.active_types = ["text/plain", "text/html", "image/png"]
    found, _ = formatter.format(thing)
    return dict(found)


def cells(html: str) -> list[str]:
    return re.findall(r"<td>(.*?)</td>", html)


def test_texts_are_short_and_say_what_it_is(fit: Fit) -> None:
    state, info = driver().step(driver().init())
    for thing, said in [
        (fit, r"Fit\(2 rounds, accuracy 0\.\d{3} over clients, CooperationGraph\("),
        (fit.graph, r"CooperationGraph\(4 clients, \d+ of \d+ edges believed\)"),
        (state, r"EMState\(round 1, seed 1, 4 clients\)"),
        (fit.state, r"EMState\(round 2, seed 1, 4 clients, beside .*everybody.*\)"),
        (fit.deployment, r"Deployment\(4 clients, local \d+%, "),
        (fit.evaluation, r"Evaluation\(4 clients, score 0\.\d{3} ± 0\.\d{3}, loss \d\.\d{3}\)"),
        (info, r"EMInfo\(elbo -?\d+\.\d\d, loss \d\.\d{3}, \d+\.\d\d seconds\)"),
        (clients(), r"Clients\(4 networks of \d+ bytes, classification of 3 outputs"),
        (federation(), r"Federation\(4 clients, 6 to 9 training rows each, classification of 3 outputs"),
    ]:
        assert re.match(said, repr(thing)), repr(thing)
        assert len(repr(thing)) < 200
        assert bundle(thing)["text/plain"] == repr(thing)


def test_a_graph_is_its_picture() -> None:
    found = bundle(grouped())
    image = matplotlib.image.imread(io.BytesIO(found["image/png"]))
    assert image.shape[0] > 400
    assert "text/html" not in found
    weights = torch.zeros(2001, 1)
    crowd = CooperationGraph(weights, tuple(map(str, range(2001))), Peers(weights > -1, weights.long()))
    assert set(bundle(crowd)) == {"text/plain"}, "nobody can see two thousand clients"


def test_other_pictures_are_shown_without_pyplot() -> None:
    found = bundle(draw_history(history()))
    assert matplotlib.image.imread(io.BytesIO(found["image/png"])).shape[0] > 400


def test_a_fit_is_a_table_and_the_picture_of_its_graph(fit: Fit) -> None:
    html = bundle(fit)["text/html"]
    table = dict(zip(cells(html)[::2], cells(html)[1::2], strict=True))
    assert {"rounds", "accuracy", "worst 10 %", "before mixing", "clients rely on"} <= set(table)
    assert table["rounds"] == "2"
    assert float(table["accuracy"].split()[0]) == pytest.approx(float(fit.deployed.score.mean()), abs=6e-4)
    assert float(table["before mixing"]) == pytest.approx(float(fit.trained.score.mean()), abs=6e-4)
    (encoded,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert base64.b64decode(encoded) == bundle(fit.graph)["image/png"]


def test_a_federation_is_a_table_of_its_clients_sizes() -> None:
    whole = federation(30)
    whole = replace(whole, names=("<b>", *whole.names[1:]), groups=(7,) * 30, truth=None)
    html = bundle(whole)["text/html"]
    assert cells(html)[:5] == ["&lt;b&gt;", "7", "6", "5", "4"]
    assert len(cells(html)) == 5 * 20
    assert html.endswith("<p>and 10 more</p>")
    assert "true group" not in bundle(federation())["text/html"]


def test_other_results_are_tables(fit: Fit) -> None:
    assert cells(bundle(fit.evaluation)["text/html"])[0] == "score"
    assert cells(bundle(fit.deployment)["text/html"])[::3] == list(fit.deployment.candidates)
    executor, names = clients(executor="loop"), federation().names
    assert {"loop", *names} <= set(cells(bundle(executor)["text/html"]))
    assert notebook.html(object()) is None
    assert notebook.png(fit) is None

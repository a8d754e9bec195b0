"""How measures are printed: scaled, rounded and signed as they say; what they are is tested with the results."""

from __future__ import annotations

import pytest

from scool_ppl.reproduce.measures import MEASURES
from scool_ppl.reproduce.render import cell
from scool_ppl.runs.store import Store
from tests.helpers.experiments import COLUMN, LOCAL, filled, record, tiny


@pytest.mark.parametrize(
    ("measure", "values", "text"),
    [
        ("accuracy", (0.5, 0.6), "55.0 ± 7.1"),
        ("gain", (0.1, 0.2), "+15.0 ± 7.1"),
        ("gain", (-0.1, -0.2), "-15.0 ± 7.1"),
        ("below", (0.25, 0.25), "25 ± 0"),
        ("loss", (1.0, 2.0), "1.500 ± 0.707"),
        ("perplexity", (10.0,), "10.00"),
        ("received", (2.5e6,), "2.50"),
        ("seconds", (12.4,), "12"),
    ],
)
def test_a_measure_is_printed_in_its_unit(measure, values, text, tmp_path, monkeypatch):
    experiment = tiny(methods=(LOCAL,), seeds=(0,))
    results = filled(Store(tmp_path / "s.json"), experiment, record((0.5, 0.5), (0.5, 0.5)))
    monkeypatch.setattr(results, "values", lambda *_: list(values))
    assert cell(results, COLUMN, LOCAL, measure) == text


def test_no_two_measures_are_called_the_same():
    titles = [measure.title for measure in MEASURES.values()]
    assert len(set(titles)) == len(titles)
    percent = [name for name, measure in MEASURES.items() if measure.scale == 100]
    assert all(MEASURES[name].title.endswith(", %") for name in percent)
    assert not any(measure.title.endswith(", %") for name, measure in MEASURES.items() if name not in percent)

"""One finished experiment for all tests that only read it."""

from __future__ import annotations

import pytest

from scool_ppl import load_model
from scool_ppl.reproduce import Results, Store, reproduce
from tests.helpers.experiments import tiny
from tests.helpers.small import brief


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The tiny experiment with short E-steps; the graphs of its last round are kept."""
    store = Store(tmp_path_factory.mktemp("store") / "tiny.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scool_ppl.workbench.settings.load_model", lambda *a, **b: brief(load_model(*a, **b)))
        return reproduce(tiny(graphs=(2,)), store, progress=False)

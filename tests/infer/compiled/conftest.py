"""Both ways in which a derivative is computed."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[0, 2**30], ids=["some rows only", "all rows at once"])
def _rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many numbers on a derivative is computed for some rows only."""
    monkeypatch.setattr("scool_ppl.infer.compiled.compiled._SMALL", request.param)

"""Pictures leave alone what is the user's."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def _nothing_global_moves() -> Iterator[None]:
    figures, settings, backend = plt.get_fignums(), dict(mpl.rcParams), mpl.get_backend()
    yield
    assert plt.get_fignums() == figures
    assert dict(mpl.rcParams) == settings
    assert mpl.get_backend() == backend

"""What all tests share: one thread per process, and where the datasets are."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from pathlib import Path

import pytest
import torch

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; tests interrupt themselves
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["HF_HUB_OFFLINE"] = "1"  # what cannot be fetched here is not asked for, five times and more slowly each time
os.environ["SCOOL_CACHE"] = tempfile.mkdtemp(prefix="scool-cache-")  # tests leave no notes of what is fast here
torch.set_num_threads(1)  # two test processes with two threads each would wait for one another


def pytest_sessionstart() -> None:
    """What is imported and collected stays until the end: nobody need search it for garbage, again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of many minutes are left out unless `-m` asks for them."""
    if "nightly" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with real datasets; tests that need it are skipped, visibly, where it is not."""
    root = Path(os.environ.get("SCOOL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / "MNIST" / "raw").is_dir():
        pytest.skip(f"no datasets in {root}; set SCOOL_DATA")
    return root

"""Versions of what numbers depend on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import torch


def own_version() -> str:
    """The version of this library."""
    try:
        return version("scool_ppl")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    import numpy
    import pyro

    return {
        "scool_ppl": own_version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": version("torchvision"),  # importing it takes seconds
        "pyro": pyro.__version__,
        "numpy": numpy.__version__,
    }

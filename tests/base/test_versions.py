"""Versions are those of what is installed, and a source tree that is not installed has one, too."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError, version

import pytest

from scool_ppl.base.versions import own_version, versions

PACKAGES = {"torch": "torch", "torchvision": "torchvision", "pyro": "pyro-ppl", "numpy": "numpy"}


def test_versions_are_those_of_the_installed_packages() -> None:
    found = versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    for name, package in PACKAGES.items():
        assert found[name].split("+")[0] == version(package).split("+")[0]
    assert set(found) == {"scool_ppl", "python", *PACKAGES}


def test_a_tree_that_is_not_installed_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    # The room exports the function under the name of its module.
    monkeypatch.setattr(importlib.import_module("scool_ppl.base.versions"), "version", missing)
    assert own_version() == "0+unknown"

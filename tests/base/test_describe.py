"""Settings are told without addresses and by what a user chose; versions are those of what is installed."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyro
import pytest
import torch

from scool_ppl.base.describe import described, digest, own_version, settings, signature, values, versions

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
    monkeypatch.setattr(importlib.import_module("scool_ppl.base.describe"), "version", missing)
    assert own_version() == "0+unknown"


@dataclass
class Part:
    rate: float
    tags: tuple[str, ...] = ("a", "b")
    make: Any = field(default=partial(torch.optim.Adam, lr=0.1))


class Plain:
    def __init__(self) -> None:
        self.part, self.weights, self._hidden = Part(0.5), torch.ones(3, 2), 7


def test_settings_are_told_by_name_and_value() -> None:
    assert settings(Part(0.5)) == ["rate=0.5", "tags=['a', 'b']", "make=Adam(lr=0.1)"]
    assert described(Plain()) == ("Plain(part=Part(rate=0.5, tags=['a', 'b'], make=Adam(lr=0.1)), weights=(3, 2) of 1)")
    assert described(pyro.optim.Adam({"lr": 0.1})) != described(pyro.optim.Adam({"lr": 0.2}))
    assert " at 0x" not in described([Plain, Plain(), print, torch.nn.Linear(2, 1), pyro.optim.Adam({"lr": 0.1})])


def test_tensors_of_other_values_are_told_apart() -> None:
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    assert values({"x": one}) == values({"x": one.clone()})
    assert values({"x": one}) != values({"x": other})
    assert values({"x": torch.full((2, 2), 0.25)}) == ["x=(2, 2) of 0.25"]
    assert signature({"x": one.double()}) == ["'x' (2,) float64"]


def test_a_digest_is_of_all_that_a_value_holds() -> None:
    same = [digest(Part(0.5)), digest(Part(0.5))]
    assert same[0] == same[1]
    others = {digest(value) for value in (Part(0.6), Part(0.5, ("a",)), [Part(0.5)], torch.ones(2), torch.ones(2, 1))}
    assert len(others) == 5
    assert digest(torch.ones(2)) != digest(torch.ones(2, dtype=torch.float64))

"""Descriptions: the same for what is the same, another for any setting that is another; versions of what is installed."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pytest
import torch

from scool_ppl.base.describe import described, digest, listed, own_version, settings, signature, values, versions

PACKAGES = {
    "torch": "torch",
    "torchvision": "torchvision",
    "pyro": "pyro-ppl",
    "numpy": "numpy",
    "scipy": "scipy",
    "scikit-learn": "scikit-learn",
}


@dataclass(frozen=True)
class Step:
    rate: float = 0.1
    sizes: tuple[int, ...] = (3, 4)
    target: torch.Tensor = field(default_factory=lambda: torch.zeros(2))


class Part:
    """A user's own class, whose settings are its public attributes."""

    def __init__(self, size: int, inner: Any = None) -> None:
        self.size, self.inner, self._cache = size, inner, object()


def function() -> None: ...


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (0.1, "0.1"),
        ("a", "'a'"),
        ([1, "a"], "[1, 'a']"),
        ({2, 1}, "[1, 2]"),
        ({"a": 1, "b": (True,)}, "{a: 1, b: [True]}"),
        (function, "function"),
        (Part, "Part"),
        (partial(torch.optim.SGD, lr=0.1), "SGD(lr=0.1)"),
        (partial(divmod, 3), "divmod(0=3)"),
        (np.float32(0.5), "0.5"),
        (np.zeros(2), "(2,) of 0"),
        (Path("a/b"), "'a/b'"),
        (torch.float64, "'torch.float64'"),
        (torch.zeros(2, 3), "(2, 3) of 0"),
        (torch.tensor(0.5), "() of 0.5"),
        (Step(), "Step(rate=0.1, sizes=[3, 4], target=(2,) of 0)"),
        (Part(3, Part(4)), "Part(size=3, inner=Part(size=4, inner=None))"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_things_are_described_by_their_class_and_settings(value: object, text: str) -> None:
    assert described(value) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Step(), Step(rate=0.2)),
        (Step(), Step(sizes=(4, 3))),
        (Step(target=torch.tensor([0.0, 1.0])), Step(target=torch.tensor([1.0, 0.0]))),
        (Part(1, Step()), Part(1, Step(rate=0.2))),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.arange(3.0), torch.arange(3.0).double()),
        (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)),
        (partial(function, rate=1), partial(function, rate=2)),
        (pyro.optim.Adam({"lr": 0.1}), pyro.optim.Adam({"lr": 0.2})),
        (1, True),
        (1, "1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_another_setting_is_another_description(one: object, other: object) -> None:
    assert described(one) != described(other)


def test_two_of_the_same_have_one_description() -> None:
    assert described(Part(1, Step(target=torch.arange(2.0)))) == described(Part(1, Step(target=torch.arange(2.0))))
    module = torch.nn.Dropout(0.1)
    assert described(module) == described(torch.nn.Dropout(0.1).eval()), "whether it is training now is no setting"


def test_what_refers_to_itself_comes_to_an_end() -> None:
    part = Part(1)
    part.inner = part
    assert described(part).count("size=1") < 10


def test_settings_signatures_and_values_are_listed_by_name() -> None:
    tensors = {"w": torch.ones(2, 1), "b": torch.zeros(2).bool()}
    assert settings(Step(2.0)) == ["rate=2.0", "sizes=[3, 4]", "target=(2,) of 0"]
    assert signature(tensors) == ["'w' (2, 1) float32", "'b' (2,) bool"]
    assert values(tensors) == ["w=(2, 1) of 1", "b=(2,) of 0"]


DIFFERENT: list[Any] = [
    torch.tensor([0.0, 1.0]),
    torch.tensor([-0.0, 1.0]),
    torch.tensor([0.0, 1.0]).double(),
    torch.tensor([[0.0, 1.0]]),
    torch.tensor([[0.0], [1.0]]),
    torch.tensor([torch.nan, 1.0]),
    [torch.tensor([0.0]), torch.tensor([1.0])],
    [[torch.tensor([0.0])], torch.tensor([1.0])],
    ["a", "b"],
    ["ab"],
    [],
    [[]],
    None,
    "None",
    0,
    0.0,
    False,
    Step(),
    Step(0.2),
]


def test_a_digest_is_of_all_bits_and_of_how_they_are_put_together() -> None:
    digests = [digest(value) for value in DIFFERENT]
    assert len(set(digests)) == len(digests)
    assert all(len(found) == 64 for found in digests)


def test_a_digest_does_not_depend_on_where_a_tensor_lies() -> None:
    tensor = torch.arange(6.0).view(2, 3)
    assert digest(tensor) == digest(tensor.clone()) == digest(tensor.T.contiguous().T)
    assert digest((1, "a")) == digest([1, "a"])


def test_no_description_holds_an_address() -> None:
    things = [Part, Part(1, object()), print, function, torch.nn.Linear(2, 1), pyro.optim.Adam({"lr": 0.1})]
    assert " at 0x" not in described(things)


def test_long_lists_are_cut() -> None:
    assert listed("abcdef") == "a, b, c, d, e, f"
    assert listed(iter("abcd"), between="; ", most=2) == "a; b; and 2 more"


def test_versions_are_those_of_the_installed_packages() -> None:
    found = versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    for name, package in PACKAGES.items():
        assert found[name].split("+")[0] == version(package).split("+")[0]
    assert set(found) == {"scool_ppl", "python", *PACKAGES}


def test_a_tree_that_is_not_installed_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(importlib.import_module("scool_ppl.base.describe"), "version", missing)
    assert own_version() == "0+unknown"

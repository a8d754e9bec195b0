"""Checks of arguments: what passes for a number, and the one line about what does not."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from scool_ppl.base.arguments import (
    check_hint,
    check_kind,
    check_names,
    check_whole,
    finite,
    in_words,
    positive,
    whole,
)
from scool_ppl.errors import InputError
from tests.helpers.refusals import Case, refused, refuses

NO_NUMBERS = [math.nan, math.inf, -math.inf, "3", None, [3], 1 + 0j]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_finite_number_passes_no_check(value: object) -> None:
    assert not finite(value)
    assert not positive(value)
    assert not whole(value)


def test_numbers_of_any_library_pass() -> None:
    assert finite(0, -1.5, Fraction(1, 3), np.float32(2), np.int64(-3))
    assert positive(1, 1e-300, Fraction(1, 3), np.float32(2))
    assert whole(1, np.int64(7), 10**30)


def test_one_wrong_value_among_many_is_enough() -> None:
    assert not finite(1, 2, math.nan)
    assert not positive(1, 0)
    assert not positive(1, -1e-300)
    assert not whole(1, 2.0)


def test_whole_numbers_have_a_least_and_are_no_truth_values() -> None:
    assert whole(0, least=0)
    assert not whole(0)
    assert not whole(-1, least=0)
    assert whole(-5, least=-5)
    assert not whole(True, False, least=0)


def function(*_: object) -> None: ...


REFUSED: list[Case] = [
    (lambda: check_whole("keep", 1.5), "keep is 1.5, expected a whole number of at least 1"),
    (lambda: check_whole("keep", "3", least=0), "keep is '3', expected a whole number of at least 0"),
    (lambda: check_kind("path", 3, Path, "name a file"), "path is 3, expected a Path; name a file"),
    (lambda: check_kind("path", [1], str | Path, "name a file"), "path is a list, expected a str or Path"),
    (lambda: check_names("absent", "anna"), "absent is the text 'anna', expected a list of names; write ['anna']"),
    (lambda: check_names("absent", 3), "absent is 3, expected a Collection; write a list of names"),
    (lambda: check_hint("blocks", 2.5, int), "blocks is 2.5, expected a whole number"),
    (lambda: check_hint("blocks", True, int), "blocks is True, expected a whole number"),
    (lambda: check_hint("blocks", "x", int | None), "blocks is 'x', expected a whole number or none"),
    (lambda: check_hint("rate", math.nan, float), "rate is nan, expected a number"),
    (lambda: check_hint("rate", True, float), "rate is True, expected a number"),
    (lambda: check_hint("flag", 1, bool), "flag is 1, expected true or false"),
    (lambda: check_hint("kind", "rign", Literal["ring", "star"]), "unknown kind value 'rign'; known: ring, star; did"),
    (lambda: check_hint("kind", 3, Literal["ring", "star"]), "kind is 3, expected one of ring, star"),
]


@refused(REFUSED)
def test_what_an_argument_cannot_be_is_one_line(call: Any, words: str) -> None:
    refuses(call, words)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3, int),
        (-3, int),
        (3, float),
        (None, int | None),
        ("ring", Literal["ring", "star"]),
        ("ring", Literal["ring", "star"] | None),
        (None, Literal["ring", "star"] | None),
        (function, Path),  # a type that is not simple is somebody else's to check
        ([1], list[str]),
    ],
)
def test_what_a_signature_declares_passes(value: object, hint: object) -> None:
    check_hint("it", value, hint)


def test_names_may_come_in_any_collection() -> None:
    for names in ([], ["a"], ("a", "b"), {"a"}, {"a": 1}.keys()):
        check_names("absent", names)


def test_types_are_described_in_words() -> None:
    assert in_words(int | None) == "a whole number or none"
    assert in_words(bool | Literal["a", "b"]) == "true or false or one of a, b"
    with pytest.raises(InputError, match="expected a number or a text"):
        check_hint("it", [], float | str)

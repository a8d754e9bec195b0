"""Texts `name=value` become keyword arguments of the declared types, or one clear line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from scool_ppl.base.options import parse_options
from scool_ppl.errors import InputError

if TYPE_CHECKING:
    from scool_ppl.nowhere import Thing


def function(
    hidden: int,
    *,
    count: int = 3,
    share: float = 0.5,
    maybe: int | None = None,
    flag: bool = False,
    word: Literal["one", "two"] = "one",
    untyped=2,  # type: ignore[no-untyped-def]
) -> None:
    """Something with options."""


def parse(*pairs: str) -> dict[str, object]:
    return parse_options("option of it", pairs, function, hidden=("hidden",))


def test_values_have_the_declared_types() -> None:
    options = parse("count=20", " share=1", "maybe=none", "flag=true", "word=two", "untyped=5")
    assert options == {"count": 20, "share": 1.0, "maybe": None, "flag": True, "word": "two", "untyped": 5}
    assert [type(value) for value in options.values()] == [int, float, type(None), bool, str, int]
    assert parse() == {}
    assert parse("maybe=4") == {"maybe": 4}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("coun=3", "unknown option of it 'coun'.*did you mean 'count'"),
        ("hidden=3", "unknown option of it 'hidden'"),
        ("count=3.5", "count is '3.5', expected a whole number"),
        ("count=none", "expected a whole number"),
        ("maybe=x", "expected a whole number or none"),
        ("share=x", "expected a number"),
        ("share=nan", "share is 'nan', expected a number"),
        ("share=-inf", "share is '-inf', expected a number"),
        ("flag=1", "expected true or false"),
        ("word=three", "unknown option of it word value 'three'; known: one, two"),
        ("count", "write name=value"),
    ],
)
def test_wrong_values_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(text)


def test_a_value_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="twice"):
        parse("count=3", "count=4")


def with_none(
    steps: int | None = None,
    old: float = None,  # type: ignore[assignment]  # noqa: RUF013  # as users write it
    bare=None,  # type: ignore[no-untyped-def]
    late: Thing | None = None,
) -> None:
    """Defaults of None, and a type that only type checkers know."""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("steps=3", 3), ("steps=none", None), ("old=3", 3.0), ("old=none", None)),
        *(("bare=3", 3), ("bare=0.5", 0.5), ("bare=true", True), ("bare=d8.npy", "d8.npy"), ("bare=none", None)),
    ],
)
def test_a_default_of_none_takes_values_by_its_annotation(text: str, value: object) -> None:
    (found,) = parse_options("option", [text], with_none).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["steps=x", "steps=0.5", "old=x"])
def test_a_default_of_none_refuses_what_its_annotation_does(text: str) -> None:
    with pytest.raises(InputError, match=r"expected a (whole )?number or none"):
        parse_options("option", [text], with_none)

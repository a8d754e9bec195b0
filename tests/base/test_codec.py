"""Encoding and decoding of declared types: bit for bit, through real JSON, and nothing but what the types declare."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pytest
import torch
from torch import Tensor

from scool_ppl.base.codec import decode, encode
from scool_ppl.errors import InputError


class Event(NamedTuple):
    client: str
    round: int


class Record(NamedTuple):
    """One of everything that may be kept."""

    names: tuple[str, ...]
    events: tuple[Event, ...]
    cut: dict[str, Tensor | None]
    pair: tuple[int, float]
    when: Event | None = None


@dataclass(frozen=True)
class Choice:
    kind: Literal["ring", "star"]
    weights: dict[int, float] = field(default_factory=dict)
    share: float | int = 0.5


def through_json(value: Any) -> tuple[Any, dict[str, Tensor]]:
    """What is written, after JSON has had it, and the tensors beside it."""
    beside: dict[str, Tensor] = {}
    return json.loads(json.dumps(encode(value, beside, ""))), beside


def test_named_tuples_come_back_and_new_fields_need_no_new_code() -> None:
    value = Record(("a", "ü"), (Event("a", 3),), {"x": torch.ones(2), "y": None}, (1, 0.5))
    written, beside = through_json(value)
    back = decode(Record, written, beside, "")
    assert back._replace(cut={}) == value._replace(cut={})
    assert type(back.events[0]) is Event
    assert torch.equal(back.cut["x"], torch.ones(2))
    assert back.cut["y"] is None
    del written["when"]
    assert decode(Record, written, beside, "").when is None, "a field with a default may be missing in an older file"
    with pytest.raises(InputError, match="state lacks names, expected names, events"):
        decode(Record, {"events": []}, beside, "state")


def test_dataclasses_come_back_with_their_defaults() -> None:
    value = Choice("star", {3: 0.25, 10: 1.0})
    written, beside = through_json(value)
    assert not beside
    assert decode(Choice, written, beside, "") == value
    assert decode(Choice, {"kind": "ring"}, {}, "") == Choice("ring")


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([0x7FF8000000000005, 0x7FF8000000000006, -(2**63)]).view(torch.float64),  # two NaNs, minus zero
        torch.ones(2, 1).bfloat16(),
        torch.tensor(3, dtype=torch.int16),
        torch.tensor([True, False]),
        torch.zeros(2, 0),
        torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1),
        torch.arange(3.0).expand(2, 3),
        torch.arange(10.0)[::3],
        torch.arange(4.0, requires_grad=True),
    ],
    ids=["bits", "bfloat16", "scalar", "bool", "empty", "permuted", "expanded", "strided", "leaf"],
)
def test_tensors_come_back_bit_for_bit(value: Tensor) -> None:
    written, beside = through_json(value)
    assert all(kept.is_contiguous() for kept in beside.values())
    back = decode(Tensor, written, beside, "")
    assert (back.dtype, back.shape, back.requires_grad) == (value.dtype, value.shape, False)
    raw, expected = (x.detach().contiguous().flatten().view(torch.uint8) for x in (back, value))
    assert torch.equal(raw, expected)
    if value.is_contiguous() or value.dim() == 3:  # rounding of sums depends on the order in memory
        assert back.stride() == value.stride()


def test_one_memory_under_two_names_becomes_two_and_nothing_is_shared_with_the_file() -> None:
    shared = torch.zeros(2)
    written, beside = through_json({"a": shared, "b": shared})
    back = decode(dict[str, Tensor], written, beside, "")
    back["a"][0] = 1
    assert back["b"].tolist() == shared.tolist() == [0, 0]
    assert all(not kept.any() for kept in beside.values())


def test_two_paths_of_one_spelling_do_not_overwrite_each_other() -> None:
    written, beside = through_json({"a/b": torch.tensor(1), "a": {"b": torch.tensor(2)}})
    assert len(beside) == 2
    assert int(decode(Tensor, written["a/b"], beside, "")) == 1
    assert int(decode(Tensor, written["a"]["b"], beside, "")) == 2


def test_a_whole_number_stays_one_where_both_are_declared() -> None:
    assert type(decode(float | int, 3, {}, "")) is int
    assert type(decode(float, 3, {}, "")) is float
    assert decode(Any, {"x": [1, None]}, {}, "") == {"x": [1, None]}


X = {"x": torch.zeros(2, 3)}


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (int, 1.5, "it is 1.5, expected int"),
        (int, True, "it is True, expected int"),
        (bool, 1, "it is 1, expected bool"),
        (float, "1", "it is '1', expected float"),
        (float, None, "it is None, expected float"),
        (str, 3, "it is 3, expected str"),
        (int | None, "x", "it is 'x', expected"),
        (Literal["ring", "star"], "rign", "it is 'rign', expected one of ring, star"),
        (dict[str, int], [1], "it is a list, expected dict"),
        (dict[int, int], {"x": 1}, "it has the key 'x', expected a whole number"),
        (dict[int, int], {"-1": 1}, "it has the key '-1'"),
        (dict[int, int], {"9" * 30: 1}, "expected a whole number"),
        (dict[str, int], {"a": "b"}, "it/a is 'b', expected int"),
        (tuple[int, int], [1, 2, 3], "it is a list, expected tuple"),
        (tuple[int, ...], [1, "2"], "it/1 is '2', expected int"),
        (list[int], {"0": 1}, "it is a dict, expected list"),
        (Event, {"client": "a", "round": 1, "code": "import os"}, "it has 'code', expected only client, round"),
        (Event, ["a", 1], "it is a list, expected Event"),
        (Choice, {}, "it lacks kind"),
        (Tensor, 3, "it is 3, expected the name of a tensor"),
        (Tensor, {"tensor": "y"}, "it is a dict, expected the name of a tensor"),
        (Tensor, {"tensor": ["x"]}, "expected the name of a tensor"),
        (Tensor, {"tensor": "x", "order": [0, 0]}, "in the order '.0, 0.', expected some order of"),
        (Tensor, {"tensor": "x", "order": [0, True]}, "it/1 is True, expected int"),
        (str | int, 0.5, "it is 0.5, expected"),
        (str, "long " * 50, None),
    ],
)
def test_json_of_another_form_is_refused_in_a_short_line(hint: Any, value: Any, words: str | None) -> None:
    if words is None:
        assert decode(hint, value, X, "it") == value
        return
    with pytest.raises(InputError, match=words) as caught:
        decode(hint, value, X, "it")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_long_values_are_cut_in_errors() -> None:
    with pytest.raises(InputError) as caught:
        decode(int, "x" * 10_000, {}, "it")
    assert len(str(caught.value)) < 100


def test_what_has_no_form_in_json_is_refused_when_written() -> None:
    with pytest.raises(InputError, match="state/b/1 is a set, expected tensors, numbers"):
        encode({"a": 1, "b": [0, {1, 2}]}, {}, "state")

"""Preparation: columns as inputs by the printed formulas, there and back as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.data.preparation import Category, Numeric, Preparation, Scaling, with_labels
from scool_ppl.errors import InputError
from tests.helpers.refusals import Case, refused, refuses

POOLED = Preparation(
    (Numeric("age", (50.0,), (10.0,), (50.0,)), Category("sex", ("f", "m"), ((0.25, 0.75),)), Numeric("beds")),
    Category("died", ("no", "yes")),
)
STRICT = Preparation((Numeric("age", (50.0,), (20.0,)), Category("sex", ("f", "m"))), Category("died", ("no", "yes")))
OWN = Preparation((Numeric("age", (50.0, 60.0), (10.0, 5.0)),), Numeric("days", (4.0, 6.0), (2.0, 1.0)), ("a", "b"))


def table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"age": [40, 65], "sex": ["m", "f"], "beds": [3.0, 4.0], "died": ["yes", "no"], **columns})


def test_columns_become_inputs_in_their_order() -> None:
    assert POOLED.feature_names == ("age", "sex=f", "sex=m", "beds")
    assert POOLED.labels == ("no", "yes")
    found = POOLED.transform(table()[["died", "beds", "sex", "age"]])
    assert found.dtype == torch.float32
    assert found.tolist() == [[-1.0, 0.0, 1.0, 3.0], [1.5, 1.0, 0.0, 4.0]]
    assert POOLED.encode_target(table()).tolist() == [1, 0]
    holes = POOLED.transform(table(age=[None, 65], sex=["m", None]))
    assert holes.tolist() == [[0.0, 0.0, 1.0, 3.0], [1.5, 0.25, 0.75, 4.0]]


def test_a_client_has_its_own_scale_and_predictions_their_unit() -> None:
    rows = {"age": [60.0], "days": [8.0]}
    assert [OWN.transform(rows, name).item() for name in "ab"] == [1.0, 0.0]
    assert [OWN.encode_target(rows, name).item() for name in "ab"] == [2.0, 2.0]
    assert [OWN.decode_target(torch.tensor([2.0]), name).item() for name in "ab"] == [8.0, 8.0]
    assert OWN.labels == ()


def test_a_file_is_transformed_as_its_table(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "new.csv", index=False)
    table().to_parquet(tmp_path / "new.parquet")
    np.savez(
        tmp_path / "new.npz", **{name: column.to_numpy(str) for name, column in table()[["sex"]].items()}, age=[40, 65]
    )
    expected = POOLED.transform(table())
    assert torch.equal(POOLED.transform(tmp_path / "new.csv"), expected)
    assert torch.equal(POOLED.transform(str(tmp_path / "new.parquet")), expected)
    assert torch.equal(STRICT.transform(tmp_path / "new.npz"), STRICT.transform(table()))


@pytest.mark.parametrize(
    "which", [POOLED, STRICT, OWN, with_labels(("cat", "dog"))], ids=["pooled", "strict", "own", "names"]
)
def test_json_there_and_back(which: Preparation) -> None:
    assert Preparation.from_json(which.to_json()) == which


def test_a_federation_keeps_it(tmp_path: Path) -> None:
    x = STRICT.transform(pd.concat([table()] * 4))
    whole = Federation.from_arrays(x, [0, 1] * 4, [0] * 4 + [1] * 4, preparation=STRICT, validation=0)
    assert whole.class_names == ("no", "yes")
    assert whole.select([1]).preparation == STRICT
    whole.save_npz(tmp_path / "mine.npz")
    assert Federation.from_npz(tmp_path / "mine.npz").preparation == STRICT
    plain = Federation.from_arrays(x, [0, 1] * 4, [0] * 4 + [1] * 4, validation=0)
    assert plain.class_names == ()
    assert plain.fingerprint != whole.fingerprint
    named = Federation.from_arrays(x, [0, 1] * 4, [0] * 4 + [1] * 4, validation=0, preparation=with_labels(("a", "b")))
    assert named.fingerprint == plain.fingerprint, "names change no number: older runs go on"
    with pytest.raises(InputError, match="prepared otherwise"):
        whole.join(plain)


REFUSED: list[Case] = [
    (lambda: POOLED.transform(table().drop(columns="age")), "the table has no column 'age'; add"),
    (
        lambda: STRICT.transform(table(age=[None, 3])),
        "column 'age' of the table has 1 of 2 values missing, expected all",
    ),
    (lambda: STRICT.transform(table(sex=["x", "f"])), "column 'sex' of the table has 'x', expected one of f, m"),
    (lambda: STRICT.transform(table(age=["old", "young"])), "column 'age' of the table holds categories such as 'old'"),
    (lambda: STRICT.transform(table(age=[np.inf, 1])), "holds 1 infinite values, expected finite numbers"),
    (lambda: STRICT.transform(table()[:0]), "the table has no rows"),
    (lambda: STRICT.transform([1, 2]), "a table is a list, expected a DataFrame or the path of a file"),
    (lambda: STRICT.transform("nowhere.csv"), "no file 'nowhere.csv'; expected a table"),
    (lambda: STRICT.transform("new.xlsx"), "expected a file that ends in .csv, .parquet, .npz"),
    (
        lambda: STRICT.encode_target(table(died=["no", None])),
        "the target 'died' of the table is missing in 1 of 2 rows",
    ),
    (lambda: STRICT.encode_target(table(died=["no", "maybe"])), "has 'maybe', expected one of no, yes"),
    (
        lambda: OWN.transform({"age": [1]}),
        "every client has a scale of its own, expected the name of one of them: a, b",
    ),
    (lambda: OWN.transform({"age": [1]}, "c"), "unknown client 'c'; known: a, b"),
    (lambda: with_labels(("a",)).transform(table()), "the inputs of this federation are no table"),
    (lambda: Preparation.from_json("{"), "the preparation is no JSON"),
    (lambda: Preparation.from_json('{"columns": []}'), "preparation lacks target"),
]


@refused(REFUSED)
def test_refused(call: Callable[[], Any], words: str) -> None:
    refuses(call, words)


def test_the_scale_of_each_input_and_that_of_one_client() -> None:
    mean, std = POOLED.scale()
    assert (mean.tolist(), std.tolist()) == ([50.0, 0.0, 0.0, 0.0], [10.0, 1.0, 1.0, 1.0])
    assert [[value.item() for value in OWN.scale(name)] for name in "ab"] == [[50.0, 10.0], [60.0, 5.0]]
    alone = OWN.of("b")
    assert alone == Preparation((Numeric("age", (60.0,), (5.0,)),), Numeric("days", (6.0,), (1.0,)))
    assert alone.transform({"age": [70]}).item() == OWN.transform({"age": [70]}, "b").item()
    assert POOLED.of("anybody") is POOLED
    filled = Preparation(
        (Category("sex", ("f", "m"), ((0.1, 0.9), (0.5, 0.5))),), Category("died", ("no",)), ("a", "b")
    )
    assert filled.of("b").columns == (Category("sex", ("f", "m"), ((0.5, 0.5),)),)


def test_the_scaling_of_arrays_is_kept_as_json() -> None:
    images = with_labels(("cat", "dog"), scaling=Scaling((1.5,), (2.0,), of_bytes=True))
    assert Preparation.from_json(images.to_json()) == images
    earlier = POOLED.to_json().replace(', "scaling": null', "")
    assert Preparation.from_json(earlier) == POOLED

"""The user's arrays and .npz files as tensors and index lists: who owns which row, and what is held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scool_ppl.base.files import write_npz
from scool_ppl.data.federation import Federation
from scool_ppl.data.reading import SPLITS, fractions, read_npz, rows_per_client, split_codes
from scool_ppl.errors import InputError
from tests.helpers.federations import same_lists


def test_from_arrays_by_owner_and_by_lists_agree() -> None:
    random = np.random.default_rng(0)
    inputs, targets = random.normal(size=(40, 3)), random.integers(0, 4, 40)
    owner = np.array([7, 2] * 20)
    by_owner = Federation.from_arrays(inputs, targets, owner, validation=0.1, test=0.25, names=["low", "high"])
    lists = [np.flatnonzero(owner == 2), np.flatnonzero(owner == 7)]
    by_lists = Federation.from_arrays(inputs, targets, lists, validation=0.1, test=0.25, names=["low", "high"])
    assert same_lists(by_owner, by_lists)
    assert [by_owner.sizes(split).tolist() for split in SPLITS] == [[13, 13], [2, 2], [5, 5]]
    rows = torch.cat([getattr(by_owner, split)[1] for split in SPLITS]).sort().values
    assert rows.tolist() == list(range(0, 40, 2))
    np.testing.assert_allclose(by_owner.inputs.numpy(), inputs.astype(np.float32))
    assert Federation.from_arrays(inputs, targets, owner).names == ("client 2", "client 7")
    other = Federation.from_arrays(inputs, targets, owner, validation=0.1, test=0.25, names=["low", "high"], seed=1)
    assert not same_lists(by_owner, other)


def test_a_clients_split_does_not_depend_on_the_other_clients() -> None:
    inputs, targets = torch.zeros(30, 2), torch.zeros(30, dtype=torch.long)
    three = Federation.from_arrays(inputs, targets, torch.arange(30) // 10)
    first = Federation.from_arrays(inputs[:10], targets[:10], torch.zeros(10, dtype=torch.long))
    assert torch.equal(three.train[0], first.train[0])
    assert not torch.equal(three.train[0], three.train[1] - 10)


def test_from_arrays_with_the_users_split() -> None:
    split = [0, 1, 2, 0, 0, 2]
    federation = Federation.from_arrays(torch.zeros(6, 2), [0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1], split=split)
    assert [rows.tolist() for rows in federation.train] == [[0], [3, 4]]
    assert [rows.tolist() for rows in federation.validation] == [[1], []]
    assert [rows.tolist() for rows in federation.test] == [[2], [5]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": [0, 0, 1]}, "3 client ids for 6 rows"),
        ({"clients": [0, 0, 0, 1, 1, -1]}, "client id -1"),
        ({"clients": [0.5] * 6}, "clients are torch.float32"),
        ({"clients": [[0, 1, 2], [2, 3]]}, "two index lists"),
        ({"clients": [[0, 1, 2], [3, 6]]}, "expected 0 to 5"),
        ({"clients": [[0, 1, 2], []]}, "client 1 has no training data"),
        ({"clients": []}, "0 client ids for 6 rows"),
        ({"targets": [0.5] * 6}, "targets are torch.float32"),
        ({"targets": ["a"] * 6}, "targets cannot be read"),
        ({"inputs": [[1.0], [2.0, 3.0]]}, "inputs cannot be read"),
        ({"inputs": 3.0}, "0 rows"),
        ({"inputs": torch.zeros(6, 2, dtype=torch.complex64)}, "complex64"),
        ({"validation": 0.5, "test": 0.5}, "sum is below 1"),
        ({"validation": -0.1}, "validation=-0.1"),
        ({"test": float("nan")}, "test=nan"),
        ({"test": "half"}, "validation=0.2 and test=half, expected fractions"),
        ({"clients": 1}, "clients is 1, expected a Collection; give an owner for each row"),
        ({"names": 3}, "names is 3, expected a Collection"),
        ({"names": ["a"]}, "1 names for 2 clients"),
        ({"groups": [0.5, 1.0]}, "groups are torch.float32"),
        ({"split": [0, 0, 0]}, r"split has shape \(3,\)"),
        ({"split": [0, 0, 0, 0, 0, 3]}, "split runs from 0 to 3"),
        ({"split": [0, 0, 0, 1, 1, 2]}, "client 1 has no training data"),
        ({"num_classes": 1}, "targets run from 0 to 1"),
    ],
)
def test_wrong_arrays_are_refused(changes: dict[str, Any], words: str) -> None:
    values = {"inputs": torch.zeros(6, 2), "targets": [0, 1] * 3, "clients": [0, 0, 0, 1, 1, 1]}
    Federation.from_arrays(**values)
    with pytest.raises(InputError, match=words) as caught:
        Federation.from_arrays(**{**values, **changes})
    assert "\n" not in str(caught.value)


def test_rows_go_to_owners_in_the_order_of_their_ids() -> None:
    lists, ids = rows_per_client(np.array([7, 2, 7, 5]), 4)
    assert ids == [2, 5, 7]
    assert [rows.tolist() for rows in lists] == [[1], [3], [0, 2]]
    lists, ids = rows_per_client([[3, 0], np.array([2])], 4)
    assert ids == [0, 1]
    assert [rows.tolist() for rows in lists] == [[3, 0], [2]], "rows that nobody owns are left out"


def test_fractions_are_random_disjoint_and_of_the_asked_sizes() -> None:
    rows = torch.arange(100, 300)
    chosen = torch.zeros(3, 200)
    for seed in range(200):
        parts = fractions(rows, 0.25, 0.1, seed, "a")
        assert [len(part) for part in parts] == [130, 50, 20]
        assert torch.equal(torch.cat(parts).sort().values, rows)
        for number, part in enumerate(parts):
            chosen[number, part - 100] += 1
    # Every row is in a part as often as the part is large, to within five standard errors of 200 draws.
    for found, share in zip(chosen / 200, (0.65, 0.25, 0.1), strict=True):
        assert ((found - share).abs() < 5 * (share * (1 - share) / 200) ** 0.5).all()


def test_a_split_has_a_code_for_every_row() -> None:
    assert split_codes([0, 2, 1], 3).tolist() == [0, 2, 1]
    with pytest.raises(InputError, match=r"split are torch\.float32"):
        split_codes([0.5, 1.0], 2)


def test_npz_damage_is_one_line(tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    write_npz(good, {"inputs": np.eye(30), "targets": np.arange(30), "client": np.zeros(30, dtype=int)})
    content = good.read_bytes()
    flipped = bytearray(content)
    flipped[content.index(np.ones(1).tobytes())] ^= 1
    damaged = {"empty": b"", "text": b"not an archive", "cut": content[:-200], "flipped": bytes(flipped)}
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match="cannot read") as caught:
            read_npz(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_npz_with_wrong_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, inputs=np.eye(3), client=np.arange(3))
    with pytest.raises(InputError, match="has no targets"):
        read_npz(path)
    np.savez(path, inputs=np.eye(3), client=np.arange(3), targets=np.arange(3), splits=np.arange(3))
    with pytest.raises(InputError, match="did you mean 'split'"):
        read_npz(path)
    np.savez(path, inputs=np.array([{}, []], dtype=object), client=np.arange(2), targets=np.arange(2))
    with pytest.raises(InputError, match="cannot read"):
        read_npz(path)
    np.save(tmp_path / "b.npy", np.eye(3))
    with pytest.raises(InputError, match="single array"):
        read_npz(tmp_path / "b.npy")
    with pytest.raises(InputError, match="no file"):
        read_npz(tmp_path / "missing.npz")
    with pytest.raises(InputError, match="cannot read"):
        read_npz(tmp_path)

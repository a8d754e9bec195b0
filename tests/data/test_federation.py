"""Federation: constructors, round trips, views, and the refusal of data that does not fit."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from scool_ppl.data.federation import Federation
from scool_ppl.data.specs import DEFAULT_FEDERATION, load_federation
from scool_ppl.errors import InputError

SPLITS = ("train", "validation", "test")


@pytest.fixture
def data_root() -> Path:
    root = Path(os.environ.get("SCOOL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / "MNIST" / "raw" / "train-images-idx3-ubyte").exists():
        pytest.skip(f"no MNIST in {root}; set SCOOL_DATA")
    return root


def small(**changes: Any) -> Federation:
    """Two clients, eight rows, three classes; client 1 calls class c (c + 1) mod 3."""
    values: dict[str, Any] = {
        "inputs": torch.arange(16.0).view(8, 2),
        "targets": torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]),
        "train": (torch.tensor([0, 1]), torch.tensor([3, 4])),
        "validation": (torch.tensor([2]), torch.tensor([], dtype=torch.long)),
        "test": (torch.tensor([6, 7]), torch.tensor([6, 7])),
        "names": ("a", "b"),
        "num_classes": 3,
        "relabel": torch.tensor([[0, 1, 2], [1, 2, 0]]),
        "groups": (0, 1),
    }
    return Federation(**{**values, **changes})


def same_lists(first: Federation, second: Federation) -> bool:
    return all(torch.equal(a, b) for s in SPLITS for a, b in zip(getattr(first, s), getattr(second, s), strict=True))


def test_labels_counts_and_classes_follow_the_clients_own_names() -> None:
    federation = small()
    assert federation.labels(0, torch.tensor([6, 7])).tolist() == [0, 1]
    assert federation.labels(1, torch.tensor([6, 7])).tolist() == [1, 2]
    assert federation.label_counts("train").tolist() == [[1, 1, 0], [0, 1, 1]]
    assert federation.label_counts("test").tolist() == [[1, 1, 0], [0, 1, 1]]
    assert federation.class_mask().tolist() == [[True, True, True], [False, True, True]]
    assert federation.classes(0).tolist() == [0, 1, 2]
    assert federation.classes(1).tolist() == [1, 2]
    assert federation.sizes("train").tolist() == [2, 2]
    assert federation.sizes("validation").tolist() == [1, 0]
    with pytest.raises(InputError, match="did you mean 'train'"):
        federation.sizes("training")


def test_truth_comes_from_groups_unless_given() -> None:
    federation = small(groups=(4, 4))
    assert federation.truth is not None
    assert federation.truth.tolist() == [[0, 1], [1, 0]]
    given = torch.tensor([[0.0, 0.5], [0.0, 0.0]])
    assert small(groups=(4, 4), truth=given).truth is given
    assert small(groups=None).truth is None


def test_select_reorders_and_shares_the_tensors() -> None:
    federation = load_federation("permuted:digits:clients=4,groups=2,train=20")
    part = federation.select([3, 0, 1])
    assert part.inputs.data_ptr() == federation.inputs.data_ptr()
    assert part.names == ("client 3", "client 0", "client 1")
    assert part.groups == (1, 0, 0)
    assert part.truth is not None
    assert part.truth.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]
    for new, old in enumerate([3, 0, 1]):
        for split in SPLITS:
            rows = getattr(part, split)[new]
            assert torch.equal(rows, getattr(federation, split)[old])
            assert torch.equal(part.labels(new, rows), federation.labels(old, rows))
    alone = federation.select([2])
    assert alone.num_clients == 1
    assert alone.truth is not None
    assert alone.truth.tolist() == [[0]]
    for wrong in ([4], [-1], [], [1, 1]):
        with pytest.raises(InputError):
            federation.select(wrong)


TENSOR = torch.tensor


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": torch.arange(16.0).double().view(8, 2)}, "float64 of shape"),
        ({"inputs": torch.arange(8.0)}, r"expected float32 \(N"),
        ({"inputs": np.zeros((8, 2))}, "use Federation.from_arrays"),
        ({"inputs": torch.tensor([[0.0, 1.0]] * 5 + [[0.0, torch.nan]] + [[0.0, 1.0]] * 2)}, "input 5 holds NaN"),
        ({"inputs": torch.full((8, 2), torch.inf)}, "input 0 holds NaN or infinity"),
        ({"targets": torch.zeros(7, dtype=torch.long)}, "one label for each input"),
        ({"targets": torch.zeros(8)}, "float32"),
        ({"targets": TENSOR([0, 1, 2, 0, 1, 3, 0, 1])}, "run from 0 to 3, expected 0 to 2"),
        ({"targets": TENSOR([0, 1, 2, 0, 1, -1, 0, 1])}, "run from -1"),
        ({"num_classes": 2}, "expected 0 to 1"),
        ({"names": ("a", "a")}, r"\['a'\] are repeated"),
        ({"names": ("a", "")}, "empty"),
        ({"names": ("a",), "relabel": None, "groups": None}, "2 index lists for 1 clients"),
        ({"groups": (0,)}, "1 groups for 2 clients"),
        ({"truth": torch.zeros(2, 3)}, r"truth has shape \(2, 3\)"),
        ({"truth": torch.eye(2)}, "zero diagonal"),
        ({"truth": TENSOR([[0.0, torch.nan], [0.0, 0.0]])}, "finite"),
        ({"relabel": TENSOR([[0, 1, 2]])}, "relabel is torch.int64"),
        ({"relabel": TENSOR([[0, 1, 2], [1, 2, 3]])}, "outside 0 to 2"),
        ({"train": (TENSOR([0, 1]), TENSOR([], dtype=torch.long))}, "b has no training data"),
        ({"train": (TENSOR([0, 1]), TENSOR([3, 8]))}, "run from 3 to 8, expected 0 to 7"),
        ({"train": (TENSOR([0, 1]), TENSOR([-1, 3]))}, "run from -1"),
        ({"train": (TENSOR([0, 1]), TENSOR([3, 3]))}, "name a row twice"),
        ({"train": (TENSOR([0, 1]), TENSOR([3.0]))}, "expected an int64 index list"),
        ({"train": (TENSOR([0, 1]), [3])}, "are list, expected an int64"),
        ({"train": (TENSOR([0, 1]), TENSOR([1, 3]))}, "b trains on row 1 but another client trains on it"),
        ({"validation": (TENSOR([1]), TENSOR([5]))}, "a validates on row 1"),
        ({"test": (TENSOR([6, 2]), TENSOR([6]))}, "a is tested on row 2 but a client validates on it"),
        ({"test": (TENSOR([6]), TENSOR([0]))}, "b is tested on row 0 but a client trains on it"),
    ],
)
def test_data_that_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    small()
    with pytest.raises(InputError, match=words) as caught:
        small(**changes)
    assert "\n" not in str(caught.value)


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


class Items(Dataset[Any]):
    """A map-style dataset of what it was given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def test_from_datasets_equals_from_arrays() -> None:
    inputs, targets = torch.randn(20, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    datasets = [
        TensorDataset(inputs[:12], targets[:12]),
        Items([(x.numpy(), int(y)) for x, y in zip(inputs[12:], targets[12:], strict=True)]),
    ]
    federation = Federation.from_datasets(datasets, seed=3)
    expected = Federation.from_arrays(inputs, targets, [list(range(12)), list(range(12, 20))], seed=3)
    assert same_lists(federation, expected)
    assert torch.equal(federation.inputs, inputs)
    assert torch.equal(federation.targets, targets)


class Stream(IterableDataset[Any]):
    """A dataset without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter([])


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Items([]), "no items"),
        (Stream(), "no length"),
        (Items([torch.zeros(2)]), "expected a pair"),
        (Items([("image", 0)]), "add transforms.ToTensor"),
        (Items([(torch.zeros(2), 0.5)]), "labels are torch.float32"),
        (Items([(torch.zeros(2), [0, 1])]), "2 labels"),
        (Items([(torch.zeros(2), 0), (torch.zeros(3), 0)]), r"item 1 has input shape \(3,\)"),
    ],
)
def test_wrong_datasets_are_refused(dataset: Dataset[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Federation.from_datasets([dataset])


def test_datasets_of_different_shapes_are_refused() -> None:
    datasets = [TensorDataset(torch.zeros(5, size), torch.zeros(5, dtype=torch.long)) for size in (2, 3)]
    with pytest.raises(InputError, match=r"shapes \[\(2,\), \(3,\)\], expected one shape"):
        Federation.from_datasets(datasets)
    with pytest.raises(InputError):
        Federation.from_datasets([])


def test_npz_round_trip_keeps_what_every_client_sees(tmp_path: Path) -> None:
    federation = load_federation("permuted:digits:clients=3,groups=2,train=20,test=30")
    federation.save_npz(tmp_path / "mine.npz")
    back = load_federation(str(tmp_path / "mine.npz"))
    assert (back.names, back.groups, back.num_classes) == (federation.names, federation.groups, 10)
    assert back.truth is not None
    assert federation.truth is not None
    assert torch.equal(back.truth, federation.truth)
    assert back.spec == str(tmp_path / "mine.npz")
    for client in range(3):
        for split in SPLITS:
            old, new = getattr(federation, split)[client], getattr(back, split)[client]
            assert torch.equal(federation.inputs[old], back.inputs[new])
            assert torch.equal(federation.labels(client, old), back.labels(client, new))


def test_a_users_npz_needs_three_arrays(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    owner = np.repeat([0, 1], 10)
    np.savez(path, inputs=np.zeros((20, 2)), targets=np.arange(20) % 2, client=owner)
    federation = load_federation(str(path), seed=5)
    assert same_lists(federation, Federation.from_arrays(np.zeros((20, 2)), np.arange(20) % 2, owner, seed=5))
    assert federation.truth is None
    assert load_federation(str(path), clients=2).num_clients == 2
    with pytest.raises(InputError, match="has 2 clients, not 5"):
        load_federation(str(path), clients=5)
    np.savez(path, inputs=np.full((20, 2), np.nan), targets=np.arange(20) % 2, client=owner)
    with pytest.raises(InputError, match=r"mine.npz: input 0 holds NaN"):
        load_federation(str(path))
    with pytest.raises(InputError, match="no file"):
        load_federation(str(tmp_path / "other.npz"))


def test_the_default_federation_is_what_defaults_promise() -> None:
    federation = load_federation("digits")
    assert federation.spec == DEFAULT_FEDERATION == "permuted:digits:clients=20,groups=4,train=50"
    assert [federation.sizes(split).tolist() for split in SPLITS] == [[40] * 20, [10] * 20, [500] * 20]
    assert federation.inputs.shape == (1500, 64)
    assert federation.groups == tuple(group for group in range(4) for _ in range(5))
    assert federation.truth is not None
    assert federation.truth.sum(1).tolist() == [4] * 20
    # Test images are shared: one list, whatever the number of clients.
    assert all(rows is federation.test[0] for rows in federation.test)


def test_relabelled_test_images_are_the_digits_themselves() -> None:
    """Undoing a client's permutation gives scikit-learn's label of the same pixels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    label_of = {row.tobytes(): int(label) for row, label in zip(data.data, data.target, strict=True)}
    federation = load_federation("digits", seed=4)
    assert federation.relabel is not None
    for client in (0, 19):
        for split in SPLITS:
            rows = getattr(federation, split)[client]
            original = federation.relabel[client].argsort()[federation.labels(client, rows)]
            pixels = federation.inputs[rows].double().numpy() * 16
            assert original.tolist() == [label_of[row.tobytes()] for row in pixels]


def test_seeds_differ_and_repeat() -> None:
    first, again, other = (load_federation("digits", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.inputs, again.inputs)
    assert same_lists(first, again)
    assert first.relabel is not None
    assert other.relabel is not None
    assert not torch.equal(first.inputs, other.inputs)
    assert not torch.equal(first.relabel, other.relabel)


def test_only_used_rows_are_kept() -> None:
    federation = load_federation("permuted:digits:clients=2,groups=1,train=10,test=7")
    assert federation.inputs.shape == (27, 64)
    used = torch.cat([*federation.train, *federation.validation, federation.test[0]])
    assert sorted(used.tolist()) == list(range(27))
    assert int(federation.test[0].min()) == 20


@pytest.mark.parametrize(
    "spec", ["iid:digits", "dirichlet:digits:train=50", "pathological:digits", "groups:digits", "permuted:digits"]
)
def test_every_recipe_loads_and_its_spec_repeats_it(spec: str) -> None:
    federation = load_federation(spec, clients=10)
    assert federation.num_clients == 10
    assert same_lists(federation, load_federation(federation.spec))
    assert "clients=10" in federation.spec


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("digit", "did you mean 'digits'"),
        ("permuted", "expected recipe:dataset"),
        ("permuted:digits:clients=3:groups=2", "expected recipe:dataset"),
        ("permutd:digits", "did you mean 'permuted'"),
        ("permuted:mnst", "did you mean 'mnist'"),
        ("permuted:digits:client=3", "did you mean 'clients'"),
        ("permuted:digits:clients=many", "expected a whole number"),
        ("permuted:digits:clients=20,train=600", "20 x 600 = 12000 images, the pool has 1297"),
        ("", "unknown dataset"),
    ],
)
def test_wrong_specs_are_one_line(spec: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        load_federation(spec)
    assert "\n" not in str(caught.value)


def test_missing_images_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no cifar10 in .*--download"):
        load_federation("dirichlet:cifar10", data_root=tmp_path)


def test_a_federation_cannot_be_reassigned_and_prints_shortly() -> None:
    federation = load_federation("digits")
    with pytest.raises(dataclasses.FrozenInstanceError):
        federation.spec = "other"  # type: ignore[misc]
    assert "tensor" not in repr(federation)


@pytest.mark.data
def test_mnist_federation_keeps_its_own_images_only(data_root: Path) -> None:
    federation = load_federation("dirichlet:mnist:clients=20,alpha=0.1,train=200,test=1000", data_root=data_root)
    assert federation.inputs.shape[1:] == (1, 28, 28)
    assert len(federation.inputs) == 20 * 200 + 1000
    assert torch.equal(federation.label_counts("test") > 0, federation.class_mask())

"""Datasets of every kind as a federation: pairs and mappings, tensors and images, labels as numbers and texts."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor

from scool_ppl.data.federation import Federation
from scool_ppl.data.items import read_items
from scool_ppl.errors import InputError
from scool_ppl.tasks import Classification
from tests.helpers.federations import same_lists


class Items(Dataset[Any]):
    """A map-style dataset of what it was given; `known` are attributes of it."""

    def __init__(self, items: list[Any], **known: Any) -> None:
        self.items = items
        vars(self).update(known)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def images(mode: str = "RGB", count: int = 10) -> list[Image.Image]:
    random = np.random.default_rng(0)
    channels = (3,) if mode == "RGB" else ()
    return [Image.fromarray(random.integers(0, 256, (4, 5, *channels), dtype=np.uint8)) for _ in range(count)]


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
    assert federation.fingerprint == expected.fingerprint


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_are_as_torchvision_makes_them(mode: str) -> None:
    found = read_items(Items([(image, 0) for image in images(mode)]), "it")
    assert torch.equal(found.inputs, torch.stack([ToTensor()(image) for image in images(mode)]))
    see_through = read_items(Items([(images()[0].convert("RGBA"), 0)]), "it")
    assert torch.equal(see_through.inputs[0], ToTensor()(images()[0]))


def test_images_of_16_bits_and_palettes_lose_nothing() -> None:
    deep = np.array([[0, 300], [30000, 65535]], dtype=np.uint16)
    found = read_items(Items([(Image.fromarray(deep), 0)]), "it").inputs[0, 0]
    np.testing.assert_allclose(found, deep / 65535, rtol=1e-6)
    painted = Image.new("P", (2, 1))
    painted.putpalette([255, 0, 0, 0, 0, 255])
    painted.putpixel((1, 0), 1)
    found = read_items(Items([(painted, 0)]), "it").inputs[0]
    assert found[:, 0].T.tolist() == [[1, 0, 0], [0, 0, 1]]
    with pytest.raises(InputError, match="mode F, of unknown range"):
        read_items(Items([(Image.new("F", (2, 2)), 0)]), "it")


def test_a_dataset_of_torchvision_by_name() -> None:
    datasets = {name: FakeData(10, (3, 8, 8), 2, random_offset=10 * place) for place, name in enumerate("ab")}
    federation = Federation.from_datasets(datasets)
    assert federation.names == ("a", "b")
    assert federation.inputs.shape == (20, 3, 8, 8)
    assert federation.targets.tolist() == [int(data[i][1]) for data in datasets.values() for i in range(10)]


def test_items_as_hugging_face_has_them() -> None:
    """Mappings with images, whose features say what the classes are called."""
    names, labels = ["cat", "dog", "emu"], [0, 1] * 5
    rows = [{"image": image, "label": label} for image, label in zip(images(), labels, strict=True)]
    features = {"label": SimpleNamespace(names=names), "image": SimpleNamespace()}
    datasets = {"zoo": Items(rows, features=features), "farm": Subset(Items(rows, features=features), range(10))}
    federation = Federation.from_datasets(datasets)
    assert (federation.class_names, federation.num_classes) == (("cat", "dog", "emu"), 3)
    assert federation.targets.tolist() == 2 * labels
    renamed = [{"picture": row["image"], "animal": names[int(row["label"])]} for row in rows]  # type: ignore[call-overload]
    texts = Federation.from_datasets({"zoo": Items(renamed)}, input="picture", label="animal")
    assert texts.class_names == ("cat", "dog")
    assert texts.targets.tolist() == labels
    assert torch.equal(texts.inputs, federation.inputs[:10])
    assert Federation.from_datasets({"zoo": Items(rows, features=features)}, num_classes=5).num_classes == 5
    for task in (Classification(2), "classification"):
        told = Federation.from_datasets({"zoo": Items(renamed)}, input="picture", label="animal", task=task)
        assert (told.class_names, told.num_classes) == (("cat", "dog"), 2), "whoever says the task"
    short = Items([(torch.zeros(2), label) for label in labels], classes=["only one"])
    assert Federation.from_datasets([short]).class_names == ()


def test_regression_and_lists_of_numbers() -> None:
    rows = [{"x": [float(place), 1.0], "y": place / 10} for place in range(10)]
    federation = Federation.from_datasets([Items(rows)], task="regression")
    assert federation.inputs[:, 0].tolist() == list(range(10))
    assert federation.targets == pytest.approx(torch.arange(10) / 10)


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
        (TensorDataset(torch.zeros(3, 2)), "item 0 is a tuple, expected a pair"),
        (Items([("image", 0)]), "client 0 has inputs of type str, expected tensors, arrays or images; add a transform"),
        (Items([(torch.zeros(2), 0.5)]), "targets are torch.float32"),
        (Items([(torch.zeros(2), torch.tensor([0, 1]))]), "client 0 item 0 has 2 labels, expected one"),
        (Items([(torch.zeros(2), [0, 1])]), "client 0 item 0 has the label list, expected one"),
        (Items([(torch.zeros(2), 0), (torch.zeros(2), "a")]), "some labels are texts and some are numbers"),
        (Items([(torch.zeros(2), 0), (torch.zeros(3), 0)]), r"item 1 has input shape \(3,\)"),
        (Items([{"a": 1, "b": 2}]), "input=: the keys are a, b, expected one of image, img"),
    ],
)
def test_wrong_datasets_are_refused(dataset: Dataset[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Federation.from_datasets([dataset])


def test_a_key_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="unknown key of client 0 item 0, label= 'c'; known: x, y"):
        Federation.from_datasets([Items([{"x": [1.0], "y": 2}])], label="c")


def test_datasets_of_different_shapes_are_refused() -> None:
    datasets = [TensorDataset(torch.zeros(5, size), torch.zeros(5, dtype=torch.long)) for size in (2, 3)]
    with pytest.raises(InputError, match=r"shapes \[\(2,\), \(3,\)\], expected one shape"):
        Federation.from_datasets(datasets)
    with pytest.raises(InputError, match="no datasets were given, expected one for each client"):
        Federation.from_datasets([])

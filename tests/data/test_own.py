"""The user's own arrays, features and folders of images, against numpy's own arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from scool_ppl import load_federation
from scool_ppl.data.datasets import load_dataset
from scool_ppl.data.own import channels_first
from scool_ppl.errors import InputError

RANDOM = np.random.default_rng(0)
BYTES = RANDOM.integers(0, 256, (20, 3, 8, 9), dtype=np.uint8)
LABELS = np.arange(20) % 4


def test_float_arrays_stay_and_a_stratified_fifth_is_held_out(tmp_path: Path) -> None:
    inputs, targets = RANDOM.normal(size=(101, 2, 3)), np.repeat([0, 1, 2], [50, 30, 21])
    np.savez(tmp_path / "my.npz", inputs=inputs, targets=targets)
    arrays = load_dataset(str(tmp_path / "my.npz"))
    assert arrays.num_classes == 3
    assert torch.bincount(arrays.targets_test).tolist() == [10, 6, 4]
    both = torch.cat([arrays.inputs_train, arrays.inputs_test]).numpy()
    assert sorted(map(tuple, both.reshape(101, -1).tolist())) == sorted(
        map(tuple, inputs.astype(np.float32).reshape(101, -1).tolist())
    )
    again = load_dataset(str(tmp_path / "my.npz"))
    assert torch.equal(again.inputs_test, arrays.inputs_test)


@pytest.mark.parametrize("layout", ["first", "last", "none"])
def test_bytes_are_images_standardised_by_the_training_part(tmp_path: Path, layout: str) -> None:
    images = {"first": BYTES, "last": BYTES.transpose(0, 2, 3, 1), "none": BYTES[:, 0]}[layout]
    np.savez(
        tmp_path / "my.npz", inputs=images, targets=LABELS, inputs_test=images[:6], targets_test=LABELS[:6].astype("u1")
    )
    arrays = load_dataset(str(tmp_path / "my.npz"))
    expected = (BYTES if layout != "none" else BYTES[:, :1]) / 255
    expected = (expected - expected.mean((0, 2, 3), keepdims=True)) / expected.std((0, 2, 3), keepdims=True)
    assert arrays.inputs_train.dtype == torch.uint8
    inputs = arrays.ready(arrays.inputs_train)
    assert inputs.dtype == torch.float32
    assert inputs.is_contiguous()
    np.testing.assert_allclose(inputs.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(arrays.ready(arrays.inputs_test).numpy(), expected[:6], atol=1e-5)
    assert arrays.targets_test.tolist() == LABELS[:6].tolist()
    pixels = BYTES if layout != "none" else BYTES[:, :1]
    assert arrays.scaling is not None
    np.testing.assert_allclose(arrays.scaling.mean, pixels.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(arrays.scaling.std, pixels.std((0, 2, 3)), rtol=1e-5)
    assert arrays.scaling.of_bytes


def test_a_constant_channel_or_dimension_is_not_divided_by_zero(tmp_path: Path) -> None:
    constant = BYTES.copy()
    constant[:, 1] = 7
    np.savez(tmp_path / "my.npz", inputs=constant, targets=LABELS)
    arrays = load_dataset(str(tmp_path / "my.npz"))
    assert not arrays.ready(arrays.inputs_train)[:, 1].any()
    np.savez(tmp_path / "my.npz", inputs=np.full((20, 2), 7.0), targets=LABELS)
    assert not load_dataset(f"features:{tmp_path}/my.npz").inputs_train.any()


def test_features_are_standardised_by_dimension(tmp_path: Path) -> None:
    inputs = RANDOM.normal(3, 5, size=(40, 6, 1, 1))
    np.savez(
        tmp_path / "my.npz",
        inputs=inputs[:30],
        targets=np.arange(30) % 3,
        inputs_test=inputs[30:],
        targets_test=np.arange(10) % 3,
    )
    federation = load_federation(f"groups:features:{tmp_path}/my.npz:clients=3,groups=3,classes=1,validation=0")
    assert federation.inputs.shape == (40, 6)
    flat = inputs.reshape(40, 6)
    expected = (flat - flat[:30].mean(0)) / flat[:30].std(0)
    np.testing.assert_allclose(federation.inputs.numpy(), expected, atol=1e-5)
    scaling = federation.preparation.scaling
    np.testing.assert_allclose((flat - scaling.mean) / scaling.std, expected, atol=1e-6)
    assert not scaling.of_bytes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"targets": LABELS[:5]}, r"inputs of shape \(20, 3, 8, 9\) and targets of shape \(5,\)"),
        ({"targets": LABELS - 1}, "label -1 in targets, expected 0 or more"),
        ({"targets": LABELS + 0.5}, "targets are torch.float64"),
        ({"targets": LABELS * 1000}, "labels up to 3000 for 20 rows"),
        ({"inputs": BYTES.reshape(20, -1)}, "expected images"),
        ({"inputs": RANDOM.integers(0, 9, (20, 5, 8, 9), dtype=np.uint8)}, "1, 3 or 4 channels"),
        ({"inputs": np.zeros(20)}, r"inputs of shape \(20,\)"),
        ({"inputs": BYTES[:0], "targets": LABELS[:0]}, "at least one row"),
        ({"inputs": BYTES[:1], "targets": LABELS[:1]}, "1 row, expected at least 2"),
        ({"inputs_test": BYTES[:4]}, "expected both or neither"),
        ({"inputs_test": BYTES[:4] / 255, "targets_test": LABELS[:4]}, "inputs_test torch.float32 of shape"),
        ({"inputs_test": BYTES[:4, :, 1:], "targets_test": LABELS[:4]}, r"of shape \(3, 7, 9\), expected torch.uint8"),
        ({"client": LABELS}, "unknown array"),
    ],
)
def test_arrays_that_do_not_fit_are_one_line(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "my.npz", **({"inputs": BYTES, "targets": LABELS} | changes))
    with pytest.raises(InputError, match=words) as caught:
        load_dataset(str(tmp_path / "my.npz"))
    assert "\n" not in str(caught.value)


def write_folder(root: Path, classes: dict[str, int], start: int = 0) -> None:
    """Images 12 x 20 whose middle is of one colour, the number of the image."""
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for index in range(count):
            pixels = np.full((12, 20, 3), 255, dtype=np.uint8)
            pixels[:, 4:16] = (start + index, 10, 20 * index)
            Image.fromarray(pixels).save(root / name / f"{index:03}.png")


def test_an_image_folder_is_resized_and_split(tmp_path: Path) -> None:
    write_folder(tmp_path / "pets", {"cat": 10, "dog": 5})
    arrays = load_dataset(f"imagefolder:{tmp_path}/pets", size=12)
    assert arrays.inputs_train.shape == (12, 3, 12, 12)
    assert torch.bincount(arrays.targets_test).tolist() == [2, 1]
    # The crop keeps the middle, so every image is of one colour.
    inputs = arrays.ready(arrays.inputs_train)
    assert torch.equal(inputs.amax((2, 3)), inputs.amin((2, 3)))
    np.testing.assert_allclose(inputs[:, 0].mean(), 0, atol=1e-6)
    federation = load_federation(f"iid:imagefolder:{tmp_path}/pets:clients=2,size=6")
    assert federation.inputs.shape[1:] == (3, 6, 6)
    assert federation.spec == f"iid:imagefolder:{tmp_path}/pets:clients=2,size=6"
    assert federation.class_names == ("cat", "dog")
    assert (
        load_federation(f"permuted:imagefolder:{tmp_path}/pets:clients=2,groups=1,flip=2,train=4,size=6").class_names
        == ()
    )


@pytest.mark.parametrize("held_out", ["test", "val"])
def test_train_and_test_folders_share_the_names_of_classes(held_out: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "train", {"ant": 2, "bee": 3, "cow": 4})
    write_folder(tmp_path / held_out, {"bee": 1, "cow": 2}, start=100)
    arrays = load_dataset(f"imagefolder:{tmp_path}", size=12)
    assert arrays.targets_train.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert arrays.targets_test.tolist() == [1, 2, 2]
    assert arrays.num_classes == 3
    assert arrays.class_names == ("ant", "bee", "cow")
    write_folder(tmp_path / held_out, {"dog": 1})
    with pytest.raises(InputError, match="class 'dog' in test but not in train"):
        load_dataset(f"imagefolder:{tmp_path}", size=12)


def test_image_folders_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        load_dataset(f"imagefolder:{tmp_path}/none")
    with pytest.raises(InputError, match="is no image folder"):
        load_dataset(f"imagefolder:{tmp_path}")
    write_folder(tmp_path / "a", {"x": 3})
    with pytest.raises(InputError, match="size=0"):
        load_federation(f"iid:imagefolder:{tmp_path}/a:size=0,clients=1")
    (tmp_path / "a" / "x" / "000.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"cannot read the image .*000.png") as caught:
        load_dataset(f"imagefolder:{tmp_path}/a")
    assert "\n" not in str(caught.value)


def test_channels_come_first_wherever_they_can_be_told() -> None:
    for given, expected in (
        ((2, 8, 9), (2, 1, 8, 9)),
        ((2, 8, 9, 3), (2, 3, 8, 9)),
        ((2, 3, 8, 9), (2, 3, 8, 9)),
        ((2, 8, 9, 5), (2, 8, 9, 5)),
        ((2, 1, 9, 3), (2, 1, 9, 3)),  # both could be: what torch's own images are is taken
    ):
        assert tuple(channels_first(torch.zeros(given)).shape) == expected

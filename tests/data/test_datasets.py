"""Datasets by name: digits against scikit-learn, torchvision's formats from files written here, and what is missing."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from scool_ppl.data.datasets import load_dataset
from scool_ppl.errors import InputError


def write_idx(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Write the two files of Y. LeCun's format: magic number, big-endian sizes, bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">IIII", 0x803, *images.shape)
    (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(labels)) + labels.tobytes())


def write_mnist(root: Path, name: str = "MNIST") -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    labels = (np.arange(30) % 10).astype(np.uint8)
    write_idx(root / name / "raw", "train", images, labels)
    write_idx(root / name / "raw", "t10k", images[:7], labels[:7])
    return images, labels


def test_digits_are_scikit_learns_in_a_stratified_split() -> None:
    from sklearn.datasets import load_digits

    data = load_digits()
    arrays = load_dataset("digits")
    assert arrays.inputs_train.shape == (1297, 64)
    assert arrays.inputs_test.shape == (500, 64)
    assert arrays.inputs_train.dtype == torch.float32
    rows = torch.cat([arrays.inputs_train, arrays.inputs_test]).double().numpy() * 16
    labels = torch.cat([arrays.targets_train, arrays.targets_test]).numpy()
    found = sorted((label, row.tobytes()) for label, row in zip(labels, rows, strict=True))
    assert found == sorted((label, row.tobytes()) for label, row in zip(data.target, data.data, strict=True))
    shares = np.bincount(data.target) * 500 / 1797
    assert (np.abs(np.bincount(arrays.targets_test) - shares) <= 1).all()


@pytest.mark.parametrize(
    ("name", "folder", "mean", "std"),
    [("mnist", "MNIST", 0.1307, 0.3081), ("fashion-mnist", "FashionMNIST", 0.2860, 0.3530)],
)
def test_idx_files_are_read_and_normalised(tmp_path: Path, name: str, folder: str, mean: float, std: float) -> None:
    images, labels = write_mnist(tmp_path, folder)
    arrays = load_dataset(name, tmp_path)
    assert arrays.inputs_train.shape == (30, 1, 28, 28)
    assert arrays.inputs_train.dtype == torch.uint8
    assert arrays.inputs_test.shape == (7, 1, 28, 28)
    expected = (images[:, None].astype(np.float64) / 255 - mean) / std
    np.testing.assert_allclose(arrays.ready(arrays.inputs_train).numpy(), expected, atol=1e-5)
    assert arrays.targets_train.tolist() == labels.tolist()
    assert arrays.targets_train.dtype == torch.long
    assert arrays.num_classes == 10


@pytest.mark.parametrize(("name", "key", "classes"), [("cifar10", "labels", 10), ("cifar100", "fine_labels", 100)])
def test_cifar_files_are_read_as_channels_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, key: str, classes: int
) -> None:
    import torchvision

    loader = {"cifar10": torchvision.datasets.CIFAR10, "cifar100": torchvision.datasets.CIFAR100}[name]
    # The small files written here cannot have the checksums of the published ones.
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *arguments: True)
    folder = tmp_path / loader.base_folder
    folder.mkdir()
    random = np.random.default_rng(0)
    for file, _ in loader.train_list + loader.test_list:
        batch = {"data": random.integers(0, 256, (4, 3072), dtype=np.uint8), key: [1, 2, 3, 0]}
        (folder / file).write_bytes(pickle.dumps(batch))
    (folder / loader.meta["filename"]).write_bytes(pickle.dumps({loader.meta["key"]: ["a", "b", "c", "d"]}))
    arrays = load_dataset(name, tmp_path)
    assert arrays.inputs_train.shape == (4 * len(loader.train_list), 3, 32, 32)
    assert arrays.targets_test.tolist() == [1, 2, 3, 0]
    assert arrays.num_classes == classes
    # In the file an image is its red plane, its green plane, its blue plane, row by row.
    mean, std = {"cifar10": (0.4822, 0.2435), "cifar100": (0.4865, 0.2564)}[name]
    green = (batch["data"][2, 1024:2048].reshape(32, 32) / 255 - mean) / std
    np.testing.assert_allclose(arrays.ready(arrays.inputs_test[2:3])[0, 1].numpy(), green, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("cifar10", "cifar-10-batches-py"),
        ("cifar100", "cifar-100-python"),
    ],
)
def test_missing_data_names_folder_and_remedy(tmp_path: Path, name: str, folder: str) -> None:
    with pytest.raises(InputError, match=r"--download.*--data-root") as caught:
        load_dataset(name, tmp_path)
    assert f"no {name} in {tmp_path / folder}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_data_root_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path)
    monkeypatch.setenv("SCOOL_DATA", str(tmp_path))
    assert len(load_dataset("mnist").targets_train) == 30
    monkeypatch.delenv("SCOOL_DATA")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no mnist in data/MNIST/raw"):
        load_dataset("mnist")


def test_a_file_of_that_name_stands_in_for_torchvisions_folder(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8), np.arange(30) % 9
    np.savez(tmp_path / "cifar10.npz", inputs=images, targets=labels, inputs_test=images[:4], targets_test=labels[:4])
    arrays = load_dataset("cifar10", tmp_path)
    assert arrays.num_classes == 10
    assert arrays.inputs_train.shape == (30, 3, 32, 32)
    green = (images[2, :, :, 1] / 255 - 0.4822) / 0.2435
    np.testing.assert_allclose(arrays.ready(arrays.inputs_test[2:3])[0, 1].numpy(), green, atol=1e-5)
    assert arrays.targets_test.tolist() == [0, 1, 2, 3]
    write_mnist(tmp_path)
    np.savez(tmp_path / "mnist.npz", inputs=images[:, :28, :28, 0], targets=labels)
    assert load_dataset("mnist", tmp_path).inputs_test.shape == (7, 1, 28, 28), "torchvision's own files come first"
    (tmp_path / "FashionMNIST" / "raw").mkdir(parents=True)  # as a failed download leaves it
    np.savez(tmp_path / "fashion-mnist.npz", inputs=images[:, :28, :28, 0], targets=labels)
    assert load_dataset("fashion-mnist", tmp_path).inputs_train.shape == (24, 1, 28, 28)
    for wrong, words in ((labels + 2, "a label 10, expected 0 to 9"), (labels[:, None], "targets of shape")):
        np.savez(tmp_path / "cifar10.npz", inputs=images, targets=wrong)
        with pytest.raises(InputError, match=words):
            load_dataset("cifar10", tmp_path)
    np.savez(tmp_path / "cifar10.npz", inputs=images[..., 0], targets=labels)
    with pytest.raises(InputError, match="1 channels, expected 3"):
        load_dataset("cifar10", tmp_path)


def test_a_missing_dataset_is_downloaded_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchvision.datasets import MNIST

    monkeypatch.setattr(MNIST, "download", lambda dataset: write_mnist(Path(dataset.root)))
    with pytest.raises(InputError, match="no mnist"):
        load_dataset("mnist", tmp_path)
    assert len(load_dataset("mnist", tmp_path, download=True).targets_train) == 30
    assert capsys.readouterr().err == f"scool: no mnist in {tmp_path / 'MNIST' / 'raw'}; downloading it\n"
    assert len(load_dataset("mnist", tmp_path, download=True).targets_train) == 30
    assert capsys.readouterr().err == "", "what is there is not fetched again"


def test_a_download_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from urllib.error import URLError

    from torchvision.datasets import CIFAR10

    def unreachable(_: CIFAR10) -> None:
        raise URLError("no route\nto host")

    monkeypatch.setattr(CIFAR10, "download", unreachable)
    with pytest.raises(InputError, match=r"cannot download cifar10 into .*cifar-10-batches-py .*no route to") as caught:
        load_dataset("cifar10", tmp_path, download=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 3, 10, 500])
def test_truncated_images_are_refused(tmp_path: Path, keep: int) -> None:
    write_mnist(tmp_path)
    file = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InputError, match="cannot read mnist") as caught:
        load_dataset("mnist", tmp_path)
    assert "\n" not in str(caught.value)


def test_labels_that_do_not_match_the_images_are_refused(tmp_path: Path) -> None:
    images, labels = write_mnist(tmp_path)
    write_idx(tmp_path / "MNIST" / "raw", "train", images, labels[:20])
    with pytest.raises(InputError, match="30 images and 20 labels"):
        load_dataset("mnist", tmp_path)


def test_unknown_dataset() -> None:
    with pytest.raises(InputError, match="did you mean 'fashion-mnist'"):
        load_dataset("fashionmnist")


@pytest.mark.data
def test_mnist_itself(data_root: Path) -> None:
    arrays = load_dataset("mnist", data_root)
    assert arrays.inputs_train.shape == (60000, 1, 28, 28)
    assert arrays.inputs_test.shape == (10000, 1, 28, 28)
    # The published mean and standard deviation are those of the training images.
    inputs = arrays.ready(arrays.inputs_train)
    assert abs(float(inputs.mean())) < 1e-3
    assert abs(float(inputs.std()) - 1) < 1e-3
    # Counts from the description of the data set.
    assert torch.bincount(arrays.targets_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]

"""Specs: how they are taken apart, whose option is whose, and the federations that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.data.generated import GENERATED
from scool_ppl.data.reading import SPLITS
from scool_ppl.data.recipes.turning import turned
from scool_ppl.data.specs import DEFAULT_FEDERATION, Spec, load_federation, parse
from scool_ppl.errors import InputError
from tests.helpers.federations import same_lists
from tests.helpers.memory import Allocations
from tests.helpers.refusals import Case, refused, refuses


def write_labelled(path: Path, count: int = 60, classes: int = 3) -> None:
    random = np.random.default_rng(0)
    np.savez(path, inputs=random.normal(size=(count, 5)), targets=np.arange(count) % classes)


def scattered(random: torch.Generator, *, clients: int = 4, rows: int = 10, noise: float = 1.0) -> Federation:
    """Random rows for everybody."""
    inputs = noise * torch.randn(clients * rows, 3, generator=random)
    return Federation.from_arrays(inputs, torch.arange(clients * rows) % 2, torch.arange(clients * rows) // rows)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("iid:mnist", Spec("iid", "mnist", ())),
        (" iid:mnist: ", Spec("iid", "mnist", ())),
        ("groups:cifar10:clients=100,classes=2", Spec("groups", "cifar10", ("clients=100", "classes=2"))),
        ("groups:my.npz", Spec("groups", "my.npz", ())),
        ("groups:a/b.c/my.npz:classes=2", Spec("groups", "a/b.c/my.npz", ("classes=2",))),
        ("groups:features:my.npz:clients=10", Spec("groups", "features:my.npz", ("clients=10",))),
        ("digits", Spec("permuted", "digits", ("clients=20", "groups=4", "train=50"))),
        (DEFAULT_FEDERATION, Spec("permuted", "digits", ("clients=20", "groups=4", "train=50"))),
    ],
)
def test_a_spec_is_taken_apart(text: str, spec: Spec) -> None:
    assert parse(text) == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("iid", "expected recipe:dataset"),
        ("iid:", "expected recipe:dataset"),
        ("digits:clients=3", "expected recipe:dataset"),
        ("features:my.npz", "expected recipe:dataset"),
        ("iid:digits:clients", "expected recipe:dataset"),
        ("iid:digits:train=3:clients=2", "expected recipe:dataset"),
        ("idd:digits", "did you mean 'iid'"),
        ("table:hospitals/:target=died", "did you mean 'tables'"),
        ("zzzz:digits", "choose one of them"),
        ("iid:my.np", "unknown dataset 'my.np'"),
        ("iid:odd:name=1.npz", "unknown dataset 'odd'"),
    ],
)
def test_wrong_grammar_is_one_line(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_a_users_file_goes_through_any_recipe_and_its_spec_repeats_it(tmp_path: Path) -> None:
    write_labelled(tmp_path / "my.npz")
    federation = load_federation(f"groups:{tmp_path}/my.npz:groups=3,classes=1,order=listed", clients=6)
    assert federation.num_clients == 6
    assert federation.groups == (0, 0, 1, 1, 2, 2)
    assert ((federation.label_counts() > 0).sum(1) == 1).all()
    assert federation.spec == f"groups:{tmp_path}/my.npz:groups=3,classes=1,clients=6,order=listed"
    again = load_federation(federation.spec)
    assert torch.equal(again.inputs, federation.inputs)
    with pytest.raises(InputError, match=r"has no client, .* e.g. iid:.*my.npz"):
        load_federation(f"{tmp_path}/my.npz")


def test_a_generated_federation_has_no_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATED, "scattered", scattered)
    federation = load_federation("scattered:rows=8,noise=0.5", seed=3)
    assert (federation.num_clients, len(federation.inputs)) == (4, 32)
    assert federation.spec == "scattered:rows=8,noise=0.5"
    again, other = load_federation(federation.spec, seed=3), load_federation(federation.spec, seed=4)
    assert torch.equal(again.inputs, federation.inputs)
    assert not torch.equal(other.inputs, federation.inputs)
    assert load_federation("scattered", clients=2).spec == "scattered:clients=2"
    assert load_federation("scattered:clients=7", clients=2).num_clients == 2
    for text, words in (("scattered:row=8", "did you mean 'rows'"), ("scattered:random=1", "unknown option")):
        with pytest.raises(InputError, match=words):
            load_federation(text)
    monkeypatch.setitem(GENERATED, "fixed", lambda random: scattered(random))
    with pytest.raises(InputError, match="unknown option of federation fixed 'clients'"):
        load_federation("fixed", clients=2)


def test_the_default_federation_is_what_defaults_promise() -> None:
    federation = load_federation("digits")
    assert federation.spec == DEFAULT_FEDERATION == "permuted:digits:clients=20,groups=4,train=50"
    assert [federation.sizes(split).tolist() for split in SPLITS] == [[40] * 20, [10] * 20, [500] * 20]
    assert federation.inputs.shape == (1500, 64)
    assert sorted(federation.groups or ()) == [group for group in range(4) for _ in range(5)]
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


def test_sizes_between_two_numbers_are_written_as_they_are_read() -> None:
    federation = load_federation("permuted:digits:clients=8,groups=2,sizes=10-500,validation=0")
    assert federation.spec == "permuted:digits:clients=8,groups=2,sizes=10-500,validation=0.0"
    assert federation.sizes("train").unique().numel() > 4
    assert same_lists(federation, load_federation(federation.spec))
    for text in ("iid:digits:sizes=500-10", "iid:digits:sizes=few"):
        with pytest.raises(InputError, match=r"e\.g\. sizes=10-500"):
            load_federation(text)


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


@pytest.mark.parametrize(("recipe", "turns"), [("iid", 1), ("rotated", 2)])
def test_no_more_images_become_numbers_than_are_dealt(tmp_path: Path, recipe: str, turns: int) -> None:
    """Of 1,200 images of bytes 60 and the 20 held out are dealt: no tensor is as large as all of them are in float32."""
    images = np.random.default_rng(0).integers(0, 256, (1200, 3, 8, 8), dtype=np.uint8)
    labels, test = np.arange(1200) % 10, np.arange(20) % 10
    path = tmp_path / "cifar10.npz"
    np.savez(path, inputs=images, targets=labels, inputs_test=images[:20], targets_test=test)
    with Allocations() as made:
        found = load_federation(f"{recipe}:cifar10:clients=6,train=10" + ",groups=2" * (turns - 1), data_root=tmp_path)
    assert found.inputs.shape == (60 + 20 * turns, 3, 8, 8)
    assert found.inputs.dtype == torch.float32
    assert max(made.sizes) <= max(images.nbytes, found.inputs.nbytes)


@pytest.mark.parametrize("groups", [3, 4])
def test_rotated_clients_see_the_digits_turned(groups: int) -> None:
    """Turned back by quarters, images are scikit-learn's with their labels; each group has copies of its own."""
    from sklearn.datasets import load_digits

    data = load_digits()
    label_of = {row.tobytes(): int(label) for row, label in zip(data.data, data.target, strict=True)}
    plain = load_federation("iid:digits:clients=8,train=20,test=30,order=listed", seed=2)
    spec = f"rotated:digits:clients=8,groups={groups},train=20,test=30,order=listed"
    federation = load_federation(spec, seed=2)
    assert federation.groups == tuple(client * groups // 8 for client in range(8))
    assert federation.truth is not None
    assert federation.inputs.shape == (8 * 20 + groups * 30, 64)
    tests = torch.cat([federation.test[federation.groups.index(group)] for group in range(groups)])
    assert sorted(tests.tolist()) == list(range(160, 160 + groups * 30))
    for client, group in enumerate(federation.groups):
        for split in SPLITS:
            rows, before = getattr(federation, split)[client], getattr(plain, split)[client]
            labels, images = federation.labels(client, rows), federation.inputs[rows]
            assert torch.equal(labels, plain.labels(client, before)), "the same images as without turning"
            if group and groups == 3:
                expected = turned(plain.inputs[before], 120.0 * group, torch.zeros(1))
                torch.testing.assert_close(images, expected, rtol=0, atol=1e-6)
                continue
            back = (16 * images.double()).view(-1, 8, 8).rot90(-group, (1, 2)).reshape(-1, 64).numpy()
            assert labels.tolist() == [label_of[row.tobytes()] for row in back]
    assert torch.equal(federation.inputs, load_federation(federation.spec, seed=2).inputs)


def test_what_is_no_square_image_cannot_be_rotated(tmp_path: Path) -> None:
    write_labelled(tmp_path / "my.npz")
    with pytest.raises(InputError, match=r"inputs of shape \(5,\) cannot be rotated, expected square images"):
        load_federation(f"rotated:{tmp_path}/my.npz:clients=4,groups=2")
    one = load_federation(f"rotated:{tmp_path}/my.npz:clients=4,groups=1")
    assert torch.equal(one.inputs, load_federation(f"iid:{tmp_path}/my.npz:clients=4").inputs)


@pytest.mark.parametrize(
    "spec",
    [
        "iid:digits",
        "rotated:digits",
        "dirichlet:digits:train=50",
        "pathological:digits",
        "groups:digits",
        "permuted:digits",
    ],
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


REFUSED: list[Case] = [
    (lambda: load_federation(3), "federation is 3, expected a str; name it, e.g. 'digits'"),  # type: ignore[arg-type]
    (lambda: load_federation(""), "unknown dataset ''; known: "),
    (lambda: load_federation("digits", clients=0), "clients is 0, expected a whole number of at least 1"),
    (lambda: load_federation("digits", clients=2.5), "clients is 2.5, expected a whole number"),  # type: ignore[arg-type]
    (lambda: load_federation("digits", seed=1.5), "seed is 1.5, expected a whole number"),  # type: ignore[arg-type]
    (lambda: load_federation("iid:digits:clients=3,clients=4"), "given twice"),
    (lambda: load_federation("iid:digits:clients=100000"), "the pool has 1297; lower clients"),
]


@refused(REFUSED)
def test_arguments_that_cannot_be_are_one_line(call: Any, words: str) -> None:
    refuses(call, words)


@pytest.mark.data
def test_mnist_federation_keeps_its_own_images_only(data_root: Path) -> None:
    federation = load_federation("dirichlet:mnist:clients=20,alpha=0.1,train=200,test=1000", data_root=data_root)
    assert federation.inputs.shape[1:] == (1, 28, 28)
    assert len(federation.inputs) == 20 * 200 + 1000
    assert torch.equal(federation.label_counts("test") > 0, federation.class_mask())


@pytest.mark.data
def test_latent_groups_of_mnist_have_labels_of_their_own(data_root: Path) -> None:
    """Clients of one group have alike labels, those of two groups have not; test images are like the training ones."""
    federation = load_federation("latent:mnist:clients=10,groups=5,train=400", data_root=data_root)
    shares = [federation.label_counts(split).double() for split in ("train", "test")]
    train, test = (counts / counts.sum(1, keepdim=True) for counts in shares)
    apart = (train[:, None] - train).abs().sum(2) / 2
    group = torch.tensor(federation.groups)
    same = (group[:, None] == group) & ~torch.eye(10, dtype=torch.bool)
    assert float(apart[same].max()) < 0.2
    assert float(apart[group[:, None] != group].min()) > 0.4
    assert float(((train - test).abs().sum(1) / 2).max()) < 0.2

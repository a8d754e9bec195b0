"""Specs: how they are taken apart, whose option is whose, and federations that make their own data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scool_ppl import Federation, load_federation
from scool_ppl.data.generated import GENERATED
from scool_ppl.data.specs import DEFAULT_FEDERATION, Spec, parse
from scool_ppl.errors import InputError


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
    federation = load_federation(f"groups:{tmp_path}/my.npz:groups=3,classes=1", clients=6)
    assert federation.num_clients == 6
    assert federation.groups == (0, 0, 1, 1, 2, 2)
    assert ((federation.label_counts() > 0).sum(1) == 1).all()
    assert federation.spec == f"groups:{tmp_path}/my.npz:groups=3,classes=1,clients=6"
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

"""Federation: its views, the labels that clients use, and the .npz file that keeps what every client sees."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.data.reading import SPLITS
from scool_ppl.data.specs import load_federation
from scool_ppl.errors import InputError
from scool_ppl.tasks.categorical import Classification, NextToken
from scool_ppl.tasks.regression import Regression
from tests.helpers.federations import same_lists, small
from tests.helpers.refusals import Case, refused, refuses
from tests.helpers.small import normal
from tests.helpers.tasks import federation as of_task
from tests.helpers.tasks import integers


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
    federation = load_federation("permuted:digits:clients=4,groups=2,train=20,order=listed")
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


@pytest.mark.parametrize("name", ["sine", "vectors", "text", "classes"])
def test_npz_and_select_keep_the_task(name: str, tmp_path: Path) -> None:
    data = of_task(name)
    data.save_npz(tmp_path / "mine.npz")
    with np.load(tmp_path / "mine.npz", allow_pickle=False) as arrays:
        assert arrays["task"].dtype.kind == "U"
    back = Federation.from_npz(tmp_path / "mine.npz")
    assert back.task == data.task
    assert (back.inputs.dtype, back.targets.dtype) == (data.inputs.dtype, data.targets.dtype)
    assert all(
        torch.equal(back.inputs[new], data.inputs[old]) and torch.equal(back.targets[new], data.targets[old])
        for part in ("train", "validation", "test")
        for new, old in zip(getattr(back, part), getattr(data, part), strict=True)
    )
    # The scale of the score stays that of the whole federation.
    assert data.select([2, 0]).task == data.task


def test_from_arrays_takes_the_task_as_text() -> None:
    x, owner = normal(6, 2), [0, 0, 0, 1, 1, 1]
    whole = {"validation": 0.0, "test": 0.0}
    regression = Federation.from_arrays(x, [0, 1, 2, 3, 4, 5], owner, task="regression:sigma=0.5", **whole)
    assert regression.targets.dtype == torch.float32
    assert regression.task == Regression(0.5, 1, 35 / 12)
    assert regression.num_classes == 0
    tokens = Federation.from_arrays(integers(4, 6, 3), integers(6, 6, 3), owner, task="next-token", **whole)
    assert tokens.task == NextToken(1 + max(int(tokens.inputs.max()), int(tokens.targets.max())))
    assert Federation.from_arrays(x, [0, 1] * 3, owner).task == Classification(2)
    assert Federation.from_arrays(x, [0, 1] * 3, owner, task=Classification(5)).num_classes == 5
    assert Federation.from_arrays(x, [0, 1] * 3, owner, task="classification:num_classes=4").task == Classification(4)


def test_npz_round_trip_keeps_what_every_client_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = load_federation("permuted:digits:clients=3,groups=2,train=20,test=30")
    federation.save_npz(tmp_path / "mine.npz")
    back = load_federation(str(tmp_path / "mine.npz"))
    assert (back.names, back.groups, back.num_classes) == (federation.names, federation.groups, 10)
    assert back.truth is not None
    assert federation.truth is not None
    assert torch.equal(back.truth, federation.truth)
    assert back.spec == str(tmp_path / "mine.npz")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_federation("~/mine.npz").fingerprint == back.fingerprint, "also where no shell has seen the path"
    for client in range(3):
        for split in SPLITS:
            old, new = getattr(federation, split)[client], getattr(back, split)[client]
            assert torch.equal(federation.inputs[old], back.inputs[new])
            assert torch.equal(federation.labels(client, old), back.labels(client, new))


def test_a_file_of_one_client_needs_no_owner_but_a_name(tmp_path: Path) -> None:
    """A silo has a file of its own: it says how it is called, and how many classes there are everywhere."""
    path, inputs, targets = tmp_path / "mine.npz", np.zeros((10, 2)), np.arange(10) % 2
    np.savez(path, inputs=inputs, targets=targets)
    refuses(lambda: Federation.from_npz(path), "no client")
    mine = Federation.from_npz(path, name="hospital a", task="classification:num_classes=7", test=0.3)
    assert (mine.names, mine.num_classes) == (("hospital a",), 7)
    assert [int(mine.sizes(split)) for split in SPLITS] == [5, 2, 3]
    assert Federation.from_npz(path, name="hospital a").num_classes == 2
    np.savez(path, inputs=inputs, targets=targets, client=np.full(10, 4), names=np.array(["client 4"]))
    assert Federation.from_npz(path, name="b").names == ("b",)
    np.savez(path, inputs=inputs, targets=targets, client=np.arange(10) % 2)
    refuses(lambda: Federation.from_npz(path, name="b"), "has rows of 2 clients, expected those of 'b' only")
    refuses(lambda: Federation.from_npz(path, name=3), "name")  # type: ignore[arg-type]


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


def test_a_federation_cannot_be_reassigned_and_prints_shortly() -> None:
    federation = load_federation("digits")
    with pytest.raises(dataclasses.FrozenInstanceError):
        federation.spec = "other"  # type: ignore[misc]
    assert "tensor" not in repr(federation)


REFUSED: list[Case] = [
    (lambda: arrays(num_classes=-1), "num_classes is -1, expected a whole number of at least 0"),
    (lambda: arrays(num_classes=2.5), "num_classes is 2.5, expected a whole number"),
    (lambda: arrays(names="ab"), "names is the text 'ab', expected a list of names; write ['ab']"),
    (lambda: arrays(names=["a", "a"]), "names ['a'] are repeated or empty"),
    (lambda: arrays(seed="a"), "seed is 'a', expected a whole number"),
    (lambda: Federation.from_npz(None), "path is None, expected"),  # type: ignore[arg-type]
    (lambda: small().select([]), "no clients, expected at least one"),
    (lambda: small().select([0, 0]), "names ['a'] are repeated"),
    (lambda: small().select(["a"]), "select was given client 'a', expected a position from 0 to 1"),  # type: ignore[list-item]
    (lambda: small().select([-1]), "select was given client -1"),
    (lambda: small().sizes("tset"), "unknown split 'tset'; known: test, train, validation; did you mean 'test'?"),
    (lambda: small().labels(9, torch.tensor([0])), "labels was given client 9, expected a position from 0 to 1"),
    (lambda: small().labels(0, torch.tensor([8])), "labels was given rows 8 to 8, expected 0 to 7"),
    (lambda: small().classes(True), "classes was given client True"),
    (lambda: small().join("x"), "newcomers is 'x', expected a Federation; load_federation(spec) makes one"),  # type: ignore[arg-type]
]


def arrays(**changes: Any) -> Federation:
    return Federation.from_arrays(
        **{"inputs": torch.zeros(6, 2), "targets": [0, 1] * 3, "clients": [0, 0, 0, 1, 1, 1], **changes}
    )


@refused(REFUSED)
def test_what_cannot_be_is_one_line(call: Any, words: str) -> None:
    arrays()
    refuses(call, words)


def test_the_fingerprint_is_of_all_that_it_holds_but_how_it_was_asked_for() -> None:
    first = small()
    assert first.fingerprint == small(spec="elsewhere").fingerprint
    assert first.fingerprint == first.select([0, 1]).fingerprint
    changed = [
        small(inputs=torch.arange(16.0).view(8, 2) + 1),
        small(targets=torch.tensor([0, 1, 2, 0, 1, 2, 0, 2])),
        small(train=(torch.tensor([0, 1]), torch.tensor([3, 5]))),
        small(validation=(torch.tensor([], dtype=torch.long), torch.tensor([2]))),
        small(names=("a", "c")),
        small(relabel=None),
        small(groups=None),
        small(truth=torch.tensor([[0.0, 1.0], [0.0, 0.0]])),
        first.select([1, 0]),
    ]
    assert len({first.fingerprint, *(other.fingerprint for other in changed)}) == 1 + len(changed)

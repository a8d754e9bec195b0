"""Two federations as one: apart, clients see the same images with the same labels as together."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from scool_ppl.data.preparation import Scaling, with_labels
from scool_ppl.data.reading import SPLITS
from scool_ppl.data.specs import load_federation
from tests.helpers.federations import small
from tests.helpers.refusals import Case, refused, refuses
from tests.helpers.tasks import federation as of_task

WHOLE = load_federation("permuted:digits:clients=5,groups=2,train=20,test=20", seed=3)


def test_federations_of_different_data_join() -> None:
    one = load_federation("permuted:digits:clients=3,groups=3,train=10,test=5", seed=0)
    other = load_federation("dirichlet:digits:clients=2,train=10", seed=1)
    renamed = dataclasses.replace(other, names=("x", "y"))
    both = one.join(renamed)
    assert both.names == (*one.names, "x", "y")
    assert both.groups is None
    assert both.truth is None
    assert both.spec == ""
    for split in SPLITS:
        rows = [*getattr(one, split), *getattr(renamed, split)]
        owners = [(one, 0), (one, 1), (one, 2), (renamed, 0), (renamed, 1)]
        for client, (mine, (owner, place)) in enumerate(zip(rows, owners, strict=True)):
            there = getattr(both, split)[client]
            assert torch.equal(both.inputs[there], owner.inputs[mine])
            assert torch.equal(both.labels(client, there), owner.labels(place, mine))


def test_parts_of_one_federation_join_without_a_copy() -> None:
    again = WHOLE.select([0, 1]).join(WHOLE.select([4]))
    assert again.inputs is WHOLE.inputs
    assert WHOLE.groups is not None
    assert again.groups == tuple(WHOLE.groups[i] for i in (0, 1, 4))
    assert torch.equal(torch.as_tensor(again.truth), torch.as_tensor(WHOLE.truth)[[0, 1, 4]][:, [0, 1, 4]])


def test_lists_that_clients_share_stay_shared() -> None:
    other = load_federation("permuted:digits:clients=2,groups=2,train=10", seed=1)
    both = WHOLE.join(dataclasses.replace(other, names=("x", "y")))
    assert both.test[5] is both.test[6]
    assert len({id(rows) for rows in both.test}) == 2


def test_a_known_graph_that_is_not_of_groups_is_not_known_of_newcomers() -> None:
    given = torch.tensor([[0.0, 0.5], [0.0, 0.0]])
    both = small(truth=given).join(small(truth=given, names=("c", "d"), groups=(1, 2)))
    assert both.truth is not None
    assert both.truth.tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], "that of the groups 0 1 1 2"
    assert small(groups=None, truth=given).join(small(names=("c", "d"), groups=None)).truth is None


def test_images_that_were_scaled_otherwise_join_and_nobody_says_how() -> None:
    one, other = (
        dataclasses.replace(
            WHOLE.select([place]), preparation=with_labels(scaling=Scaling((float(place),), (1.0,), True))
        )
        for place in (0, 1)
    )
    assert one.join(other).preparation is None
    assert one.join(dataclasses.replace(other, preparation=one.preparation)).preparation == one.preparation


REFUSED: list[Case] = [
    (lambda: WHOLE.join(WHOLE), "are repeated or empty"),
    (
        lambda: WHOLE.join(small()),
        "newcomers' data are classification of 3 outputs from inputs of shape (2,), expected classification of 10 "
        "outputs from inputs of shape (64,); convert them",
    ),
    (lambda: of_task("sine").join(of_task("text")), "newcomers' data are next-token of"),
]


@refused(REFUSED)
def test_what_cannot_join_is_one_line(call: Any, words: str) -> None:
    refuses(call, words)

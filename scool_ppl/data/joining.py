"""One federation of the clients of two."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scool_ppl.data.preparation import Preparation, with_labels
from scool_ppl.errors import InputError

if TYPE_CHECKING:
    from scool_ppl.data.federation import Federation


Lists = tuple[Tensor, ...]


def joined(first: Federation, second: Federation) -> Federation:
    """The clients of the first, then those of the second; two that share their tensors go on sharing them."""
    if first.kind != second.kind:
        raise InputError(f"newcomers' data are {second.kind}, expected {first.kind}; convert them")
    common = first.inputs is second.inputs and first.targets is second.targets
    shift = 0 if common else len(first.inputs)
    groups = None if first.groups is None or second.groups is None else first.groups + second.groups
    regions = None if first.regions is None or second.regions is None else first.regions + second.regions
    return replace(
        first,
        inputs=first.inputs if common else torch.cat([first.inputs, second.inputs]),
        targets=first.targets if common else torch.cat([first.targets, second.targets]),
        train=first.train + _shifted(second.train, shift),
        validation=first.validation + _shifted(second.validation, shift),
        test=first.test + _shifted(second.test, shift),
        names=first.names + second.names,
        relabel=_relabel(first, second),
        groups=groups,
        truth=None,
        regions=regions,
        spec="",
        preparation=_preparation(first.preparation, second.preparation),
    )


def _preparation(first: Preparation | None, second: Preparation | None) -> Preparation | None:
    """That of both; how arrays were scaled is not known where it differs, their inputs are joined as they are."""
    if first == second:
        return first
    one, two = (_unscaled(each) for each in (first, second))
    if one is None or two is None:
        both = one or two
        if both is None or not both.columns:
            return both
    elif (joined := one.joined(two)) is not None:
        return joined
    raise InputError(
        "newcomers' rows were prepared otherwise than the clients', expected the same columns, scale and labels; read them "
        "with Federation.from_tables(..., preparation=federation.preparation)"
    )


def _unscaled(preparation: Preparation | None) -> Preparation | None:
    """All but how arrays were scaled, None if that is nothing."""
    found = None if preparation is None else replace(preparation, scaling=None)
    return None if found == with_labels() else found


def _shifted(lists: Lists, shift: int) -> Lists:
    """Rows moved on; lists that several clients share stay shared."""
    moved = {id(rows): rows + shift if shift else rows for rows in lists}
    return tuple(moved[id(rows)] for rows in lists)


def _relabel(first: Federation, second: Federation) -> Tensor | None:
    if first.relabel is None and second.relabel is None:
        return None
    plain = torch.arange(first.num_classes)
    return torch.cat(
        [plain.repeat(each.num_clients, 1) if each.relabel is None else each.relabel for each in (first, second)]
    )

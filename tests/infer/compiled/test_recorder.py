"""What is not linear in the moments, or leaves torch: it is heard, and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from scool_ppl.infer.compiled import UnsupportedError, check_same
from scool_ppl.infer.compiled.forms import MOST_TERMS
from tests.helpers.compiled import C, Case, Drawn, agree


def written(out: Tensor, z: Tensor) -> Tensor:
    out[:] = z
    return out


def added_to(out: Tensor, z: Tensor) -> Tensor:
    out += z
    return out


REFUSED: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "clamp": (lambda z, w: z.clamp(min=0.1), "'clamp' of a moment"),
    "exp": (lambda z, w: z.exp(), "'exp' of a moment"),
    "a function by another name": (lambda z, w: torch.logsumexp(z, 1), "'logsumexp' of a moment"),
    "item": (lambda z, w: z * z.sum().item(), "'item' of what is inferred or learned"),
    "bool": (lambda z, w: z if bool(z.sum()) else 0, "'__bool__' of what is inferred"),
    "comparison": (lambda z, w: z if z.sum() > 1 else 0, "'gt' of a moment"),
    "numpy": (lambda z, w: torch.as_tensor(z.numpy()), "'numpy' of what is inferred"),
    "setitem": (lambda z, w: written(C.clone(), z), "'__setitem__', which writes into a tensor"),
    "iadd": (lambda z, w: added_to(C.clone(), z), "'add_', which writes into a tensor"),
    "in place": (lambda z, w: C.clone().mul_(z), "'mul_', which writes into a tensor"),
    "in place of a moment": (lambda z, w: z.neg_(), "'neg_', which writes into a tensor"),
    "in place of a parameter's": (lambda z, w: added_to(C.clone(), w) * z, "'add_', which writes into a tensor"),
    "out": (lambda z, w: torch.add(z, w, out=C.clone()), "'add', which writes into a tensor"),
    "detach": (lambda z, w: z.detach() * z, "'detach' of a moment"),
    "data": (lambda z, w: z.data * z, "'data' of a moment"),
    "row": (lambda z, w: z[0], "a part of a moment"),
    "slice": (lambda z, w: z[1:], "a part of a moment"),
    "masked rows": (lambda z, w: z[torch.tensor([True, False, True, True])], "a part of a moment"),
    "columns by an index": (lambda z, w: z[:, torch.tensor([0, 2])], "a part of a moment"),
    "rows of columns": (lambda z, w: z.mT[torch.tensor([0, 2])], "rows of what is no tensor's first axis"),
    "another shape": (lambda z, w: z.reshape(2, 6), r"shape \(4, 3\) as one of shape \(2, 6\)"),
    "cube": (lambda z, w: z**3, "a moment to the power of 3"),
    "division": (lambda z, w: w / (1 + z), "division by a moment"),
    "inverse": (lambda z, w: 1 / z, "of a moment"),
    "logarithm": (lambda z, w: z.log(), "the logarithm of a moment"),
    "entropy": (lambda z, w: torch.xlogy(z, z), "the logarithm of a moment"),
    "choice by a moment": (lambda z, w: torch.where(z > 0.5, z, w), "'gt' of a moment"),
    "choice by a parameter": (lambda z, w: torch.where(w > 0, z, 1.0), "where of what is to be inferred"),
    "logits of moments": (
        lambda z, w: dist.Bernoulli(logits=z, validate_args=False).log_prob(C),
        "not linear in the moments",
    ),
    "mean cross-entropy": (lambda z, w: functional.binary_cross_entropy_with_logits(C, z), "not linear in the moments"),
    "einsum of unknown output": (lambda z, w: torch.einsum("ij", z), "einsum without an output"),
    "too many terms": (lambda z, w: (1 + z + w).square().square().square(), f"more than {MOST_TERMS} terms"),
    "float of a parameter": (lambda z, w: z * float(w[0]), "'__float__' of what is inferred or learned"),
    "choice of a branch": (lambda z, w: z if w[0] > 0 else 0 * z, "'__bool__' of what is inferred or learned"),
    "list of parameters": (lambda z, w: z * w.tolist()[0], "'tolist' of what is inferred or learned"),
    "numpy of a parameter": (lambda z, w: z * torch.as_tensor(w.detach().numpy()), "'numpy' of what is inferred"),
    "array of a parameter": (lambda z, w: z * float(np.asarray(w.detach()).sum()), "'__array__' of what is inferred"),
    "shape by a parameter": (lambda z, w: z.sum() * len(w.nonzero()), "'nonzero' of what is inferred or learned"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_down_is_named(name: str) -> None:
    f, message = REFUSED[name]
    program = Drawn(f)
    with pytest.raises(UnsupportedError, match=message):
        Case(program, program, ()).both()


def test_what_takes_a_shape_only_is_no_use_of_a_moment() -> None:
    program = Drawn(lambda z, w: torch.zeros_like(z) + z.new_ones(4, 3) * z.shape[0] + z * torch.ones_like(w))
    agree(*Case(program, program, ()).both(), program)


def test_what_was_written_down_must_give_what_the_program_gives() -> None:
    check_same(1e6 + 1e-3, 1e6, 1e-8)
    for found, expected in ((1.0001, 1.0), (float("nan"), 1.0), (1.0, float("nan")), (float("inf"), 1.0)):
        with pytest.raises(UnsupportedError, match="what Python does with its numbers"):
            check_same(found, expected, 1e-8)

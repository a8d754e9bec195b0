"""What torch does with moments, rule by rule: right, or refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from scool_ppl.infer.compiled import UnsupportedError
from scool_ppl.infer.compiled.forms import Axes, Form, product
from scool_ppl.infer.compiled.rules import Rules
from tests.helpers.compiled import MASK, TABLE, C, Case, Drawn, Trial, agree, alike, rise_alike
from tests.helpers.small import uniform

RULES: dict[str, Callable[..., Tensor]] = {
    "add": lambda y, z, p, w, b: z + w + C,
    "add: a number": lambda y, z, p, w, b: z + 2,
    "add: more than once": lambda y, z, p, w, b: torch.add(z, C, alpha=-2) + z,
    "add: broadcast": lambda y, z, p, w, b: z[:, None, :] + z[None, :, :] + w,
    "radd": lambda y, z, p, w, b: 2 + z,
    "sub": lambda y, z, p, w, b: (z - w) - C,
    "sub: more than once": lambda y, z, p, w, b: torch.sub(z, w, alpha=3),
    "rsub": lambda y, z, p, w, b: 1 - z,
    "rsub: a function": lambda y, z, p, w, b: torch.rsub(z, w),
    "neg": lambda y, z, p, w, b: -z * w,
    "mul": lambda y, z, p, w, b: z * C * w * z,
    "mul: broadcast": lambda y, z, p, w, b: z[:, None] * z[None] * y[..., None],
    "rmul": lambda y, z, p, w, b: 2.5 * z,
    "multiply": lambda y, z, p, w, b: torch.multiply(z, w),
    "div": lambda y, z, p, w, b: z / 4,
    "div: a tensor": lambda y, z, p, w, b: z / (C + 10),
    "div: a parameter": lambda y, z, p, w, b: z / w,
    "truediv": lambda y, z, p, w, b: y / (b * b + 1),
    "true_divide": lambda y, z, p, w, b: torch.true_divide(z, w),
    "square": lambda y, z, p, w, b: z.square() * w,
    "pow": lambda y, z, p, w, b: z**2 * w,
    "pow: a function": lambda y, z, p, w, b: torch.pow(z, 2.0),
    "sum": lambda y, z, p, w, b: z.sum() * w.sum(),
    "sum: one dimension": lambda y, z, p, w, b: y.sum(-1),
    "sum: two dimensions": lambda y, z, p, w, b: (z[:, None] * z[None] * w).sum((0, -1)),
    "sum: kept": lambda y, z, p, w, b: y.sum(0, keepdim=True) * y.sum(1, keepdim=True),
    "sum: both kept": lambda y, z, p, w, b: y * y.sum((0, 1), keepdim=True),
    "sum: numpy's name": lambda y, z, p, w, b: torch.sum(y, axis=1),  # type: ignore[call-overload]
    "sum: over what is repeated": lambda y, z, p, w, b: z.unsqueeze(1).expand(4, 5, 3).sum(1),
    "mean": lambda y, z, p, w, b: y.mean() * w,
    "mean: one dimension": lambda y, z, p, w, b: y.mean(0),
    "mean: kept": lambda y, z, p, w, b: y.mean((0, 1), keepdim=True) * y.mean(1, keepdim=True),
    "einsum": lambda y, z, p, w, b: torch.einsum("ij, ig, jh -> gh", y, z, z),
    "einsum: ellipsis": lambda y, z, p, w, b: torch.einsum("...g,gh,...h->...", z[:, None], w.outer(w), z[None]),
    "einsum: a list": lambda y, z, p, w, b: torch.einsum("ig,g->i", [z, w]),
    "einsum: ellipses of two lengths": lambda y, z, p, w, b: torch.einsum("...g,...g->g...", z[:, None] * z[None], z),
    "einsum: ellipsis summed": lambda y, z, p, w, b: torch.einsum("...g->g", z[:, None] * z),
    "matmul": lambda y, z, p, w, b: z.mT @ y @ z,
    "matmul: 1-d and 1-d": lambda y, z, p, w, b: z.sum(0) @ w,
    "matmul: 2-d and 1-d": lambda y, z, p, w, b: z @ w,
    "matmul: 1-d and 2-d": lambda y, z, p, w, b: w @ z.mT,
    "matmul: 3-d and 3-d": lambda y, z, p, w, b: (z[:, None, :] * w) @ z[:, :, None],
    "matmul: 3-d and 2-d": lambda y, z, p, w, b: (z[:, None, :] * z) @ C.mT,
    "matmul: 2-d and 3-d": lambda y, z, p, w, b: C @ (z[:, :, None] * w),
    "matmul: 1-d and 3-d": lambda y, z, p, w, b: w @ (z[:, :, None] * w),
    "matmul: 3-d and 1-d": lambda y, z, p, w, b: (z[:, :, None] * w) @ w,
    "matmul: 4-d and 3-d": lambda y, z, p, w, b: (z[:, None, None, :] * y[..., None, None]) @ (z[:, :, None] * w),
    "rmatmul": lambda y, z, p, w, b: b.__rmatmul__(y),
    "mm": lambda y, z, p, w, b: torch.mm(y, z),
    "bmm": lambda y, z, p, w, b: torch.bmm(z[:, None, :], z[:, :, None]),
    "mv": lambda y, z, p, w, b: torch.mv(z, w),
    "dot": lambda y, z, p, w, b: torch.dot(z.sum(0), w),
    "unsqueeze": lambda y, z, p, w, b: z.unsqueeze(1) * z.unsqueeze(0) * y.unsqueeze(-1),
    "squeeze": lambda y, z, p, w, b: z[:, None, :, None].squeeze() * C,
    "squeeze: one dimension": lambda y, z, p, w, b: z[:, None].squeeze(1) * z[None].squeeze(0) * z.squeeze(1),
    "squeeze: two dimensions": lambda y, z, p, w, b: z[None, None].squeeze((0, 1)) * C,
    "permute": lambda y, z, p, w, b: (z[:, None] * y[..., None]).permute(2, 0, 1),
    "permute: a list": lambda y, z, p, w, b: (z[:, None] * y[..., None]).permute([1, -1, 0]),
    "transpose": lambda y, z, p, w, b: (z[:, None] * y[..., None]).transpose(0, 2),
    "swapaxes": lambda y, z, p, w, b: y.swapaxes(0, 1) * b,
    "swapdims": lambda y, z, p, w, b: y.swapdims(-1, 0) * b,
    "t": lambda y, z, p, w, b: y.t() * b,
    "T": lambda y, z, p, w, b: y.T * b,
    "mT": lambda y, z, p, w, b: (z[:, None] * y[..., None]).mT,
    "expand": lambda y, z, p, w, b: z.expand(2, 4, 3) * w + y.sum(1, keepdim=True).expand(-1, 3),
    "expand: a size": lambda y, z, p, w, b: z.sum().expand(torch.Size((2, 3))) * w,
    "expand_as": lambda y, z, p, w, b: z.sum(1, keepdim=True).expand_as(C),
    "broadcast_to": lambda y, z, p, w, b: torch.broadcast_to(z.sum(0), (4, 3)) * C,
    "reshape": lambda y, z, p, w, b: z.reshape(4, 1, 3) * z.reshape(1, 4, 3),
    "reshape: a size, and one left open": lambda y, z, p, w, b: z[:, None].reshape((-1, 3)) * w,
    "view": lambda y, z, p, w, b: z.view(1, 4, 3, 1) * y.view(4, 1, 1, 4),
    "to": lambda y, z, p, w, b: z.to(torch.float64) * w.to(z),
    "double": lambda y, z, p, w, b: z.double() * w,
    "type": lambda y, z, p, w, b: z.type(torch.float64) * w,
    "type_as": lambda y, z, p, w, b: z.type_as(C) * w,
    "contiguous": lambda y, z, p, w, b: y.mT.contiguous() * b,
    "clone": lambda y, z, p, w, b: z.clone() * w,
    "as_tensor": lambda y, z, p, w, b: torch.as_tensor(z) * w,
    "getitem": lambda y, z, p, w, b: z[:, None] * z[None] * z[None, :, :],
    "getitem: ellipsis": lambda y, z, p, w, b: z[..., None] * z[:, None, ...] * w,
    "getitem: all": lambda y, z, p, w, b: z[:] * z[...] * w,
    "getitem: a table of rows": lambda y, z, p, w, b: z[:, None] * z[TABLE] * w,
    "getitem: rows": lambda y, z, p, w, b: z[TABLE[:, 0]] * y[TABLE[:, 1]][..., None].sum(1),
    "getitem: a table of one column": lambda y, z, p, w, b: z[TABLE[:, :1]] * z[:, None],
    "getitem: a row": lambda y, z, p, w, b: z[torch.tensor(2)] * w * z,
    "getitem: rows of what was multiplied": lambda y, z, p, w, b: (z @ C.mT)[TABLE] * (z * w)[TABLE].sum(-1)[..., None],
    "getitem: rows of a logarithm": lambda y, z, p, w, b: p[TABLE].log() * z[:, None],
    "getitem: rows of a parameter": lambda y, z, p, w, b: b[TABLE] * y[:, None],
    "where": lambda y, z, p, w, b: torch.where(MASK, z * w, C),
    "where: the other": lambda y, z, p, w, b: torch.where(MASK, 0.0, z),
    "where: both": lambda y, z, p, w, b: torch.where(MASK, z * w, z.square()),
    "where: numbers": lambda y, z, p, w, b: torch.where(MASK, z, -3.0),
    "where: everywhere": lambda y, z, p, w, b: torch.where(MASK | ~MASK, z.sum(0), 1.0) * w,
    "where: nowhere": lambda y, z, p, w, b: torch.where(MASK & ~MASK, z, w),
    "where: a parameter": lambda y, z, p, w, b: torch.where(MASK, w, z),
    "masked_fill": lambda y, z, p, w, b: z.masked_fill(MASK, 0.5) * w,
    "log": lambda y, z, p, w, b: p.log() * z,
    "log: of what was shaped": lambda y, z, p, w, b: p.unsqueeze(1).expand(4, 4, 3).mT.log() * y[:, None],
    "log: twice": lambda y, z, p, w, b: p.log() * p.T[None].log().squeeze().mT * w,
    "xlogy": lambda y, z, p, w, b: torch.xlogy(z, p[None]),
    "xlogy: a parameter and a number": lambda y, z, p, w, b: torch.xlogy(w, p) + torch.xlogy(2, p),
    "xlogy: probabilities": lambda y, z, p, w, b: torch.xlogy(z, C.softmax(-1)),
    "xlogy: learned probabilities": lambda y, z, p, w, b: torch.xlogy(z, w.softmax(-1)),
    "binary_cross_entropy_with_logits": lambda y, z, p, w, b: functional.binary_cross_entropy_with_logits(
        b, y, reduction="none"
    ),
    "binary_cross_entropy_with_logits: given logits": lambda y, z, p, w, b: functional.binary_cross_entropy_with_logits(
        C, z, reduction="none"
    ),
}


@pytest.mark.usefixtures("_rows")
@pytest.mark.parametrize("name", RULES)
def test_what_torch_does_with_moments_is_written_down(name: str) -> None:
    program = Trial(RULES[name])
    case = Case(program, program, ())
    compiled, interpreted = case.both()
    agree(compiled, interpreted, program)
    other = case.moments(seed=30)[1]
    rise_alike(compiled, interpreted, other)
    with torch.no_grad():
        program.w.add_(uniform(3))
        program.b.mul_(uniform(4, 4))
    compiled.refresh(["w", "b"])
    interpreted.refresh(["w", "b"])
    agree(compiled, interpreted, program)


def test_every_rule_is_tried_and_is_of_a_function_of_torch() -> None:
    rules = {name for name in vars(Rules) if not name.startswith("_")}
    assert len(rules) > 40
    assert rules == {name.partition(":")[0] for name in RULES}
    for name in rules:
        assert any(hasattr(place, word) for place in (torch, functional, Tensor) for word in (name, f"__{name}__")), (
            name
        )


def test_a_logit_of_any_size_is_written_down() -> None:
    """Up to what softplus itself leaves out of a large number, 2e-9."""
    start = torch.tensor([-800.0, 19.9, 800.0]).double()
    program = Drawn(
        lambda z, w: functional.binary_cross_entropy_with_logits(w.expand(4, 3), z, reduction="none"), start
    )
    compiled, interpreted = Case(program, program, ()).both()
    assert compiled.expected() == pytest.approx(interpreted.expected(), abs=4 * 2.1e-9)
    alike(compiled.derivative("z"), interpreted.derivative("z"), "derivative")


def test_a_diagonal_is_refused() -> None:
    axes = Axes()
    with pytest.raises(UnsupportedError, match="a diagonal"):
        product(axes, [Form.of(axes, "x", (3, 3))], ["ii"], "i")


def test_rows_counted_from_the_end() -> None:
    program = Trial(lambda y, z, p, w, b: z * z[torch.arange(4) - 1])
    agree(*Case(program, program, ()).both(), program)


UNKNOWN: dict[str, Any] = {
    "mul": lambda z, w: torch.mul(z, other=C),
    "transpose": lambda z, w: C.mT * z.transpose(dim0=0, dim1=1),
    "mean": lambda z, w: (z * C).mean(axis=1),
    "sum": lambda z, w: torch.sum(input=z * C),
    "permute": lambda z, w: z.permute(dims=(1, 0)),
    "where": lambda z, w: C.where(C > 0, z),
    "where, a method": lambda z, w: torch.zeros(4, 3).double().where(C > 0, z),
    "div": lambda z, w: torch.div(z, 0.3, rounding_mode="floor") * C,
    "pow": lambda z, w: z ** torch.tensor([2.0, 1.0, 2.0]),
    "pow of a number": lambda z, w: torch.pow(2.0, z),
    "rsub": lambda z, w: torch.rsub(z, 1.0, alpha=2),
    "squeeze": lambda z, w: (z * C).sum().squeeze(0),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_arguments_that_a_rule_does_not_know_are_refused_or_right(name: str) -> None:
    program = Drawn(UNKNOWN[name])
    with contextlib.suppress(UnsupportedError):
        agree(*Case(program, program, ()).both(), program)


def test_a_learned_exponent_is_refused() -> None:
    program = Drawn(lambda z, w: z.mean(0) ** w[0], torch.tensor([2.0, -1.0, 0.5]).double())
    with pytest.raises(UnsupportedError):
        Case(program, program, ()).both()

"""What torch does with moments and parameters, written down, and what cannot be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scool_ppl import OneHot
from scool_ppl.infer.compiled import UnsupportedError, check_same
from scool_ppl.infer.compiled.forms import MOST_TERMS, Axes, Form, product
from scool_ppl.infer.compiled.recorder import Recorder
from scool_ppl.infer.program import Program
from tests.helpers.compiled import C, Case, Drawn, agree, alike, random, rise_alike
from tests.helpers.small import normal, uniform

# One function of torch after the other.


class Trial(Program):
    """Sites of every kind, parameters, and a factor that a function makes of them."""

    def __init__(self, f: Callable[..., Tensor]) -> None:
        super().__init__()
        self.f = f
        self.w = nn.Parameter(normal(3, seed=50))
        self.b = nn.Parameter(normal(4, 4, seed=51))

    def model(self) -> None:
        with pyro.plate("clients", 4):
            z = pyro.sample("z", OneHot(torch.full((4, 3), 1 / 3, dtype=torch.float64)))
            p = pyro.sample("p", dist.Dirichlet(torch.full((4, 3), 1.5).double()))
            with pyro.plate("others", 4):
                y = pyro.sample("y", dist.Bernoulli(torch.full((4, 4), 0.4).double()))
        found = self.f(y, z, p, self.w, self.b)
        pyro.factor("f", (random(found.shape, seed=52) * found).sum())


MASK = torch.tensor([[True, False, True], [False, False, True], [True, True, True], [True, False, False]])
TABLE = torch.tensor([[1, 3], [0, 2], [3, 3], [0, 0]])

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


def rules() -> Iterator[str]:
    """What Recorder has a rule for: its methods that torch has a function of the same name for, less the underscore."""
    for method in vars(Recorder):
        name = method.removeprefix("_")
        tensors = hasattr(torch.Tensor, name) or hasattr(torch.Tensor, f"__{name}__")
        known = tensors or hasattr(torch, name) or hasattr(functional, name)
        if known and method.startswith("_") and not name.startswith("_"):
            yield name


def test_every_rule_is_tried() -> None:
    assert len(set(rules())) > 40
    assert set(rules()) == {name.partition(":")[0] for name in RULES}


PARAMETERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "functions": lambda w, b: w.softmax(-1) + w.exp().cumsum(0).log().flip(0),
    "linear algebra": lambda w, b: torch.linalg.inv(b @ b.mT + 4 * torch.eye(4).double())[:3, :3] @ w,
    "one of several": lambda w, b: b.unbind(1)[2][:3] * b.split(3)[1].sum(),
    "one of several by name": lambda w, b: b.max(1).values[:3] + b.topk(2).values[1, 1],
    "each of them": lambda w, b: torch.stack([row.square().sum() for row in b])[1:],
    "unpacked": lambda w, b: (lambda first, second, third: torch.stack([first * second, third, second]))(*w),
    "parts": lambda w, b: b[1, 1:] * b[:, 0][TABLE[0, 0]] * w[[2, 0, 1]],
    "a choice that is no branch": lambda w, b: torch.where(w > 0, w, b[0, :3]) + w.clamp(min=0),
    "broadcast together": lambda w, b: torch.broadcast_tensors(w, b[:3, :1])[1].sum(0) * w,
    "a network": lambda w, b: functional.layer_norm(functional.linear(w, b[:, :3]).relu(), (4,))[:3],
    "another kind of number": lambda w, b: w.float().double() * b[0, 0].to(torch.float64),
    "without a gradient": lambda w, b: w.detach() * w + b.data[0, :3],
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_what_is_done_with_parameters_is_done_again(name: str) -> None:
    program = Trial(lambda y, z, p, w, b: z * z.sum(0) * PARAMETERS[name](w, b))
    compiled, interpreted = Case(program, program, ()).both()
    for changed in ("w", "b", "w"):
        agree(compiled, interpreted, program)
        with torch.no_grad():
            parameter = program.get_parameter(changed)
            parameter.copy_(random(parameter.shape, seed=int(100 * parameter.abs().sum())))
        compiled.refresh([changed])
        interpreted.refresh([changed])
    agree(compiled, interpreted, program)


class Buffered(Program):
    """A factor of a matrix of coins, and of a buffer of any kind of number."""

    def __init__(self, buffer: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", buffer)

    def model(self) -> None:
        with pyro.plate("clients", 4):
            z = pyro.sample("z", OneHot(torch.full((3,), 1 / 3, dtype=torch.float64)))
        pyro.factor("f", (z * z.sum(0) * self.weight).sum())


@pytest.mark.usefixtures("_rows")
@pytest.mark.parametrize("buffer", [torch.arange(12).view(4, 3), MASK, MASK.float()], ids=["long", "bool", "float32"])
def test_a_buffer_is_of_any_kind(buffer: Tensor) -> None:
    program = Buffered(buffer)
    case = Case(program, program, ())
    compiled, interpreted = case.both()
    agree(compiled, interpreted, program)
    rise_alike(compiled, interpreted, case.moments(seed=30)[1])
    program.weight = buffer.flip(0)
    compiled.refresh(["weight"])
    interpreted.refresh(["weight"])
    agree(compiled, interpreted, program)


def test_a_logit_of_any_size_is_written_down() -> None:
    """Up to what softplus itself leaves out of a large number, 2e-9."""
    start = torch.tensor([-800.0, 19.9, 800.0]).double()
    program = Drawn(
        lambda z, w: functional.binary_cross_entropy_with_logits(w.expand(4, 3), z, reduction="none"), start
    )
    compiled, interpreted = Case(program, program, ()).both()
    assert compiled.expected() == pytest.approx(interpreted.expected(), abs=4 * 2.1e-9)
    alike(compiled.derivative("z"), interpreted.derivative("z"), "derivative")


# What is not linear in the moments, or leaves torch.


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


def test_a_dirichlets_sample_itself_is_refused() -> None:
    program = Trial(lambda y, z, p, w, b: p * z)
    with pytest.raises(UnsupportedError, match="a Dirichlet's sample itself"):
        Case(program, program, ()).both()


def test_what_takes_a_shape_only_is_no_use_of_a_moment() -> None:
    program = Drawn(lambda z, w: torch.zeros_like(z) + z.new_ones(4, 3) * z.shape[0] + z * torch.ones_like(w))
    agree(*Case(program, program, ()).both(), program)


def test_what_was_written_down_must_give_what_the_program_gives() -> None:
    check_same(1e6 + 1e-3, 1e6, 1e-8)
    for found, expected in ((1.0001, 1.0), (float("nan"), 1.0), (1.0, float("nan")), (float("inf"), 1.0)):
        with pytest.raises(UnsupportedError, match="what Python does with its numbers"):
            check_same(found, expected, 1e-8)


def test_a_constant_that_is_written_into_between_its_uses_is_noticed() -> None:
    def f(z: Tensor, w: Tensor) -> Tensor:
        constant = C.clone()
        first = constant * z
        constant += 1
        return first + constant * z.square()

    program = Drawn(f)
    with pytest.raises(UnsupportedError, match="what Python does with its numbers"):
        Case(program, program, ()).both()


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

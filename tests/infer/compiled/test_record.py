"""What is known of tensors while a program is recorded: what comes of parameters is done again, constants stay."""

from __future__ import annotations

from collections.abc import Callable

import pyro
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from scool_ppl import OneHot
from scool_ppl.infer.compiled import UnsupportedError
from scool_ppl.infer.compiled.record import Record
from scool_ppl.infer.program import Program
from tests.helpers.compiled import MASK, TABLE, C, Case, Drawn, Trial, agree, random, rise_alike

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


def test_an_index_is_counted_from_the_end_of_whatever_it_reads() -> None:
    last, record = torch.tensor([-1, 0, -2]), Record()
    assert record.rows(last, 4).index.tolist() == [3, 0, 2]
    assert record.rows(last, 3).index.tolist() == [2, 0, 1]
    assert record.rows(last, 4) is record.rows(last, 4)


def test_a_dirichlets_sample_itself_is_refused() -> None:
    program = Trial(lambda y, z, p, w, b: p * z)
    with pytest.raises(UnsupportedError, match="a Dirichlet's sample itself"):
        Case(program, program, ()).both()


def test_a_constant_that_is_written_into_between_its_uses_is_noticed() -> None:
    def f(z: Tensor, w: Tensor) -> Tensor:
        constant = C.clone()
        first = constant * z
        constant += 1
        return first + constant * z.square()

    program = Drawn(f)
    with pytest.raises(UnsupportedError, match="what Python does with its numbers"):
        Case(program, program, ()).both()

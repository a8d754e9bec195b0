"""A program compiled and the same run by Pyro, and how the two are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from scool_ppl import OneHot
from scool_ppl.infer.compiled import Compiled
from scool_ppl.infer.estep.natural import discrete_guide
from scool_ppl.infer.expectation import Interpreted
from scool_ppl.infer.moments import AnyProgram, expected_log
from scool_ppl.infer.program import Program
from tests.helpers.small import normal


class Case(NamedTuple):
    """What is scored, the program whose parameters are learned, and what both are called with."""

    joint: AnyProgram
    program: Program
    args: tuple[Any, ...]

    def moments(self, seed: int = 0) -> tuple[dict[str, str], dict[str, Tensor]]:
        """The kind of each site, and moments of a random q."""
        guide = discrete_guide(self.joint, *self.args)
        moments = {}
        for place, (name, kind) in enumerate(guide.kinds.items()):
            shape = getattr(guide, guide.parameter_name(name)).shape
            logits = normal(*shape, seed=seed + place)
            guide.load({guide.parameter_name(name): logits.exp() + 0.2 if kind == "dirichlet" else logits})
            factor = guide.distribution(name)
            moments[name] = (expected_log(factor.concentration) if kind == "dirichlet" else factor.mean).detach()
        return guide.kinds, moments

    @torch.no_grad()
    def both(self, seed: int = 0) -> tuple[Compiled, Interpreted]:
        kinds, moments = self.moments(seed)
        compiled = Compiled(self.joint, self.program, kinds, moments, self.args)
        return compiled, Interpreted(self.joint, kinds, moments, self.args)


def random(shape: Sequence[int], seed: int) -> Tensor:
    """Normal numbers, of a scalar too."""
    return normal(1, *shape, seed=seed)[0]


# How they are compared.


def alike(found: Tensor | float, expected: Tensor | float, what: str) -> None:
    """Equal up to 1e-10 of the largest number, or of 1."""
    found, expected = (torch.as_tensor(number, dtype=torch.float64) for number in (found, expected))
    assert found.shape == expected.shape, what
    most = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * (1 + most), msg=lambda text: f"{what}: {text}")


def slopes(loss: Tensor, program: Program) -> dict[str, Tensor]:
    """The gradient of a loss in every parameter that is learned."""
    learned = {name: each for name, each in program.named_parameters() if each.requires_grad}
    if not loss.requires_grad:
        return {name: torch.zeros_like(each) for name, each in learned.items()}
    gradients = torch.autograd.grad(loss, list(learned.values()), allow_unused=True)
    return {
        name: torch.zeros_like(each) if gradient is None else gradient
        for (name, each), gradient in zip(learned.items(), gradients, strict=True)
    }


def some_rows(size: int) -> list[Tensor]:
    """All in another order, and two."""
    return [torch.arange(size - 1, -1, -1), torch.tensor([size - 1, 0])] if size > 1 else [torch.tensor([0])]


def agree(compiled: Compiled, interpreted: Interpreted, program: Program) -> None:
    """Value, derivatives, loss and its gradient here are the same."""
    assert compiled.moments.keys() == interpreted.moments.keys()
    with torch.no_grad():
        alike(compiled.expected(), interpreted.expected(), "E_q[log p]")
        for site, moment in interpreted.moments.items():
            whole = interpreted.derivative(site)
            for rows in [*some_rows(len(moment)), torch.tensor([len(moment) // 2])]:
                alike(compiled.derivative(site, rows), whole[rows], f"derivative of {site} by rows")
            alike(compiled.derivative(site), whole, f"derivative of {site}")
    loss = compiled.loss()
    alike(loss.detach(), -interpreted.expected(), "loss")
    expected = slopes(interpreted.loss(), program)
    for name, gradient in slopes(loss, program).items():
        alike(gradient, expected[name], f"gradient in {name}")


@torch.no_grad()
def rise_alike(compiled: Compiled, interpreted: Interpreted, other: Mapping[str, Tensor]) -> None:
    """Rows of each site in turn become those of other moments: the rise is the same, and so are the moments."""
    for site, moment in other.items():
        for rows in some_rows(len(moment)):
            expected = interpreted.rise(site, moment[rows], rows)
            alike(compiled.rise(site, moment[rows], rows), expected, f"rise of {site}")
            assert torch.equal(compiled.moments[site], interpreted.moments[site])
            for each in other:
                alike(compiled.derivative(each), interpreted.derivative(each), f"derivative of {each} after {site}")
            interpreted.update(site, compiled.moments[site] * 0.75 + moment.flip(0) * 0.25)  # so that rows have to move
            compiled.update(site, interpreted.moments[site])


class Drawn(Program):
    """One matrix of coins, and a factor that a function makes of it and of a parameter."""

    def __init__(self, f: Callable[..., Any], start: Tensor | None = None) -> None:
        super().__init__()
        self.f = f
        self.w = nn.Parameter(normal(3, seed=50) if start is None else start)

    def model(self) -> None:
        z = pyro.sample("z", OneHot(torch.full((4, 3), 1 / 3, dtype=torch.float64)).to_event(1))
        pyro.factor("f", torch.as_tensor(self.f(z, self.w)).sum())


C = normal(4, 3, seed=53)


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

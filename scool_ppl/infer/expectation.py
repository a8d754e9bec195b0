"""E_q[log p] of a program that is linear in its moments, by running it in Pyro whenever it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from scool_ppl.infer.moments import AnyProgram, log_joint, values_at


class Expectation(Protocol):
    """E_q[log p] as a function of moments E[Y], E[z], E[log pi] by site, which change one site at a time."""

    moments: dict[str, Tensor]
    """As they are now."""

    def update(self, site: str, moment: Tensor) -> None:
        """Another moment of a site."""

    def refresh(self, names: Iterable[str]) -> None:
        """The program's parameters of these names have changed."""

    def expected(self) -> float:
        """E_q[log p]."""

    def derivative(self, site: str, rows: Tensor | None = None) -> Tensor:
        """d E_q[log p] / d moments of a site, all of them or those of some rows."""

    def repeats(self, site: str) -> bool:
        """May E_q[log p] have products of a site's moments with each other?"""

    def rise(self, site: str, moment: Tensor, rows: Tensor) -> float:
        """Another moment of a site in these rows; by how much E_q[log p] rises."""

    def loss(self) -> Tensor:
        """-E_q[log p], differentiable in the program's parameters."""


class Interpreted:
    """E_q[log p] by running the program in Pyro, and its derivatives by autograd."""

    def __init__(
        self, joint: AnyProgram, kinds: Mapping[str, str], moments: Mapping[str, Tensor], args: Sequence[Any]
    ) -> None:
        self.joint, self.kinds, self.args = joint, kinds, args
        self.moments = dict(moments)
        self._found: tuple[float, dict[str, Tensor]] | None = None

    def update(self, site: str, moment: Tensor) -> None:
        self.moments[site] = moment
        self._found = None

    def refresh(self, names: Iterable[str]) -> None:
        self._found = None

    def _log_joint(self, moments: Mapping[str, Tensor]) -> Tensor:
        return log_joint(self.joint, values_at(self.kinds, moments), *self.args)[0]

    def _evaluated(self) -> tuple[float, dict[str, Tensor]]:
        """The value and all derivatives, until something changes."""
        if self._found is None:
            leaves = {name: moment.detach().clone().requires_grad_() for name, moment in self.moments.items()}
            with torch.enable_grad():
                total = self._log_joint(leaves)
            gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True) if leaves else ()
            self._found = (
                float(total.detach()),
                {
                    name: torch.zeros_like(leaf) if gradient is None else gradient
                    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
                },
            )
        return self._found

    def expected(self) -> float:
        return self._evaluated()[0]

    def derivative(self, site: str, rows: Tensor | None = None) -> Tensor:
        found = self._evaluated()[1][site]
        return found if rows is None else found[rows]

    def repeats(self, site: str) -> bool:
        return True

    def rise(self, site: str, moment: Tensor, rows: Tensor) -> float:
        before = self.expected()
        self.update(site, self.moments[site].index_copy(0, rows, moment))
        return self.expected() - before

    def loss(self) -> Tensor:
        return -self._log_joint(self.moments)

"""What is known of the tensors of a program that is being recorded: as forms, or as steps that are done again.

A tensor is known by its identity, and kept, or another might get its place in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from scool_ppl.infer.compiled.forms import Axes, Form, RowsOf, UnsupportedError


class Step(NamedTuple):
    """A call that involves parameters but no moments."""

    func: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]
    place: int | None
    """Which of several tensors that it returned; None where it returned one."""

    @property
    def taking(self) -> set[Hashable]:
        """The names of the tensors that take part."""
        return _references((self.args, self.kwargs))

    def repeated(self, tensors: Mapping[Hashable, Tensor]) -> Tensor:
        """Done again, with these tensors by name."""
        out: Any = self.func(*_resolved(self.args, tensors), **_resolved(self.kwargs, tensors))
        found: Tensor = out if self.place is None else out[self.place]
        return found


class Ref(NamedTuple):
    """In the arguments of a step: the tensor of this name."""

    name: Hashable


@dataclass(frozen=True)
class Exp:
    """A tensor whose logarithm is a form: what stands for a sample of a Dirichlet."""

    log: Form


Known = Form | Exp | Ref


class Record:
    """What was written down: forms of tensors, and the steps and constants that they name."""

    def __init__(self) -> None:
        self.axes = Axes()
        self.steps: dict[Hashable, Step] = {}
        self.constants: dict[Hashable, Tensor] = {}
        self._known: dict[int, Known] = {}
        self._kept: list[Tensor] = []
        self._fixed: dict[int, Form] = {}
        self._rows: dict[tuple[int, int], RowsOf] = {}

    def known(self, x: Any) -> Known | None:
        """What is known of a tensor that depends on moments or parameters; None of anything else."""
        return self._known.get(id(x))

    def remember(self, tensor: Tensor, what: Known) -> None:
        """This is what is known of the tensor."""
        self._known[id(tensor)] = what
        self._kept.append(tensor)

    def step(self, out: Tensor, step: Step) -> None:
        """The tensor is what a step makes of others."""
        ref = Ref(("step", len(self.steps)))
        self.steps[ref.name] = step._replace(args=self._referred(step.args), kwargs=self._referred(step.kwargs))
        self.remember(out, ref)

    def _referred(self, tree: Any) -> Any:
        """Arguments with references in place of what is known by name."""
        if isinstance(tree, Tensor):
            return self._known.get(id(tree), tree)
        if isinstance(tree, dict):
            return {key: self._referred(value) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            return type(tree)(self._referred(value) for value in tree) if type(tree) in (list, tuple) else tree
        return tree

    def form(self, x: Any) -> Form:
        """A number, a tensor that never changes, one of parameters, or of moments, as a form."""
        if not isinstance(x, Tensor):
            return Form.number(x)
        known = self._known.get(id(x)) or self._fixed.get(id(x))
        if isinstance(known, Exp):
            raise UnsupportedError("a Dirichlet's sample itself, not its logarithm")
        if isinstance(known, Form):
            return known
        if isinstance(known, Ref):
            return Form.of(self.axes, known.name, x.shape)
        if x.dim() == 0:
            return Form.number(float(x))
        name = ("constant", len(self.constants))
        self.constants[name] = x.detach().double().squeeze()
        self._fixed[id(x)] = form = Form.of(self.axes, name, x.shape)
        self._kept.append(x)
        return form

    def rows(self, index: Tensor, length: int) -> RowsOf:
        """Rows that are read of what is so long, counted from its beginning; the same where they are read again."""
        self._kept.append(index)
        return self._rows.setdefault((id(index), length), RowsOf(index.remainder(length)))


def _references(tree: Any) -> set[Hashable]:
    if isinstance(tree, Ref):
        return {tree.name}
    if isinstance(tree, dict):
        return set().union(*map(_references, tree.values()))
    return set().union(*map(_references, tree)) if isinstance(tree, list | tuple) else set()


def _resolved(tree: Any, tensors: Mapping[Hashable, Tensor]) -> Any:
    """Arguments with tensors in place of references."""
    if isinstance(tree, Ref):
        return tensors[tree.name]
    if isinstance(tree, dict):
        return {key: _resolved(value, tensors) for key, value in tree.items()}
    return type(tree)(_resolved(value, tensors) for value in tree) if type(tree) in (list, tuple) else tree

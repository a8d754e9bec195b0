"""Parts of a network: what is frozen and common, what cooperates, and what stays at home."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from torch import Tensor, nn

from scool_ppl.base.arguments import check_names
from scool_ppl.base.describe import listed
from scool_ppl.errors import InputError
from scool_ppl.train.questions import Params

Of = TypeVar("Of")


class Parts(NamedTuple):
    """Names of the parameters that are frozen, and of those that are private; all others cooperate.

    frozen: the same for all clients and as the network was built; held once, never trained, never sent. private: a
    client's own, trained on its images alone; nobody else ever has them. What cooperates is sent, compared and mixed.

    Stacks of networks hold what is trained, what cooperates before what is private. Wherever a network meets a client's
    images it is completed by **that client's** private part, whoever trained the rest: see `completed`.
    """

    frozen: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    def cooperating(self, networks: Mapping[str, Of]) -> dict[str, Of]:
        """What others may see of these networks."""
        return {name: value for name, value in networks.items() if name not in self.private}

    def at_home(self, networks: Params) -> Params:
        """What they may not."""
        return {name: networks[name] for name in self.private if name in networks}

    def completed(self, networks: Params, whose: Tensor, owners: Tensor) -> Params:
        """The networks of `whose` (N,) as they meet the images of `owners` (N,): (u_j, v_i) of networks (u, v)."""
        rows = {name: owners if name in self.private else whose for name in networks}
        return {name: value.index_select(0, rows[name].to(value.device)) for name, value in networks.items()}


EVERYTHING = Parts()
"""All parameters cooperate."""

_WORDS = ("head", "body")
"""The last layer that has parameters, and all before it; a parameter that is called so comes first."""


def declared(module: nn.Module, frozen: Collection[str] = (), private: Collection[str] = ()) -> Parts:
    """The parts of a network by names or shell patterns, e.g. "3.*", or as "head", its last layer, and "body", all before
    it; what needs no gradient is frozen already.

    Raises InputError where a pattern matches nothing, two of them disagree, or nothing is left to cooperate.
    """
    leaves = dict(module.named_parameters())
    still = {name for name, leaf in leaves.items() if not leaf.requires_grad}
    chosen = {kind: _matched(kind, patterns, leaves) for kind, patterns in (("frozen", frozen), ("private", private))}
    common = chosen["frozen"] | still
    if both := [name for name in leaves if name in common & chosen["private"]]:
        how = "by the network itself" if both[0] in still else "by frozen="
        raise InputError(f"parameter '{both[0]}' is private, and frozen {how}; expected one of the two")
    if not leaves.keys() - common - chosen["private"]:
        raise InputError(
            f"all parameters ({listed(leaves, most=4)}) are frozen or private, expected some that cooperate; declare fewer"
        )
    return Parts(*(tuple(name for name in leaves if name in part) for part in (common, chosen["private"])))


def _matched(kind: str, patterns: Collection[str], leaves: Mapping[str, object]) -> set[str]:
    check_names(kind, patterns)
    found: set[str] = set()
    for pattern in patterns:
        matches = {name for name in leaves if fnmatchcase(name, str(pattern))} or _part(str(pattern), leaves)
        if not matches:
            near = difflib.get_close_matches(str(pattern), leaves, n=3, cutoff=0.3) or [*leaves][-3:]
            raise InputError(
                f"{kind} has '{pattern}', which no parameter matches; the closest are {', '.join(near)}; write names, "
                f"patterns such as '3.*', {' or '.join(_WORDS)}"
            )
        found |= matches
    return found


def _part(word: str, leaves: Mapping[str, object]) -> set[str]:
    """The parameters that one of the words stands for."""
    last = _layer([*leaves][-1])
    head = {name for name in leaves if _layer(name) == last}
    return dict(zip(_WORDS, (head, leaves.keys() - head), strict=True)).get(word, set())


def _layer(parameter: str) -> str:
    """The name of the module whose parameter this is."""
    return parameter.rpartition(".")[0]

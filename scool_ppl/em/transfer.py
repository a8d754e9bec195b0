"""Transfer: a run begins with what the prior of another run has learned, but for what belongs to the other's clients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple

from scool_ppl.base.codec import Row
from scool_ppl.base.describe import feed
from scool_ppl.em.axes import learned_axes
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError
from scool_ppl.train.questions import Params


class Learned(NamedTuple):
    """The priors of a run as its last round left them: the model's own, and those of the tracks beside it, by name."""

    source: str
    """Where it comes from, for people."""
    num_clients: int
    """Of the run that it comes from."""
    prior: Params
    beside: Mapping[str, Params] = MappingProxyType({})
    frozen: bool = False
    """Does it stay as it is, or is it where learning begins?"""

    @classmethod
    def of(cls, state: EMState, source: str, *, frozen: bool = False) -> Learned:
        """What a state knows."""
        beside = {name: track.prior for name, track in state.beside.items()}
        return cls(source, len(next(iter(state.params.values()))), state.prior, beside, frozen)

    @property
    def request(self) -> Row:
        """The same as a record of what was asked for."""
        found = sha256()
        for prior in (self.prior, *self.beside.values()):
            feed(found, [*prior, *prior.values()])
        return {"source": self.source, "sha256": found.hexdigest(), "frozen": self.frozen}

    def begun(self, em: EM, fewer: Callable[[], EM]) -> EM:
        """The same EM with these values where its priors begin; an InputError if all of them belong to the run's clients.

        fewer: makes the same EM for one client fewer. A parameter belongs to clients if its prior says so, in
        `client_axes`, or if its shape depends on how many clients there are; where there can be no fewer, as of a model
        that is told so many distances, if it is as long as there are clients.
        """

        @cache
        def other() -> EM | None:
            try:
                return fewer()
            except InputError:
                return None

        def beside_of(name: str) -> EM | None:
            made = other()
            return None if made is None else made.beside[name]

        own = self._common("", self.prior, em, other)
        beside = {
            name: self._common(name, self.beside[name], track, partial(beside_of, name))
            for name, track in em.beside.items()
            if name in self.beside
        }
        if not own and not any(beside.values()):
            kinds = ", ".join(dict.fromkeys(type(one.model.prior).__name__ for one in (em, *em.beside.values())))
            raise InputError(
                f"all that {self.source} has learned belongs to its own clients ({kinds}), expected a parameter of a prior "
                "with the same shape for any number of clients, as B and alpha of scool_sbm, the encoder of meta_l2c, the "
                "coefficient of latent_space; transfer a run of such a model"
            )
        begun = self._beginning(em, own)
        begun.beside = {
            name: self._beginning(track, beside[name]) if name in beside else track for name, track in em.beside.items()
        }
        return begun

    def _common(self, track: str, values: Params, em: EM, fewer: Callable[[], EM | None]) -> Params:
        """Those of the values that are learned here, too, and belong to no client."""
        prior, found = em.model.prior, {}
        owned = learned_axes(prior)
        for name, parameter in prior.named_parameters():
            if name in owned or not parameter.requires_grad:
                continue
            here, there = em.prior_start[name].shape, values[name].shape if name in values else None
            told = self.num_clients != em.clients.num_clients and here == there
            if not told and _of_clients(name, em, fewer()):
                continue
            if here != there:
                shown = f"{type(prior).__name__}{f' of the track {track}' if track else ''}"
                raise InputError(
                    f"parameter '{name}' of {shown} is {tuple(here)}, of {self.source} "
                    f"{'there is none' if there is None else tuple(there)}; take the same hyperparameters and networks"
                )
            found[name] = values[name]
        return found

    def _beginning(self, em: EM, values: Params) -> EM:
        """A copy of an EM whose prior begins with these values."""
        begun = copy.copy(em)
        begun.model = em.model._replace(prior=copy.deepcopy(em.model.prior))
        begun.prior_start = {**em.prior_start, **{name: value.clone() for name, value in values.items()}}
        begun.model.prior.load_state_dict(begun.prior_start)
        if self.frozen:
            begun.model.prior.freeze(values)
        return begun


def _of_clients(name: str, em: EM, other: EM | None) -> bool:
    """Does the shape of a prior's parameter depend on how many clients there are, as the same EM for others tells?"""
    here = em.prior_start[name].shape
    return em.clients.num_clients in here if other is None else other.prior_start[name].shape != here

"""Hostile clients: some of a federation's clients send networks that are meant to harm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from scool_ppl.base.randomness import generator
from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError, unknown
from scool_ppl.graph.stacks import per_client
from scool_ppl.train.contract import BEHAVIOUR, AnyClients, Coupling, Facts, Plan, Trained, Wrapper
from scool_ppl.train.questions import Params

Attack = Literal["sign-flip", "scaled", "random", "collude", "label-flip"]

STRENGTHS: dict[Attack, float] = {"sign-flip": 1.0, "scaled": 10.0, "random": 1.0}


class HostileClients(Wrapper):
    """The clients given, a seeded share of whom is hostile: what they have trained is replaced before others see it; what
    is private nobody sees.

    With Delta_i what local training did to hostile client i, mu and sigma mean and standard deviation of the honest
    clients' Delta for every parameter, and s the `strength`, theta_i becomes theta_i^t plus

        sign-flip   -s Delta_i                                                             s = 1
        scaled       s Delta_i                                                             s = 10
        random       s |Delta_i| g / |g|, g standard normal, the norm over the network     s = 1
        collude      mu - z sigma, the same for all of them                                ALIE (Baruch et al., 2019)

    z = s or, as printed there, the z with Phi(z) = (n - m - k) / (n - m), k = floor(n / 2 + 1) - m, for m hostile clients
    of n. "label-flip" leaves the networks alone: hostile clients hold wrong data, c is labelled C - 1 - c in all parts.

    In all else the hostile are honest: losses that others' networks have on their data are what they are. `honest` (K,)
    bool says who is; accuracy is to be measured on them. `hostile` names the hostile clients instead of drawing them.
    """

    def __init__(
        self,
        clients: AnyClients,
        attack: Attack,
        *,
        share: float = 0.2,
        seed: int = 0,
        strength: float | None = None,
        hostile: tuple[str, ...] | None = None,
    ) -> None:
        if attack not in get_args(Attack):
            raise unknown("attack", str(attack), get_args(Attack))
        if not 0 <= share < 1:
            raise InputError(f"share={share} of the clients is hostile, expected a number from 0 to below 1")
        if strength is not None and not math.isfinite(strength):
            raise InputError(f"strength={strength}, expected a finite number, or none for the attack's own")
        if hostile is None:
            order = torch.randperm(clients.num_clients, generator=generator(seed, "hostile")).tolist()
            hostile = tuple(clients.names[i] for i in order[: round(share * clients.num_clients)])
        for name in hostile:
            if name not in clients.names:
                raise unknown("client", name, clients.names)
        honest = torch.tensor([name not in hostile for name in clients.names])
        if not bool(honest.any()):
            raise InputError("all clients are hostile, expected an honest one at least; lower the share")
        flip = attack == "label-flip"
        super().__init__(clients.for_federation(_flipped(clients.federation, honest)) if flip else clients)
        self.honest, self.attack, self.seed, self.strength = honest, attack, seed, strength

    def for_federation(self, federation: Federation) -> Self:
        """The same attack among the clients of another federation; newcomers are honest."""
        moved, hostile = super().for_federation(federation), self.hostile_names
        moved.honest = torch.tensor([name not in hostile for name in federation.names])
        return moved

    @property
    def hostile_names(self) -> tuple[str, ...]:
        """Names of the hostile clients."""
        return tuple(name for name, honest in zip(self.names, self.honest.tolist(), strict=True) if not honest)

    def facts(self) -> Facts:
        """With the attack and who makes it: a run can only go on under the same attack."""
        attack = f"{self.attack} of strength {self.strength}, seed {self.seed}, by {', '.join(self.hostile_names)}"
        inside = self.clients.facts()
        return {**inside, BEHAVIOUR: [*inside.get(BEHAVIOUR, []), attack]}

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        """Local training of all, in which nobody sees anybody's network; then the hostile who have moved send another."""
        if self.attack != "label-flip" and isinstance(plan.pull, Coupling):
            plan = plan._replace(pull=plan.pull.held(params))
        trained = super().train(params, optimizer_state, plan)
        hostile = (~self.honest & trained.moved).nonzero().flatten()
        if self.attack == "label-flip" or len(hostile) == 0:
            return trained
        shown = self.parts.cooperating(trained.params)
        updates = {name: value - params[name] for name, value in shown.items()}
        sound = torch.stack([value.reshape(len(value), -1).isfinite().all(1).cpu() for value in updates.values()]).all(
            0
        )
        sent = self._sent(updates, hostile, self.honest & trained.moved & sound, plan.round)
        attacked = {
            name: value.index_copy(0, hostile.to(value.device), params[name][hostile] + sent[name].to(value))
            for name, value in shown.items()
        }
        return trained._replace(params={**trained.params, **attacked})

    def _sent(self, updates: Params, hostile: Tensor, honest: Tensor, round: int) -> Params:
        """What the hostile clients (H,) say that training did to their networks, name -> (H, ...)."""
        strength = STRENGTHS.get(self.attack, 1.0) if self.strength is None else self.strength
        own = {name: value[hostile] for name, value in updates.items()}
        if self.attack == "collude":
            z = colluders_z(len(self.honest), int((~self.honest).sum())) if self.strength is None else self.strength
            good = {name: value[honest] for name, value in updates.items()}
            return {
                name: (value.mean(0) - z * value.std(0, unbiased=False)).expand(len(hostile), *value.shape[1:])
                for name, value in good.items()
            }
        if self.attack == "random":
            noise = self._noise(own, hostile.tolist(), round)
            ratio = strength * _norm(own) / _norm(noise)
            return {name: value * per_client(ratio, value) for name, value in noise.items()}
        sign = -1.0 if self.attack == "sign-flip" else 1.0
        return {name: sign * strength * value for name, value in own.items()}

    def _noise(self, like: Params, hostile: list[int], round: int) -> Params:
        drawn = [generator(self.seed, "hostile noise", round, self.names[client]) for client in hostile]
        return {
            name: torch.stack([torch.randn(value.shape[1:], generator=each) for each in drawn]).to(value)
            for name, value in like.items()
        }


def _flipped(federation: Federation, honest: Tensor) -> Federation:
    """The same images; what hostile clients called c they now call C - 1 - c."""
    if federation.num_classes == 0:
        raise InputError(f"clients learn {federation.kind}, which has no labels to flip; choose another attack")
    plain = torch.arange(federation.num_classes).repeat(federation.num_clients, 1)
    relabel = plain if federation.relabel is None else federation.relabel
    flipped = torch.where(honest[:, None], relabel, federation.num_classes - 1 - relabel)
    return replace(federation, relabel=flipped, spec="")


def _norm(networks: Params) -> Tensor:
    """Euclidean norm of each network, (H,)."""
    return torch.cat([value.flatten(1) for value in networks.values()], 1).norm(dim=1)


def colluders_z(num_clients: int, num_hostile: int) -> float:
    """How many standard deviations colluders may shift the mean and still have a majority's support, at least 0."""
    honest = num_clients - num_hostile
    needed = num_clients // 2 + 1 - num_hostile
    inside = min(max((honest - needed) / honest, 0.5), 1 - 1e-6)
    return float(torch.special.ndtri(torch.tensor(inside, dtype=torch.float64)))

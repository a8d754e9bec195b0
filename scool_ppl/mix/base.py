"""What a mixing rule is: how E_q[Y] and the trained networks become the next networks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from scool_ppl.base.arguments import check_kind
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.contract import Coupling, Shares, Trained
from scool_ppl.train.contract import Pull as Proximal
from scool_ppl.train.questions import Params
from scool_ppl.train.round_start import Memory, RoundStart


class Terms(NamedTuple):
    """What a mixing rule adds to local training: a pull on every step, or shares in others' data; and what it remembers.

    memory: what the rule wants to read next round in `start.memory`. begin: networks (K, ...) that training starts from,
    theta^t if None. importance: how much each training image counts, see `train.Plan`.
    """

    pull: Proximal | Coupling | None = None
    shares: Shares | None = None
    memory: Memory = {}
    begin: Params | None = None
    importance: Tensor | None = None


class Mixing:
    """A rule acts after training (`__call__`), during it (`during`), or both; by default neither does anything."""

    demands: Collection[str] = ()
    """What it asks of clients beyond rounds of their own training, e.g. ("lock step",)."""

    def during(self, start: RoundStart) -> Terms:
        """What is added to local training in the round that begins."""
        return Terms()

    def __call__(self, before: Params, trained: Params, weights: Tensor, peers: Peers) -> Params:
        """theta^{t+1} (K, ...) from theta^t (`before`), theta^{t+1/2} (`trained`) and the weights w = E_q[Y] (K, M); before
        and trained have the networks of components behind the clients', where there are any.
        """
        return {name: value[: peers.num_clients] for name, value in trained.items()}

    def components(self, start: RoundStart, trained: Trained) -> Params:
        """Networks of the components once the clients have trained, name -> (G, ...); by default as they were."""
        return start.components

    def predictors(self, weights: Tensor, peers: Peers) -> tuple[Tensor, Peers] | None:
        """The mixture that a client predicts with, None where it predicts with its own network alone."""
        return None


@dataclass(frozen=True)
class Alone(Mixing):
    """theta_i^{t+1} = theta_i^{t+1/2}: nobody uses anybody's network (case 1.1)."""


def check_samples(rule: Mixing, samples: Tensor | None) -> None:
    """Raises InputError unless they are a positive number a client, (K,), or none."""
    if samples is None:
        return
    name = type(rule).__name__
    check_kind(f"samples of {name}", samples, Tensor, "convert by torch.tensor")
    if samples.dim() != 1:
        raise InputError(f"{name} has samples of shape {tuple(samples.shape)}, expected (K,): one a client")
    wrong = ~(samples.isfinite() & (samples > 0))
    if bool(wrong.any()):
        client = int(wrong.nonzero()[0])
        raise InputError(
            f"{name} has samples[{client}]={samples[client].item()}, expected a number of images above 0; leave out "
            "clients without any"
        )


def of_these(samples: Tensor, num_clients: int) -> Tensor:
    """The samples (K,), refused unless there are so many clients."""
    if len(samples) != num_clients:
        raise InputError(
            f"samples has {len(samples)} entries for {num_clients} clients, expected one for each; build the model with "
            "the samples of its own federation"
        )
    return samples

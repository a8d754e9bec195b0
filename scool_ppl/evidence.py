"""Evidence: what the clients showed this round, computed on first use and kept for the round."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.peers import Peers

if TYPE_CHECKING:
    from scool_ppl.clients import Clients, Params, Probe


class Evidence:
    """Facts about a round, each computed when a prior or a likelihood first asks for it.

    Made by the driver from the clients, or by hand from known matrices:
    ``Evidence.given(loss=matrix)`` is enough to run a prior without any client.
    """

    def __init__(
        self,
        clients: Clients,
        before: Params,
        trained: Params,
        start: Params,
        peers: Peers,
        *,
        seed: int,
        round: int,
    ) -> None:
        self.clients = clients
        self.before = before
        self.trained = trained
        self.start = start
        self.peers = peers
        self.seed = seed
        self.round = round
        self.num_clients = clients.num_clients

    @classmethod
    def given(
        cls,
        *,
        loss: Tensor,
        loss_received: Tensor | None = None,
        peers: Peers | None = None,
        chance: float = 0.0,
        label_entropy: Tensor | None = None,
        includes_self: bool = False,
        seed: int = 0,
        round: int = 0,
    ) -> Evidence:
        """Evidence with known losses: `loss` (K, M) of model i on the data of its m-th candidate j."""
        evidence = cls.__new__(cls)
        if loss.dim() != 2:
            raise InputError(f"loss has shape {tuple(loss.shape)}, expected (clients, candidates)")
        evidence.num_clients = loss.shape[0]
        evidence.peers = peers if peers is not None else Peers.everybody(loss.shape[0], includes_self)
        if loss.shape != evidence.peers.mask.shape:
            raise InputError(
                f"loss has shape {tuple(loss.shape)}, expected {tuple(evidence.peers.mask.shape)}: "
                "one row per receiving client and one column per candidate sender"
            )
        evidence.loss = loss
        mask = evidence.peers.mask
        if loss_received is None and evidence.peers.senders is None and torch.equal(mask, mask.T):
            loss_received = loss.T
        if loss_received is not None:
            evidence.loss_received = loss_received
        evidence.chance = torch.as_tensor(chance, dtype=loss.dtype)
        if label_entropy is not None:
            evidence.label_entropy = label_entropy
        evidence.seed, evidence.round = seed, round
        return evidence

    @cached_property
    def clients(self) -> Clients:
        """Those who computed this; evidence that was given has none."""
        raise InputError(
            "this evidence was given without clients and misses what was asked of it; pass loss_received= (needed for "
            "a table of peers or a one-sided mask) or label_entropy= to Evidence.given"
        )

    @cached_property
    def probe(self) -> Probe:
        """One fixed batch of training data per client, common to all models."""
        return self.clients.probe(self.seed, self.round)

    @cached_property
    def loss(self) -> Tensor:
        """L_ij: mean loss of the receiver's trained model i on the data of the sender j, (K, M)."""
        return self.clients.cross_loss(self.trained, self.peers, self.probe, model="receiver")

    @cached_property
    def loss_received(self) -> Tensor:
        """L_ji: mean loss of the sender's trained model j on the data of the receiver i, (K, M)."""
        if self.peers.senders is None and torch.equal(self.peers.mask, self.peers.mask.T):
            return self.loss.T
        return self.clients.cross_loss(self.trained, self.peers, self.probe, model="sender")

    @cached_property
    def chance(self) -> Tensor:
        """The loss of a model that knows nothing, log C for C classes."""
        return torch.as_tensor(self.clients.chance_loss, dtype=self.loss.dtype)

    @cached_property
    def label_entropy(self) -> Tensor:
        """Entropy of each client's own training labels, (K,): the loss of knowing only their frequencies."""
        counts = self.clients.federation.label_counts("train").to(self.loss.dtype)
        return torch.special.entr(counts / counts.sum(1, keepdim=True)).sum(1)

"""Evidence: what the clients showed this round, computed on first use and kept for the round."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.faults import check_table
from scool_ppl.train.faults import check_networks

if TYPE_CHECKING:
    from scool_ppl.train.batches import Probe
    from scool_ppl.train.clients import Clients
    from scool_ppl.train.contract import Params
    from scool_ppl.train.start import Turn


class Evidence:
    """Facts about a round, each computed when a prior or a likelihood first asks for it.

    `planned` are the candidates that the policy chose, `peers` those of them who are `present` (K,). A client whose
    network or data give no finite number in any pair is a ClientError.

    Made by the driver from the clients, or by hand from known matrices:
    ``Evidence.given(loss=matrix)`` is enough to run a prior without any client.
    """

    def __init__(self, turn: Turn, trained: Params, peers: Peers) -> None:
        self.clients = turn.clients
        self.before = turn.params
        self.start = turn.start
        self.trained = trained
        self.present = turn.present
        self.planned = peers
        self.peers = peers.among(self.present)
        self.memory = turn.memory
        self.seed = turn.seed
        self.round = turn.round
        self.num_clients = turn.num_clients

    @classmethod
    def given(
        cls,
        *,
        loss: Tensor,
        loss_received: Tensor | None = None,
        peers: Peers | None = None,
        chance: float | None = None,
        label_entropy: Tensor | None = None,
        includes_self: bool = False,
        seed: int = 0,
        round: int = 0,
    ) -> Evidence:
        """Evidence with known losses: `loss` (K, M) of model i on the data of its m-th candidate j."""
        evidence = cls.__new__(cls)
        check_kind("loss", loss, Tensor, "convert by torch.tensor")
        if loss.dim() != 2 or loss.shape[0] == 0 or not loss.is_floating_point():
            raise InputError(
                f"loss is {loss.dtype} of shape {tuple(loss.shape)}, expected floating-point (clients, candidates)"
            )
        evidence.num_clients = loss.shape[0]
        evidence.peers = peers if peers is not None else Peers.everybody(loss.shape[0], includes_self)
        evidence.planned, evidence.present = evidence.peers, torch.ones(loss.shape[0], dtype=torch.bool)
        if loss.shape != evidence.peers.mask.shape:
            raise InputError(
                f"loss has shape {tuple(loss.shape)}, expected {tuple(evidence.peers.mask.shape)}: "
                "one row per receiving client and one column per candidate sender"
            )
        if loss_received is not None and loss_received.shape != loss.shape:
            raise InputError(
                f"loss_received has shape {tuple(loss_received.shape)}, expected {tuple(loss.shape)}, that of loss: "
                "the same pairs with the roles of model and data exchanged"
            )
        evidence.loss = loss
        if loss_received is None and evidence.peers.is_mutual:
            loss_received = loss.T
        if loss_received is not None:
            evidence.loss_received = loss_received
        if chance is not None:
            evidence.chance = torch.as_tensor(chance, dtype=loss.dtype)
        if label_entropy is not None:
            if label_entropy.shape != loss.shape[:1]:
                raise InputError(f"label_entropy has shape {tuple(label_entropy.shape)}, expected ({len(loss)},)")
            evidence.label_entropy = label_entropy
        evidence.seed, evidence.round, evidence.memory = seed, round, {}
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
        return self._cross_loss(self.probe, "receiver")

    @cached_property
    def loss_received(self) -> Tensor:
        """L_ji: mean loss of the sender's trained model j on the data of the receiver i, (K, M)."""
        if self.peers.fresh.is_mutual:
            return self.loss.T
        return self._cross_loss(self.probe, "sender")

    def _cross_loss(self, probe: Probe, model: Literal["receiver", "sender"]) -> Tensor:
        loss = self.clients.cross_loss(self.trained, self.peers.fresh, probe, model=model).cpu()
        check_table(loss, self.peers.fresh, self.clients.names, model)
        return loss

    @cached_property
    def chance(self) -> Tensor:
        """The loss of a model that knows nothing, log C for C classes."""
        return torch.as_tensor(self.clients.chance_loss, dtype=self.loss.dtype)

    @cached_property
    def label_entropy(self) -> Tensor:
        """The loss of knowing only how a client's own training targets are distributed, (K,): for labels their entropy."""
        federation = self.clients.federation
        targets = [federation.labels(client, rows) for client, rows in enumerate(federation.train)]
        return federation.task.marginal(targets, self.loss.dtype)

    @cached_property
    def updates(self) -> Params:
        """theta^{t+1/2} - theta^0, name -> (K, ...): where training has taken each client since the start."""
        return {name: value - self.start[name] for name, value in self.trained.items()}

    @cached_property
    def validation_probe(self) -> Probe:
        """One fixed batch of validation data per client."""
        probe = self.clients.probe(self.seed, self.round, "validation")
        if not bool(probe.mask.any(1).all()):
            raise InputError(
                "a client has no validation images, this model needs them; give the federation validation=0.2"
            )
        return probe

    @cached_property
    def validation_before(self) -> Tensor:
        """V_i(theta_i^t): loss of each client's network before training on its own validation data, (K,)."""
        own = Peers(self.present[:, None], torch.arange(self.num_clients)[:, None])
        loss = self.clients.cross_loss(self.before, own, self.validation_probe).cpu()
        check_table(loss, own, self.clients.names, "receiver")
        return loss[:, 0]

    @cached_property
    def validation_received(self) -> Tensor:
        """V_i(theta_j^{t+1/2}): loss of the sender's trained network on the receiver's validation data, (K, M)."""
        return self._cross_loss(self.validation_probe, "sender")

    def distance(self, norm: float = 2.0, *, trained: bool = False) -> Tensor:
        """|theta_j^{t+1/2} - theta_i| of the sender's trained network from the receiver's, (K, M), float64.

        theta_i is the receiver's network before training, or with `trained` after it.
        """
        if not norm > 0:
            raise InputError(f"norm is {norm}, expected a positive number; 1 and 2 are usual")
        known = self.__dict__.setdefault("_distances", {})
        if (norm, trained) not in known:
            known[norm, trained] = self._distance(norm, self.trained if trained else self.before)
        distance: Tensor = known[norm, trained]
        return distance

    def _distance(self, norm: float, receivers: Params) -> Tensor:
        theirs = torch.cat([value.flatten(1) for value in self.trained.values()], 1)
        own = torch.cat([value.flatten(1) for value in receivers.values()], 1)
        return self.peers.distance(own, theirs, norm).cpu()

    @cached_property
    def alignment(self) -> Tensor:
        """<grad f_i(m_ij), grad f_j(m_ij)> of the pairs looked at this round at their midpoints, (K, M); 0 elsewhere."""
        from scool_ppl.look.gradients import midpoint_alignment

        alignment = midpoint_alignment(self.clients, self.trained, self.peers.fresh, self.probe).cpu()
        check_table(alignment, self.peers.fresh, self.clients.names, "both")
        return alignment

    def mixed_validation(self, graph: Tensor) -> Tensor:
        """V_i(theta_i^t + sum_j graph_ij Delta_j), (K,), 0 of the absent, differentiable in the graph (K, M)."""
        mixed = {
            name: value + self.peers.combine(graph.to(value.device), self.trained[name] - value)
            for name, value in self.before.items()
        }
        loss = self.clients.probe_loss(mixed, self.validation_probe).cpu()
        if not bool(loss.detach()[self.present].isfinite().all()):
            check_networks(self.clients, self.trained, self.validation_probe, self.present)
        return loss.where(self.present, 0)

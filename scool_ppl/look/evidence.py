"""Evidence: what a round shows, as plain tensors; asked for in one exchange with the clients, or given by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind
from scool_ppl.errors import InputError, unknown
from scool_ppl.graph.candidates import Peers
from scool_ppl.graph.stacks import unshared
from scool_ppl.look.faults import check_losses, check_table
from scool_ppl.train.questions import (
    Alignment,
    ImageLoss,
    LabelEntropy,
    OwnLoss,
    PairLoss,
    Params,
    Question,
    joined,
)
from scool_ppl.train.round_start import Memory, RoundStart


class Distance(NamedTuple):
    """A need: |theta_j^{t+1/2} - theta_i| of the sender's trained network from the receiver's, (K, M), float64.

    theta_i is the receiver's network before training, or with `trained` after it.
    """

    norm: float = 2.0
    trained: bool = False


Need = str | Distance
NEEDS = (
    *("loss", "loss_received", "own_loss", "label_entropy", "validation_before", "validation_received"),
    *("updates", "round_updates", "alignment", "mixed_validation"),
    *("image_loss", "unmixed_image_loss", "own_image_loss", "every_image_loss"),
)
"""What priors and likelihoods may declare by name, besides a Distance; each is described at the property of `Evidence`."""


OF_GRADIENTS = frozenset({"alignment", "mixed_validation"})
"""What clients find with gradients of their losses."""
OF_COMPONENTS = frozenset(
    {"loss_received", "own_loss", "label_entropy", "validation_before", "validation_received", "every_image_loss"}
)
"""What can be asked where some of the candidates are components, who have networks and no data."""


class Evidence:
    """What a round shows: candidates, and numbers that the clients gave; plain tensors, computed before anybody looks.

    A prior or a likelihood declares in `needs` what it reads; what nobody declared is not there. `planned` are the
    candidates that the policy chose, `peers` those of them who are `present` (K,).

    `Evidence.given(loss=matrix)` is enough to run a prior without any client.
    """

    def __init__(
        self,
        peers: Peers,
        present: Tensor | None = None,
        *,
        memory: Memory | None = None,
        seed: int = 0,
        round: int = 0,
    ) -> None:
        self.num_clients = peers.num_clients
        self.present = torch.ones(self.num_clients, dtype=torch.bool) if present is None else present
        self.planned, self.peers = peers, peers.among(self.present)
        self.memory: Memory = {} if memory is None else memory
        self.seed, self.round = seed, round
        self._shown: dict[Need, Any] = {}

    @staticmethod
    def given(
        *,
        loss: Tensor,
        loss_received: Tensor | None = None,
        peers: Peers | None = None,
        chance: float | None = None,
        label_entropy: Tensor | None = None,
        updates: Params | None = None,
        round_updates: Params | None = None,
        image_loss: Tensor | None = None,
        own_image_loss: Tensor | None = None,
        includes_self: bool = False,
        seed: int = 0,
        round: int = 0,
    ) -> Evidence:
        """Evidence with known losses: `loss` (K, M) of model i on the data of its m-th candidate j; and other facts.

        `image_loss` is of networks that nobody has mixed.
        """
        facts: dict[str, Any] = {"loss_received": loss_received, "label_entropy": label_entropy, "chance": chance}
        facts |= {"updates": updates, "round_updates": round_updates}
        facts |= {"image_loss": image_loss, "unmixed_image_loss": image_loss, "own_image_loss": own_image_loss}
        given = {name: fact for name, fact in facts.items() if fact is not None}
        return GivenEvidence(loss, peers, given, includes_self, seed, round)

    def shown(self, need: Need) -> Any:
        """What was shown for a need; an InputError if nobody declared it."""
        if need not in self._shown:
            raise InputError(self._missing(need))
        return self._shown[need]

    def _missing(self, need: Need) -> str:
        what = f"'{need}'" if isinstance(need, str) else repr(need)
        return f"evidence has no {what}, which nobody declared; add it to the `needs` of the prior or likelihood"

    @property
    def chance(self) -> Tensor:
        """The loss of a model that knows nothing, log C for C classes."""
        return self.shown("chance")

    @property
    def loss(self) -> Tensor:
        """L_ij: mean loss of the receiver's trained model i on the data of the sender j, (K, M)."""
        return self.shown("loss")

    @property
    def loss_received(self) -> Tensor:
        """L_ji: mean loss of the sender's trained model j on the data of the receiver i, (K, M)."""
        return self.shown("loss_received")

    @property
    def own_loss(self) -> Tensor:
        """L_i: mean loss of each client's trained network on its own training data, (K,), 0 of the absent."""
        return self.shown("own_loss")

    @property
    def label_entropy(self) -> Tensor:
        """The loss of knowing only how a client's own training targets are distributed, (K,): for labels their entropy."""
        return self.shown("label_entropy")

    @property
    def updates(self) -> Params:
        """theta^{t+1/2} - theta^0, name -> (K, ...): where training has taken each client since the start."""
        return self.shown("updates")

    @property
    def round_updates(self) -> Params:
        """theta^{t+1/2} - theta^t, name -> (K, ...): where this round's training has taken each client."""
        return self.shown("round_updates")

    @property
    def update_cosine(self) -> Tensor:
        """cos(u_i, u_j) of the `updates` of pairs (K, M), float64; 0 where a network has not moved. Needs "updates"."""
        flat = torch.cat([value.flatten(1).double() for value in self.updates.values()], 1)
        length = flat.norm(dim=1, keepdim=True)
        unit = torch.where(length == 0, 0.0, flat / length)
        square = unshared(unit.square().sum(1))  # 1, or 0
        return ((square[:, None] + self.peers.gather(square) - self.peers.distance(unit, unit).square()) / 2).cpu()

    @property
    def validation_before(self) -> Tensor:
        """V_i(theta_i^t): loss of each client's network before training on its own validation data, (K,)."""
        return self.shown("validation_before")

    @property
    def validation_received(self) -> Tensor:
        """V_i(theta_j^{t+1/2}): loss of the sender's trained network on the receiver's validation data, (K, M)."""
        return self.shown("validation_received")

    @property
    def image_loss(self) -> Tensor:
        """-log p of the receiver's n-th training image by the sender's trained network, (K, M, n, T), calibrated; nan
        where there is none. See `train.ImageLoss`.
        """
        return self.shown("image_loss")

    @property
    def unmixed_image_loss(self) -> Tensor | None:
        """The same by networks that nobody has mixed, for which every image of another client is held out: those trained
        in the first round, or in all rounds those of a track of local training beside this one; None if there are none.
        """
        return self.shown("unmixed_image_loss")

    @property
    def own_image_loss(self) -> Tensor | None:
        """-log p of a client's own validation images by its network that nobody has mixed, (K, n, T), calibrated; None
        where there is no such network.
        """
        return self.shown("own_image_loss")

    @property
    def every_image_loss(self) -> Tensor:
        """-log p of each of the receiver's training images by the sender's trained network as it is, (K, M, n, T); nan
        where there is none.
        """
        return self.shown("every_image_loss")

    @property
    def alignment(self) -> Tensor:
        """<grad f_i(m_ij), grad f_j(m_ij)> of the pairs looked at this round at their midpoints, (K, M); 0 elsewhere."""
        return self.shown("alignment")

    def distance(self, norm: float = 2.0, *, trained: bool = False) -> Tensor:
        """|theta_j^{t+1/2} - theta_i| of pairs (K, M), see `Distance`."""
        return self.shown(Distance(norm, trained))

    def mixed_validation(self, graph: Tensor) -> Tensor:
        """V_i(theta_i^t + sum_j graph_ij Delta_j), (K,), 0 of the absent, differentiable in the graph (K, M)."""
        ask: Callable[[Tensor], Tensor] = self.shown("mixed_validation")
        return ask(graph)


class GivenEvidence(Evidence):
    """Evidence made by hand from known losses and other facts, by the names of `Evidence`."""

    def __init__(
        self, loss: Tensor, peers: Peers | None, facts: Mapping[str, Any], includes_self: bool, seed: int, round: int
    ) -> None:
        check_kind("loss", loss, Tensor, "convert by torch.tensor")
        if loss.dim() != 2 or loss.shape[0] == 0 or not loss.is_floating_point():
            raise InputError(
                f"loss is {loss.dtype} of shape {tuple(loss.shape)}, expected floating-point (clients, candidates)"
            )
        peers = peers if peers is not None else Peers.everybody(len(loss), includes_self)
        super().__init__(peers, seed=seed, round=round)
        if loss.shape != peers.mask.shape:
            raise InputError(
                f"loss has shape {tuple(loss.shape)}, expected {tuple(peers.mask.shape)}: "
                "one row per receiving client and one column per candidate sender"
            )
        self._shown.update({"loss": loss, **facts})
        if "chance" in facts:
            self._shown["chance"] = torch.as_tensor(facts["chance"], dtype=loss.dtype)
        if peers.is_mutual:
            self._shown.setdefault("loss_received", loss.T)
        received, entropy = (self._shown.get(name) for name in ("loss_received", "label_entropy"))
        if received is not None and received.shape != loss.shape:
            raise InputError(
                f"loss_received has shape {tuple(received.shape)}, expected {tuple(loss.shape)}, that of loss: "
                "the same pairs with the roles of model and data exchanged"
            )
        if entropy is not None and entropy.shape != loss.shape[:1]:
            raise InputError(f"label_entropy has shape {tuple(entropy.shape)}, expected ({len(loss)},)")

    def _missing(self, need: Need) -> str:
        return (
            f"this evidence was given without clients and has no {need}; pass loss_received= (needed for a table of peers "
            "or a one-sided mask), chance=, label_entropy=, updates=, round_updates=, image_loss= or own_image_loss= to "
            "Evidence.given"
        )


class RoundEvidence(Evidence):
    """Evidence of a round: the networks, and the answers to all that is needed, got in one exchange.

    A client whose network or data give no finite number in any pair is a ClientError. `asking` is entered whenever
    clients are asked later, by a likelihood that is a function of the graph ("mixed_validation"). `unmixed`: networks of
    the same clients that nobody has mixed, where there are any; in the first round those just trained are such.
    """

    def __init__(
        self,
        start: RoundStart,
        trained: Params,
        peers: Peers,
        needs: Collection[Need] = (),
        asking: Callable[[], AbstractContextManager[Any]] = nullcontext,
        unmixed: Params | None = None,
    ) -> None:
        super().__init__(peers, start.present, memory=dict(start.memory), seed=start.seed, round=start.round)
        self.clients, self._asking = start.clients, asking
        self.before, self._networks = start.params, trained
        self.trained = {name: trained[name] for name in start.params}
        self.seats = joined(trained, start.components)
        self.unmixed = trained if unmixed is None and start.round == 0 else unmixed
        dtype = next(iter(trained.values())).dtype
        self._shown["chance"] = torch.as_tensor(start.clients.roster.task.chance, dtype=dtype)
        self._ask(check_needs(needs), start)

    @property
    def looks_twice(self) -> bool:
        """Are networks that nobody has mixed looked at beside those that were trained in this round?"""
        return "unmixed_image_loss" in self._shown and self.unmixed is not None and self.unmixed is not self._networks

    def _ask(self, needs: Collection[Need], start: RoundStart) -> None:
        fresh = self.peers.fresh
        self._check_components(needs)
        questions: dict[str, Question] = {}
        both = fresh.is_mutual  # then the one matrix of losses is the other transposed
        if "loss" in needs or (both and "loss_received" in needs):
            questions["loss"] = PairLoss(self._networks, fresh, "receiver")
        if "loss_received" in needs and not both:
            questions["loss_received"] = PairLoss(self.seats, fresh, "sender")
        if "label_entropy" in needs:
            questions["label_entropy"] = LabelEntropy(self.present)
        if "own_loss" in needs:
            questions["own_loss"] = OwnLoss(self._networks, "train", self.present)
        if "validation_before" in needs:
            questions["validation_before"] = OwnLoss(start.networks, "validation", self.present)
        if "validation_received" in needs:
            questions["validation_received"] = PairLoss(self.seats, fresh, "sender", "validation")
        if "every_image_loss" in needs:
            questions["every_image_loss"] = ImageLoss(self.seats, fresh, whole=True)
        if "alignment" in needs:
            questions["alignment"] = Alignment(self._networks, fresh)
        questions |= self._image_questions(needs)
        answers = self._answers(questions)
        self._check(questions, answers)
        self._shown.update(dict.fromkeys({"unmixed_image_loss", "own_image_loss"} & set(needs)))
        if self.unmixed is self._networks and "image_loss" in answers and "unmixed_image_loss" in needs:
            answers["unmixed_image_loss"] = answers["image_loss"]
        if "own_image_loss" in answers:
            answers["own_image_loss"] = answers["own_image_loss"].squeeze(1)
        if both and "loss" in answers:
            answers["loss_received"] = answers["loss"].T
        self._shown.update(answers)
        if "updates" in needs:
            self._shown["updates"] = {name: value - start.initial[name] for name, value in self.trained.items()}
        if "round_updates" in needs:
            self._shown["round_updates"] = {name: value - self.before[name] for name, value in self.trained.items()}
        if "mixed_validation" in needs:  # asked once there is a graph
            self._shown["mixed_validation"] = None
        for need in needs:
            if isinstance(need, Distance):
                self._shown[need] = self._distance(need)

    def _check_components(self, needs: Collection[Need]) -> None:
        for need in needs:
            if self.peers.components and need not in OF_COMPONENTS:
                raise InputError(
                    f"the model needs {need!r} of {self.peers.components} components, which have networks and no data; "
                    f"expected a prior and a likelihood that need no more than {', '.join(sorted(OF_COMPONENTS))}"
                )

    def _image_questions(self, needs: Collection[Need]) -> dict[str, Question]:
        questions: dict[str, Question] = {}
        fresh, unmixed = self.peers.fresh, self.unmixed
        if "image_loss" in needs or ("unmixed_image_loss" in needs and unmixed is self._networks):
            questions["image_loss"] = ImageLoss(self._networks, fresh, calibrated=True)
        if "unmixed_image_loss" in needs and unmixed is not None and unmixed is not self._networks:
            questions["unmixed_image_loss"] = ImageLoss(unmixed, fresh, calibrated=True)
        if "own_image_loss" in needs and unmixed is not None:
            own = Peers(self.present[:, None], torch.arange(self.num_clients)[:, None])
            questions["own_image_loss"] = ImageLoss(unmixed, own, "validation", calibrated=True)
        return questions

    def _answers(self, questions: Mapping[str, Question]) -> dict[str, Tensor]:
        return self.clients.answer(questions, seed=self.seed, round=self.round) if questions else {}

    def _check(self, questions: Mapping[str, Question], answers: Mapping[str, Tensor]) -> None:
        for name, question in questions.items():
            if isinstance(question, PairLoss):
                check_table(answers[name], question.peers, self.clients.names, question.whose)
            elif isinstance(question, Alignment):
                check_table(answers[name], question.peers, self.clients.names, "both")
            elif isinstance(question, ImageLoss):
                mean = answers[name].double().nanmean((2, 3))  # without an image there is nothing to blame anybody for
                check_table(mean.masked_fill(mean.isnan(), 0), question.peers, self.clients.names, "sender")
            elif isinstance(question, OwnLoss):
                check_losses(answers[name], self.present, self.clients.names)

    @cached_property
    def _flat(self) -> Tensor:
        """The trained networks as rows, (K, P)."""
        return torch.cat([value.flatten(1) for value in self.trained.values()], 1)

    def _distance(self, need: Distance) -> Tensor:
        own = self._flat if need.trained else torch.cat([value.flatten(1) for value in self.before.values()], 1)
        return self.peers.distance(own, self._flat, need.norm).cpu()

    def mixed_validation(self, graph: Tensor) -> Tensor:
        self.shown("mixed_validation")
        if graph.requires_grad and torch.is_grad_enabled():
            return _Asked.apply(graph, self._mixed_loss, self._asking)
        with self._asking(), torch.no_grad():
            return self._mixed_loss(graph)

    def _mixed_loss(self, graph: Tensor) -> Tensor:
        mixed = {
            name: value + self.peers.combine(graph.to(value.device), self.trained[name] - value)
            for name, value in self.before.items()
        }
        mixed |= {name: value for name, value in self._networks.items() if name not in mixed}
        loss = self._answers({"mixed": OwnLoss(mixed, "validation", self.present)})["mixed"]
        if not bool(loss.detach()[self.present].isfinite().all()):
            with torch.no_grad():
                own = self._answers({"own": OwnLoss(self._networks, "validation", self.present)})["own"]
            check_losses(own, self.present, self.clients.names)
        return loss.where(self.present, 0)


class BlankEvidence(Evidence):
    """Evidence of the right shapes in which every number is 0, or one at `random` about what knowing nothing costs: to run
    a prior without asking any client.
    """

    def __init__(
        self, start: RoundStart, peers: Peers, needs: Collection[Need], random: torch.Generator | None = None
    ) -> None:
        super().__init__(peers, start.present, memory=dict(start.memory), seed=start.seed, round=start.round)
        self.before = self.trained = start.params
        chance = 0.0 if random is None else start.clients.roster.task.chance

        def numbers(*shape: int) -> Tensor:
            return torch.zeros(shape) if random is None else chance * (0.5 + torch.rand(shape, generator=random))

        pairs, each = numbers(*peers.mask.shape), numbers(self.num_clients)
        self._shown.update({"chance": torch.tensor(chance), "loss": pairs, "loss_received": pairs})
        for need in check_needs(needs):
            self._shown[need] = each if need in ("own_loss", "label_entropy", "validation_before") else pairs
        self._shown["image_loss"] = self._shown["unmixed_image_loss"] = pairs[..., None, None]
        self._shown["own_image_loss"] = each[:, None, None]
        self._shown["every_image_loss"] = pairs[..., None, None]
        moved = {name: numbers(*value.shape).to(value) for name, value in start.params.items()}
        self._shown["updates"] = self._shown["round_updates"] = moved
        self._shown["mixed_validation"] = lambda graph: each.to(graph) + 0 * graph.sum(1)


class _Asked(torch.autograd.Function):
    """A function of the graph that asks clients; both its value and its gradient are computed inside `asking`."""

    @staticmethod
    def forward(
        ctx: Any, graph: Tensor, ask: Callable[[Tensor], Tensor], asking: Callable[[], AbstractContextManager[Any]]
    ) -> Tensor:
        ctx.asking = asking
        with asking(), torch.enable_grad():
            ctx.graph = graph.detach().requires_grad_()
            ctx.answer = ask(ctx.graph)
        if not ctx.answer.requires_grad:
            raise InputError("the clients answered OwnLoss without its gradient; expected an answer that has one")
        return ctx.answer.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        with ctx.asking():
            (found,) = torch.autograd.grad(ctx.answer, ctx.graph, gradient, retain_graph=True)
        return found, None, None


def check_needs(needs: Collection[Need]) -> Collection[Need]:
    """The needs, all of which are known."""
    if isinstance(needs, str):
        raise InputError(f"needs is the text '{needs}', expected several; write ('{needs}',)")
    for need in needs:
        if isinstance(need, Distance):
            if not need.norm > 0:
                raise InputError(f"norm is {need.norm}, expected a positive number; 1 and 2 are usual")
        elif need not in NEEDS:
            raise unknown("need", str(need), NEEDS)
    return needs

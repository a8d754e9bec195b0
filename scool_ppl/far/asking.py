"""Asking: the questions of a round as parts of an exchange, for clients who are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from scool_ppl.data.roster import Roster
from scool_ppl.far.exchange import Exchange, Part, Told, got
from scool_ppl.far.wire import RELEASE, Job, Networks, Option, Sent
from scool_ppl.train.faults import check_held_out, check_probed
from scool_ppl.train.networks.parts import Parts
from scool_ppl.train.privacy.evidence import differentiable
from scool_ppl.train.questions import (
    Alignment,
    Ensemble,
    ImageLoss,
    LabelEntropy,
    OwnLoss,
    PairLoss,
    Params,
    PredictionLoss,
    Predictor,
    Question,
    check_whose,
)

AT_ONCE = 2**26
"""Bytes of gradients that are asked for in one trip."""


class Asking:
    """The answers to a round's questions: one trip for most, two for losses image by image, which need temperatures."""

    def __init__(
        self,
        exchange: Exchange,
        roster: Roster,
        entropy: Tensor,
        probe_size: int,
        parts: Parts,
        seed: int,
        round: int,
    ) -> None:
        self.exchange, self.roster, self.entropy = exchange, roster, entropy
        self.probe_size, self.parts = probe_size, parts
        self.common: dict[str, Option] = {"seed": seed, "round": round}
        self.silent: dict[str, str] = {}

    def answers(self, questions: Mapping[str, Question]) -> dict[str, Tensor]:
        self._check(questions)
        found: dict[str, Tensor] = {}
        parts, later, open_ended = list[Part](), list[tuple[str, ImageLoss, Tensor]](), list[Part]()
        for name, question in questions.items():
            if isinstance(question, PairLoss):
                parts.append(self._pairs(found, name, question))
            elif isinstance(question, OwnLoss) and not differentiable(question):
                parts.append(self._own(found, name, question))
            elif isinstance(question, PredictionLoss):
                open_ended.append(self._predictions(found, name, question))
            elif isinstance(question, ImageLoss):
                temperature = torch.ones(len(next(iter(question.networks.values()))), dtype=_dtype(question))
                later.append((name, question, temperature))
                if question.calibrated:
                    parts.append(self._temperatures(temperature, question))
        self.exchange(parts)
        self.silent = self.exchange.attempt(open_ended)
        self.exchange([self._images(found, *each) for each in later])
        for name, question in questions.items():
            if isinstance(question, OwnLoss) and differentiable(question):
                found[name] = _Asked.apply(self._sent(question.networks).stack, self, question)
            elif isinstance(question, Alignment):
                found[name] = self._alignment(question)
            elif isinstance(question, LabelEntropy):
                found[name] = _of(question.present, self.entropy)
        return {name: found[name] for name in questions}

    def _check(self, questions: Mapping[str, Question]) -> None:
        """Refuses what would be asked of those who have no such data."""
        for question in questions.values():
            if isinstance(question, PairLoss | OwnLoss | Alignment) and question.split == "validation":
                check_held_out(self.roster.sizes("validation") > 0, self.roster.names)
            if isinstance(question, PairLoss | Alignment):
                rows, _, senders = question.peers.pairs()
                both = torch.cat([rows, senders])
                data = both if isinstance(question, Alignment) else senders if question.whose == "receiver" else rows
                check_probed(self.roster.sizes(question.split) == 0, data, self.roster.names)

    def _sent(self, networks: Params) -> Sent:
        return Sent.of(networks, self.parts)

    def _options(self, split: str) -> dict[str, Option]:
        return {**self.common, "split": split}

    def _pairs(self, found: dict[str, Tensor], name: str, question: PairLoss) -> Part:
        """Whoever has the data computes the loss of each network that a pair has with them."""
        check_whose(question.whose)
        sent, peers = self._sent(question.networks), question.peers
        stack = sent.stack.detach()
        rows, columns, senders = peers.pairs()
        data, model = (senders, rows) if question.whose == "receiver" else (rows, senders)
        entries = by_owner(data, self.roster.num_clients)
        position = rows * peers.mask.shape[1] + columns
        places = [position[mine] for mine in entries]
        found[name] = table = torch.zeros(peers.mask.shape, dtype=stack.dtype)

        def build(owner: int) -> Job:
            networks = Networks(stack, tuple(model[entries[owner]].tolist()))
            tensors = {**_release(question, owner), **sent.home(owner)}
            return Job("losses", self._options(question.split), tensors, networks)

        def take(owner: int, told: Told) -> None:
            mine = places[owner]
            table.view(-1)[mine] = got(told, "loss", (len(mine),)).to(table)

        return Part(torch.tensor([len(mine) > 0 for mine in entries]), build, take)

    def _own(self, found: dict[str, Tensor], name: str, question: OwnLoss) -> Part:
        sent, count = self._sent(question.networks), self.roster.num_clients
        stack = sent.stack.detach()
        found[name] = losses = torch.zeros(count, dtype=stack.dtype)

        def take(i: int, told: Told) -> None:
            losses[i] = got(told, "loss", (1,))[0].to(losses)

        who = torch.ones(count, dtype=torch.bool) if question.present is None else question.present

        def build(i: int) -> Job:
            tensors = {**_release(question, i), **sent.home(i)}
            return Job("losses", self._options(question.split), tensors, Networks(stack, (i,)))

        return Part(who, build, take)

    def own_gradients(self, stack: Tensor, question: OwnLoss) -> tuple[Tensor, Tensor]:
        """Loss (K,) of each client's network of a stack (K, P), and its gradient (K, P)."""
        gradient, losses = torch.zeros_like(stack), stack.new_zeros(len(stack))

        def take(i: int, told: Told) -> None:
            losses[i] = got(told, "loss", (1,))[0]
            gradient[i] = got(told, "gradient", (1, stack.shape[1]))[0]

        who = torch.ones(len(stack), dtype=torch.bool) if question.present is None else question.present
        options, sent = self._options(question.split), self._sent(question.networks)
        self.exchange([Part(who, lambda i: Job("gradients", options, sent.home(i), Networks(stack, (i,))), take)])
        return losses, gradient

    def _alignment(self, question: Alignment) -> Tensor:
        """Both clients of a pair send their gradient half way between them; so many pairs at a time as memory allows."""
        sent = self._sent(question.networks)
        networks = sent.stack.detach()
        receivers, columns, senders = question.peers.pairs()
        low, high = torch.minimum(receivers, senders), torch.maximum(receivers, senders)
        pairs, where = torch.stack([low, high], 1).unique(dim=0, return_inverse=True)
        at_once = max(1, AT_ONCE // (2 * networks.shape[1] * networks.element_size()))
        values = [self._aligned(sent, chunk, question.split) for chunk in pairs.split(at_once) if len(chunk)]
        table = torch.zeros(question.peers.mask.shape, dtype=torch.float64)
        if values:
            table[receivers, columns] = torch.cat(values).double()[where]
        return table

    def _aligned(self, sent: Sent, pairs: Tensor, split: str) -> Tensor:
        """a of some pairs (P, 2) -> (P,)."""
        networks = sent.stack.detach()
        middle = (networks[pairs[:, 0]] + networks[pairs[:, 1]]) / 2
        gradients = torch.zeros(2 * len(pairs), networks.shape[1], dtype=networks.dtype)
        entries = by_owner(pairs.T.flatten(), self.roster.num_clients)

        def build(owner: int) -> Job:
            rows = tuple((entries[owner] % len(pairs)).tolist())
            return Job("gradients", self._options(split), sent.home(owner), Networks(middle, rows))

        def take(owner: int, told: Told) -> None:
            mine = entries[owner]
            gradients[mine] = got(told, "gradient", (len(mine), networks.shape[1]))

        self.exchange([Part(torch.tensor([len(mine) > 0 for mine in entries]), build, take)])
        one, other = gradients.split(len(pairs))
        return (one * other).sum(1)

    def _temperatures(self, temperature: Tensor, question: ImageLoss) -> Part:
        """Each client whose network somebody looks at finds how sure it may be."""
        sent, who = self._sent(question.networks), torch.zeros(len(temperature), dtype=torch.bool)
        stack = sent.stack.detach()
        who[question.peers.pairs()[2]] = True

        def take(i: int, told: Told) -> None:
            temperature[i] = got(told, "temperature", ()).to(temperature)

        options = self._options("validation")
        return Part(who, lambda i: Job("temperatures", options, sent.home(i), Networks(stack, (i,))), take)

    def _images(self, found: dict[str, Tensor], name: str, question: ImageLoss, temperature: Tensor) -> Part:
        sent, peers = self._sent(question.networks), question.peers
        stack = sent.stack.detach()
        rows, columns, senders = peers.pairs()
        entries = by_owner(rows, self.roster.num_clients)
        sizes = self.roster.sizes(question.split)
        sizes = sizes if question.whole else sizes.clamp(max=self.probe_size)
        options = {**self._options(question.split), "whole": question.whole}
        longest = int(sizes.max())
        found[name] = torch.full((*peers.mask.shape, longest, 1), torch.nan, dtype=stack.dtype)

        def build(owner: int) -> Job:
            used = senders[entries[owner]]
            tensors = {"temperature": temperature[used], **sent.home(owner)}
            return Job("images", options, tensors, Networks(stack, tuple(used.tolist())))

        def take(owner: int, told: Told) -> None:
            mine, size = entries[owner], int(sizes[owner])
            losses = got(told, "losses", (len(mine), size, -1)).to(stack)
            found[name] = _widened(found[name], losses.shape[-1])
            found[name][owner, columns[mine], :size] = losses

        who = torch.tensor([len(mine) > 0 for mine in entries]) & (sizes > 0)
        return Part(who, build, take)

    def _predictions(self, found: dict[str, Tensor], name: str, question: PredictionLoss) -> Part:
        """Whoever is silent has no images here: it follows the others."""
        sizes = self.roster.sizes(question.split)
        wire = Predicting(question.predictor, self.parts, question.offsets)
        found[name] = torch.full((len(sizes), int(sizes.max()), 1), torch.nan, dtype=wire.stack.dtype)

        def take(i: int, told: Told) -> None:
            losses = got(told, "losses", (int(sizes[i]), -1)).to(found[name])
            found[name] = _widened(found[name], losses.shape[-1])
            found[name][i, : len(losses)] = losses

        return Part(sizes > 0, lambda i: wire.job("predictions", i, {"split": question.split}), take)


class Predicting:
    """What clients predict with, client by client: for each predictor its own network, then those mixed with it."""

    def __init__(self, predictors: Ensemble | Predictor, parts: Parts, offsets: Tensor | None = None) -> None:
        self.predictors: tuple[Predictor, ...]
        self.weights: Tensor | None = None
        if isinstance(predictors, Ensemble):
            self.predictors, self.weights, self.offsets = predictors
        else:
            self.predictors, self.offsets = (predictors,), offsets
        self.sent = [Sent.of(each.networks, parts) for each in self.predictors]
        stacks = [each.stack.detach() for each in self.sent]
        self.stack = torch.cat(stacks) if len(stacks) > 1 else stacks[0]
        self.starts = [0, *accumulate(map(len, stacks))]
        """Where the stack of each predictor begins; those of mixtures over components are longer."""

    def job(self, verb: str, i: int, options: Mapping[str, Option]) -> Job:
        use, tensors = list[int](), dict[str, Tensor]()
        for number, (_, mixture) in enumerate(self.predictors):
            first = self.starts[number]
            use.append(first + i)
            tensors |= self.sent[number].home(i, f"/{number}")
            if mixture is not None:
                weights, peers = mixture
                share = weights[i].where(peers.mask[i], 0).double()
                share = share / share.sum().clamp(min=1e-30)
                used = share.nonzero().flatten()
                tensors[f"share/{number}"] = share[used]
                use += (first + peers.columns().expand_as(weights)[i, used]).tolist()
        if self.weights is not None:
            tensors["weights"] = self.weights[i]
        if self.offsets is not None:
            tensors["offsets"] = self.offsets[i]
        every = {**options, "predictors": len(self.predictors)}
        return Job(verb, every, tensors, Networks(self.stack, tuple(use)))


class _Asked(torch.autograd.Function):
    """Losses of networks where the data are; the gradient comes with them."""

    @staticmethod
    def forward(ctx: Any, stack: Tensor, asking: Asking, question: OwnLoss) -> Tensor:
        losses, gradient = asking.own_gradients(stack.detach(), question)
        ctx.save_for_backward(gradient)
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grads[0][:, None] * gradient, None, None


def by_owner(owners: Tensor, count: int) -> list[Tensor]:
    """Positions of each owner's entries."""
    order = owners.argsort(stable=True)
    return list(order.split(torch.bincount(owners, minlength=count).tolist()))


def _dtype(question: ImageLoss) -> torch.dtype:
    return next(iter(question.networks.values())).dtype


def _release(question: PairLoss | OwnLoss, i: int) -> dict[str, Tensor]:
    """Which release of a private client's losses this is; nothing of others'."""
    return {} if question.release is None else {RELEASE: question.release[i]}


def _of(present: Tensor | None, values: Tensor) -> Tensor:
    return values if present is None else values.where(present, 0)


def _widened(table: Tensor, positions: int) -> Tensor:
    """A table (..., 1) of nan for as many positions; as it is when it is wide enough."""
    return table.repeat(*(1,) * (table.dim() - 1), positions) if table.shape[-1] < positions else table

"""Sharded: ranks that share the clients' networks, too, so that all of them together need not fit into one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.errors import USER_ERRORS, ClientError, InputError
from scool_ppl.far.asking import by_owner
from scool_ppl.far.exchange import got
from scool_ppl.far.host import Host, reason
from scool_ppl.far.ranks import Ranks, gathered
from scool_ppl.far.wire import Job, Networks, flat
from scool_ppl.graph.stacks import carried, mesh_of, part_of, pieces, rows_here, shared, unshared
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Coupling, Evaluation, Facts, Plan, Pull, Trained, Wrapper
from scool_ppl.train.demands import MEANING, Demand, check_demands
from scool_ppl.train.executors.executor import STARTED, who_started, with_started
from scool_ppl.train.faults import check_held_out, check_probed
from scool_ppl.train.privacy.evidence import differentiable
from scool_ppl.train.questions import (
    Ensemble,
    ImageLoss,
    LabelEntropy,
    Mixture,
    OwnLoss,
    PairLoss,
    Params,
    PredictionLoss,
    Predictor,
    Question,
    check_whose,
)

Found = TypeVar("Found")


class ShardedClients(Wrapper):
    """Clients shared by ranks as their networks are: a rank trains and holds those of its own clients, and a stack of
    networks is a tensor of which each rank has some rows (`graph/stacks.py`).

    Where clients look at others, all networks pass by in pieces, and every rank tries them on the data of its clients. What
    takes the networks of all at every step of training, or gradients of one client's loss in another's network, is refused.
    Every rank must run the same driver.
    """

    def __init__(self, clients: Clients, ranks: Ranks) -> None:
        count, world = clients.num_clients, ranks.world
        if not part_of(count, world - 1, world):
            most = -(-count // part_of(count, 0, world).stop)
            raise InputError(
                f"the networks of {count} clients were to be shared by {world} processes, of which {world - most} would "
                f"have none; use --nproc-per-node {most}"
            )
        if clients.device.type != "cpu":
            raise InputError(
                f"networks on {clients.device} were to be shared by processes, expected cpu; use one process"
            )
        if clients.privacy is not None or clients.parts.private:
            raise InputError(
                "networks that are private, in part or by how they train, were to be shared by processes, expected none "
                "that are; leave --shard out"
            )
        super().__init__(clients)
        self.ranks, self.network = ranks, clients.network
        self.here = part_of(count, ranks.rank, world)
        self.mesh = mesh_of(world)
        self.own = clients.for_federation(clients.federation.select(self.here))
        self.host = Host(self.own)
        self.own.forward()  # which chooses the executor
        self.use_executor(gathered(self.own.executor_name, world)[0])

    def __repr__(self) -> str:
        return f"ShardedClients({self.num_clients} networks of {self.bytes_per_model} bytes, {len(self.here)} of them here)"

    @property
    def refused(self) -> Mapping[Demand, str]:
        """Everything: a rank has the networks of its own clients alone, of the others' a piece at a time."""
        return dict.fromkeys(MEANING, "which processes that share the networks cannot; leave --shard out")

    @property
    def executor_name(self) -> str:
        return self.own.executor_name

    def use_executor(self, name: str) -> None:
        self.own.use_executor(name)

    def facts(self) -> Facts:
        """As in one process, where the run may go on."""
        return self.clients.facts()

    def for_federation(self, federation: Federation) -> Self:
        raise InputError("clients whose networks are shared by processes were to get other data; use one process")

    def init(self, seed: int) -> Params:
        return self._all(self.own.init(seed))

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        """Local training of each rank's clients."""
        check_demands(self.refused, plan.demands)
        assert not isinstance(plan.pull, Coupling)
        pull = None if plan.pull is None else Pull(self._mine(plan.pull.centre), rows_of(plan.pull.strength, self.here))
        absent = tuple(i - self.here.start for i in plan.absent if i in self.here)
        mine, state = self._mine(params), self._mine(optimizer_state or {})
        trained = self._together(lambda: self.own.train(mine, state, plan._replace(absent=absent, pull=pull)))
        loss, moved = self._gathered(trained.loss), self._gathered(trained.moved)
        return Trained(self._all(trained.params), self._state(trained.optimizer_state), loss, moved)

    def _state(self, state: Params) -> Params:
        """The optimiser's state of all clients; those of a rank may have none yet, and zeros stand in their place."""
        count = len(self.here)
        buffers = {name: value for name, value in state.items() if name != STARTED}
        heads = gathered({name: (value.shape[1:], value.dtype) for name, value in buffers.items()}, self.ranks.world)
        known = {name: head for each in heads for name, head in each.items()}
        full = {
            name: buffers[name] if name in buffers else torch.zeros(count, *shape, dtype=dtype)
            for name, (shape, dtype) in known.items()
        }
        return with_started(self._all(full), self._gathered(who_started(state, count)))

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        """The answers to all questions of a round, on the probes of one process."""
        when: dict[str, Any] = {"seed": seed, "round": round}
        for question in questions.values():
            if not isinstance(question, LabelEntropy | PredictionLoss):
                self._check(question.networks)
        return {name: self._answer(question, when) for name, question in questions.items()}

    def _check(self, networks: Params) -> None:
        """Raises InputError where some are nobody's."""
        if len(next(iter(networks.values()))) != self.num_clients:
            check_demands(self.refused, ["components"])

    def _answer(self, question: Question, when: dict[str, Any]) -> Tensor:
        if isinstance(question, PairLoss):
            return self._pair_loss(question, when)
        if isinstance(question, ImageLoss):
            return self._image_loss(question, when)
        if isinstance(question, PredictionLoss):
            return self._prediction_loss(question, when)
        if isinstance(question, OwnLoss) and not differentiable(question):
            if question.split == "validation":
                check_held_out(self.roster.sizes("validation") > 0, self.names)
            present = None if question.present is None else rows_of(question.present, self.here)
            asked = question._replace(networks=self._mine(question.networks), present=present)
            return self._gathered(self._together(lambda: self.own.answer({"own": asked}, **when)["own"]))
        if isinstance(question, LabelEntropy):
            return self.clients.answer({"entropy": question}, **when)["entropy"]
        check_demands(self.refused, ["gradients"])
        raise InputError(f"unknown question {type(question).__name__}; ask one of `train.Question`")

    def _pair_loss(self, question: PairLoss, when: dict[str, Any]) -> Tensor:
        """Whoever has the data computes the loss of each network that a pair has with them, as it passes by."""
        check_whose(question.whose)
        peers, options = question.peers, {**when, "split": question.split}
        rows, columns, senders = peers.pairs()
        data, model = (senders, rows) if question.whose == "receiver" else (rows, senders)
        if question.split == "validation":
            check_held_out(self.roster.sizes("validation") > 0, self.names)
        check_probed(self.roster.sizes(question.split) == 0, data, self.names)
        stack = flat(question.networks).detach()
        table = torch.zeros(peers.mask.shape, dtype=stack.dtype)

        def take(entries: Tensor, told: Mapping[str, Tensor]) -> None:
            table[rows[entries], columns[entries]] = got(told, "loss", (len(entries),)).to(table)

        self._ask("losses", stack, data, model, options, take)
        carried(dist.all_reduce, table)  # every entry is 0 on all ranks but one
        return table

    def _image_loss(self, question: ImageLoss, when: dict[str, Any]) -> Tensor:
        peers, options = question.peers, {**when, "split": question.split, "whole": question.whole}
        rows, columns, senders = peers.pairs()
        stack = flat(question.networks).detach()
        temperature = (
            self._temperatures(stack, when) if question.calibrated else torch.ones(len(stack), dtype=stack.dtype)
        )
        sizes = self.roster.sizes(question.split)
        sizes = sizes if question.whole else sizes.clamp(max=self.own.probe_size)
        found: dict[int, Tensor] = {}

        def take(entries: Tensor, told: Mapping[str, Tensor]) -> None:
            for entry, losses in zip(entries.tolist(), got(told, "losses"), strict=True):
                found[entry] = losses

        asked = (sizes > 0)[rows]
        self._ask("images", stack, rows, senders, options, take, asked, temperature)
        positions = max(gathered(max((value.shape[-1] for value in found.values()), default=1), self.ranks.world))
        table = torch.full(
            (len(self.here), peers.mask.shape[1], int(sizes.max()), positions), torch.nan, dtype=stack.dtype
        )
        for entry, losses in found.items():
            table[rows[entry] - self.here.start, columns[entry], : len(losses)] = losses
        return self._gathered(table)

    def _temperatures(self, stack: Tensor, when: dict[str, Any]) -> Tensor:
        """How sure each network may be, as its own client finds."""
        _, own = rows_here(stack)
        requests = {
            self.names[i]: (Job("temperatures", {**when, "split": "validation"}, {}, Networks(own, (place,))),)
            for place, i in enumerate(self.here)
        }
        replies = self._together(lambda: self._replies(requests))
        return self._gathered(torch.stack([reply[0]["temperature"] for reply in replies.values()]))

    def _ask(
        self,
        verb: str,
        stack: Tensor,
        data: Tensor,
        model: Tensor,
        options: Mapping[str, Any],
        take: Callable[[Tensor, Mapping[str, Tensor]], None],
        asked: Tensor | None = None,
        temperature: Tensor | None = None,
    ) -> None:
        """Asks this rank's clients about entries (N,), each a network `model` on the data of `data`; hands out answers."""
        entries = [mine if asked is None else mine[asked[mine]] for mine in by_owner(data, self.num_clients)]

        def of_piece(start: int, networks: Tensor) -> None:
            requests, those = {}, {}
            for i in self.here:
                mine = entries[i][(model[entries[i]] >= start) & (model[entries[i]] < start + len(networks))]
                if len(mine):
                    tensors = {} if temperature is None else {"temperature": temperature[model[mine]]}
                    use = Networks(networks, tuple((model[mine] - start).tolist()))
                    requests[self.names[i]], those[self.names[i]] = (Job(verb, options, tensors, use),), mine
            for name, reply in self._replies(requests).items():
                take(those[name], reply[0])

        for start, networks in pieces(stack):
            self._together(lambda start=start, networks=networks: of_piece(start, networks))  # type: ignore[misc]

    def _replies(self, requests: Mapping[str, tuple[Job, ...]]) -> dict[str, Any]:
        if not requests:
            return {}
        replies, faults = self.host.handle(requests)
        if faults:
            raise ClientError(faults)
        return dict(replies)

    def _prediction_loss(self, question: PredictionLoss, when: dict[str, Any]) -> Tensor:
        offsets = None if question.offsets is None else rows_of(question.offsets, self.here)
        asked = PredictionLoss(self._predictor(question.predictor), question.split, offsets)
        own = self._together(lambda: self.own.answer({"own": asked}, **when)["own"])
        return self._padded(own, int(self.roster.sizes(question.split).max()))

    def evaluate(self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None) -> Evaluation:
        mine = self._predicting(params, mixture)
        found = self._together(lambda: self.own.evaluate(mine, split))
        return Evaluation(*self._gathered(torch.stack(list(found), 1)).T)

    def evaluations(self, predictors: Sequence[Predictor], split: str = "test") -> tuple[Evaluation, ...]:
        return tuple(self.evaluate(each.networks, split, each.mixture) for each in predictors)

    def predict(
        self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None
    ) -> tuple[Tensor, Tensor]:
        mine = self._predicting(params, mixture)
        outputs, mask = self._together(lambda: self.own.predict(mine, split))
        longest = int(self.roster.sizes(split).max())
        return self._padded(outputs, longest, 0), self._padded(mask, longest, 0)

    def _predicting(self, params: Params | Ensemble, mixture: Mixture | None) -> Params | Ensemble:
        if not isinstance(params, Ensemble):
            return self._predictor(Predictor(params, mixture)).networks
        offsets = None if params.offsets is None else rows_of(params.offsets, self.here)
        predictors = tuple(map(self._predictor, params.predictors))
        return Ensemble(predictors, rows_of(params.weights, self.here), offsets)

    def _predictor(self, predictor: Predictor) -> Predictor:
        """The part of it that is here."""
        if predictor.mixture is not None:
            check_demands(self.refused, ["mixtures"])
        self._check(predictor.networks)
        return Predictor(self._mine(predictor.networks))

    def _mine(self, stacks: Params) -> Params:
        return {name: rows_of(value, self.here) for name, value in stacks.items()}

    def _all(self, own: Params) -> Params:
        return {name: shared(value, self.num_clients, self.mesh) for name, value in own.items()}

    def _gathered(self, own: Tensor) -> Tensor:
        """Numbers of all clients, from those of each rank's, (K, ...)."""
        return unshared(shared(own, self.num_clients, self.mesh))

    def _padded(self, own: Tensor, longest: int, fill: float = torch.nan) -> Tensor:
        """The same of numbers for each image, (K, n, ...)."""
        wide = max(gathered(own.shape[2:], self.ranks.world))
        full = own.new_full((len(own), longest, *wide), fill)
        full[:, : own.shape[1]] = own
        return self._gathered(full)

    def _together(self, work: Callable[[], Found]) -> Found:
        """What these clients come to; where those of any rank fail, all ranks say so."""
        found, told = None, None
        try:
            found = work()
        except (*USER_ERRORS, ClientError) as error:
            told = getattr(error, "reasons", None), str(error) if isinstance(error, InputError) else reason(error)
        every = [each for each in gathered(told, self.ranks.world) if each is not None]
        if reasons := {name: why for faults, _ in every for name, why in (faults or {}).items()}:
            raise ClientError(reasons)
        if every:
            raise InputError(every[0][1])
        return found  # type: ignore[return-value]


def rows_of(stack: Tensor, here: range) -> Tensor:
    """The rows of a stack that are here, of one that every rank has whole, too."""
    rows, own = rows_here(stack)
    return own if rows == here else own[here.start - rows.start : here.stop - rows.start]

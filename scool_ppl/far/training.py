"""Training elsewhere: a round in one trip, or step by step where clients take their steps together."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from scool_ppl.base.randomness import generator
from scool_ppl.data.roster import Roster
from scool_ppl.far.exchange import Exchange, Part, Told, got
from scool_ppl.far.wire import HOME, STATE, Job, Networks, Option, Sent, Shapes, flat, shaped
from scool_ppl.train.batches import Batches, batch_sizes, batch_table, last_epoch
from scool_ppl.train.contract import Coupling, Plan, Pull, Trained
from scool_ppl.train.executors.executor import STARTED, who_started, with_started
from scool_ppl.train.networks.parts import Parts
from scool_ppl.train.privacy.account import STEPS
from scool_ppl.train.questions import Params


class Training:
    """One round of K clients: networks theta (K, P), buffers of their optimisers, and what each round of it came to."""

    def __init__(
        self,
        exchange: Exchange,
        roster: Roster,
        batch_size: int,
        shapes: Shapes,
        private: Shapes,
        params: Params,
        state: Params,
        plan: Plan,
    ) -> None:
        self.exchange, self.roster, self.shapes, self.plan = exchange, roster, shapes, plan
        self.private, count, rows = private, roster.num_clients, roster.sizes("train").tolist()
        self.theta, self.homes = Sent.of(params, Parts(private=tuple(private)))
        self.made = state[STEPS].clone() if STEPS in state else None
        """(K,): of private clients, the steps that each has made; its host counts them."""
        state = {key: value for key, value in state.items() if key != STEPS}
        self.started = who_started(state, count).clone()
        self.buffers = {key: value.clone() for key, value in state.items() if key != STARTED}
        self.loss = torch.full((count,), torch.nan, dtype=self.theta.dtype)
        sizes = {each: batch_sizes(each, batch_size, epochs=plan.epochs, steps=plan.steps) for each in set(rows)}
        self.sizes = pad_sequence([sizes[each] for each in rows], batch_first=True)
        """(K, S): images in each batch of each client, 0 after its last."""
        self.per_epoch = (roster.sizes("train") / batch_size).ceil()
        self.present = torch.ones(count, dtype=torch.bool)
        self.present[list(plan.absent)] = False
        self.moves = (self.sizes > 0) & self.present[:, None]

    def alone(self, pull: Pull | None) -> Trained:
        """Everybody on its own data, in one trip."""
        self._round(self.moves.any(1), pull, kept=self.plan.round)
        return self._outcome(self.loss)

    def in_lock_step(self, coupling: Coupling) -> Trained:
        """Everybody is pulled to where the others are: a trip a step."""
        losses = torch.zeros(self.sizes.shape, dtype=self.theta.dtype)
        for step in range(self.sizes.shape[1]):
            self._round(self.moves[:, step], coupling.held(shaped(self.theta, self.shapes)), at=step)
            losses[:, step] = self.loss.nan_to_num(0)
        return self._outcome(last_epoch(losses, self.sizes * self.moves, self.moves, self.per_epoch))

    def by_shares(self, pull: Pull | None) -> Trained:
        """Networks descend on others' data, too: whoever has these sends gradients, two trips a step."""
        table, losses = self._table(), torch.zeros(self.sizes.shape, dtype=self.theta.dtype)
        samples = (self.sizes[table.index, table.targets] * (table.weight != 0)).sum(-1)
        self.moves = (table.weight != 0).any(-1)
        for step in range(self.sizes.shape[1]):
            gradient = self._gradients(table.each(itemgetter((slice(None), step))), losses[:, step])
            if pull is not None:
                gradient += pull.strength[:, None] * (self.theta - flat(pull.centre))
            self._step(self.moves[:, step], gradient)
        return self._outcome(last_epoch(losses, samples, self.moves, self.per_epoch))

    def _table(self) -> Batches:
        """Whose which batch counts how much at which step: (K, S, M) of client, number of its batch, and weight."""
        shares = self.plan.shares
        assert shares is not None
        random = generator(self.plan.seed, "share", self.plan.round) if shares.sampled else None
        table = batch_table(self.sizes, shares.others, shares.own, random)
        return table._replace(weight=table.weight * self.present[:, None, None])

    def _gradients(self, table: Batches, losses: Tensor) -> Tensor:
        """The gradient (K, P) of each network at a step, and its loss, added to `losses` (K,)."""
        users, columns = (table.weight != 0).nonzero(as_tuple=True)
        owners, numbers, weights = (field[users, columns] for field in (table.index, table.targets, table.weight))
        total, who = torch.zeros_like(self.theta), torch.zeros(len(self.theta), dtype=torch.bool)
        who[owners] = True
        entries = [(owners == owner).nonzero().flatten() for owner in range(len(who))]

        def build(owner: int) -> Job:
            mine = entries[owner]
            networks = Networks(self.theta, tuple(users[mine].tolist()))
            return Job("gradients", self._options, {"batch": numbers[mine]}, networks)

        def take(owner: int, told: Told) -> None:
            mine, size = entries[owner], self.theta.shape[1]
            weight = weights[mine].to(total)
            total.index_add_(0, users[mine], weight[:, None] * got(told, "gradient", (len(mine), size)))
            losses.index_add_(0, users[mine], weight * got(told, "loss", (len(mine),)))

        self.exchange([Part(who, build, take)])
        return total

    @property
    def _options(self) -> dict[str, Option]:
        plan = self.plan
        return {"epochs": plan.epochs, "steps": plan.steps, "seed": plan.seed, "round": plan.round}

    def _round(self, who: Tensor, pull: Pull | None, at: int | None = None, kept: int | None = None) -> None:
        """Local training of these clients, or its step `at`."""
        theta, centre = self.theta, None if pull is None else flat(pull.centre)
        options = self._options if at is None else {**self._options, "at": at}
        after, homes = theta.clone(), self.homes
        self.homes = None if homes is None else homes.clone()

        def build(i: int) -> Job:
            tensors = {"theta": theta[i], **Sent(theta, homes).home(i), **self._state(i)}
            if self.made is not None:
                tensors[STEPS] = self.made[i].clone()
            if self.plan.importance is not None:
                tensors["importance"] = self.plan.importance[i]
            if pull is not None and centre is not None:
                tensors |= {"centre": centre[i], "strength": pull.strength[i].to(theta)}
            return Job("train", options, tensors)

        self.exchange([Part(who, build, partial(self._moved, after))], kept=kept)
        self.theta = after

    def _step(self, who: Tensor, gradient: Tensor) -> None:
        """One step of these clients' optimisers."""
        theta, after = self.theta, self.theta.clone()

        def build(i: int) -> Job:
            return Job("step", {}, {"theta": theta[i], "gradient": gradient[i], **self._state(i)})

        self.exchange([Part(who, build, partial(self._moved, after))])
        self.theta = after

    def _state(self, i: int) -> dict[str, Tensor]:
        return {STATE + key: value[i].clone() for key, value in self.buffers.items()} if bool(self.started[i]) else {}

    def _moved(self, after: Tensor, i: int, told: Told) -> None:
        """Where a client has come to."""
        after[i] = got(told, "theta", after[i].shape)
        if self.made is not None:
            self.made[i] = got(told, STEPS, ())
        if self.homes is not None:
            self.homes[i] = got(told, HOME, self.homes[i].shape)
        if "loss" in told:
            self.loss[i] = got(told, "loss", ())
        for key, value in told.items():
            if key.startswith(STATE):
                entry = key.removeprefix(STATE)
                if entry not in self.buffers:
                    self.buffers[entry] = value.new_zeros(len(after), *value.shape)
                self.buffers[entry][i] = got(told, key, self.buffers[entry][i].shape)
                self.started[i] = True

    def _outcome(self, loss: Tensor) -> Trained:
        state = with_started(self.buffers, self.started) if self.buffers else {}
        if self.made is not None:
            state = {**state, STEPS: self.made}
        own = {} if self.homes is None else shaped(self.homes, self.private)
        return Trained({**shaped(self.theta, self.shapes), **own}, state, loss, self.moves.any(1))

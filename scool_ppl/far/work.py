"""Work: one thing that is asked of some clients of a host, as stacks of all of them; and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.far.home import Home
from scool_ppl.far.wire import HOME, STATE, Job, Networks, Option, Shapes, flat, shaped
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.contract import Plan, Pull
from scool_ppl.train.executors.executor import STARTED, with_started
from scool_ppl.train.questions import Ensemble, Params, Predictor

Found = dict[str, dict[str, Tensor]]


class Layout(NamedTuple):
    """Where a host's clients stand in its stacks, and which parameters their networks have.

    shapes: of what cooperates. private: of what does not, which is in `home`, or travels where that is None.
    """

    place: Mapping[str, int]
    shapes: Shapes
    private: Shapes
    dtype: torch.dtype
    home: Home | None


class Work:
    """Jobs of one verb, with the same options, by client. Stacks have a row for each client of the host, 0 of those who
    were not asked.
    """

    def __init__(self, layout: Layout, jobs: Mapping[str, Job]) -> None:
        self.layout, self.jobs = layout, jobs
        self.first = next(iter(jobs.values()))
        self.rows = [layout.place[name] for name in jobs]
        """Where those who are asked stand."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.jobs)

    def option(self, name: str) -> Option:
        return self.first.options.get(name)

    def number(self, name: str) -> int:
        """An option that is a whole number, 0 where it is not there."""
        return int(self.option(name) or 0)

    @property
    def split(self) -> str:
        return str(self.option("split"))

    @property
    def plan(self) -> Plan:
        """The part of a plan that is the same for all."""
        steps = self.option("steps")
        return Plan(
            self.number("epochs"), None if steps is None else int(steps), self.number("seed"), self.number("round")
        )

    def each(self, told: Callable[[str, int], dict[str, Tensor]]) -> Found:
        """The answers of those who are asked, by name and where they stand."""
        return {name: told(name, i) for name, i in zip(self.jobs, self.rows, strict=True)}

    def stack(self, key: str) -> Tensor:
        """What each client was sent."""
        return self._placed(torch.stack([job.tensors[key] for job in self.jobs.values()]))

    def stack_if_sent(self, key: str) -> Tensor | None:
        return self.stack(key) if key in self.first.tensors else None

    def _placed(self, rows: Tensor) -> Tensor:
        if self.rows == [*range(len(self.layout.place))]:
            return rows
        stack = rows.new_zeros(len(self.layout.place), *rows.shape[1:])
        stack[self.rows] = rows
        return stack

    def networks(self) -> Params:
        """The network that each is to train."""
        return self.completed(self.stack("theta"))

    def pull(self) -> Pull | None:
        """What it is pulled to while it does."""
        centre = self.stack_if_sent("centre")
        return None if centre is None else Pull(shaped(centre, self.layout.shapes), self.stack("strength"))

    def state(self) -> Params:
        """The optimisers' state, with a note of who has none."""
        count = len(self.layout.place)
        sent = {
            name: {key.removeprefix(STATE): value for key, value in job.tensors.items() if key.startswith(STATE)}
            for name, job in self.jobs.items()
        }
        have = {name: job for name, job in self.jobs.items() if sent[name]}
        for name, own in self._belongings(have).items():
            sent[name] |= {key.removeprefix(STATE): value for key, value in own.items() if key.startswith(STATE)}
        state, started = Params(), torch.zeros(count, dtype=torch.bool)
        for name in have:
            started[self.layout.place[name]] = True
            for key, value in sent[name].items():
                if key not in state:
                    state[key] = value.new_zeros(count, *value.shape)
                state[key][self.layout.place[name]] = value
        return with_started(state, started)

    def _belongings(self, jobs: Mapping[str, Job], key: str = HOME) -> dict[str, Params]:
        """Of each of these what is private, and what belongs to it."""
        if not self.layout.private:
            return {}
        if self.layout.home is not None:
            return {name: self.layout.home.find(name, job.tensors[key]) for name, job in jobs.items()}
        rows = {name: shaped(job.tensors[key][None], self.layout.private) for name, job in jobs.items()}
        return {name: {leaf: value[0] for leaf, value in row.items()} for name, row in rows.items()}

    def completed(self, stack: Tensor, key: str = HOME) -> Params:
        """Flat networks (N, P), and behind what cooperates what is private of all clients of the host, (n, ...)."""
        params, every = shaped(stack, self.layout.shapes), self._belongings(self.jobs, key)
        for leaf, shape in self.layout.private.items():
            params[leaf] = torch.zeros(len(self.layout.place), *shape, dtype=self.layout.dtype)
            for name, own in every.items():
                params[leaf][self.layout.place[name]] = own[leaf]
        return params

    def answered(self, networks: Params, state: Params) -> Found:
        """Networks of all clients of the host, and the state of their optimisers, as the driver gets them."""
        home = self.layout.home
        told = {"theta": flat({name: networks[name] for name in self.layout.shapes})}
        started = state.get(STARTED)
        own = {name: networks[name] for name in self.layout.private}
        buffers = {STATE + key: value for key, value in state.items() if key != STARTED}
        if own and home is None:
            told[HOME] = flat(own)
        belong = {key for key in buffers if own and home is not None and _leaf(key) in own}

        def of(whose: str, i: int) -> dict[str, Tensor]:
            kept = buffers if started is None or started[i] else {}
            reply = {**told, **{key: value for key, value in kept.items() if key not in belong}}
            reply = {name: value[i] for name, value in reply.items()}
            if own and home is not None:
                mine = {**own, **{key: value for key, value in kept.items() if key in belong}}
                reply[HOME] = home.keep(whose, {name: value[i].cpu() for name, value in mine.items()})
            return reply

        return self.each(of)

    def guests(self) -> tuple[Tensor, Peers]:
        """The networks that these clients look at, as a stack, and who looks at which of its rows: (K, M)."""
        stack, uses = self.sent()
        count, sizes = len(self.layout.place), torch.tensor([len(rows) for rows in uses])
        whose = torch.tensor(self.rows).repeat_interleave(sizes)
        rows = torch.tensor([row for use in uses for row in use], dtype=torch.long)
        used, models = rows.unique(return_inverse=True)
        stack = stack if len(used) == len(stack) else stack[used]
        many, rising = 2 * len(rows) >= len(uses) * len(used), (rows.diff() > 0) | (whose.diff() != 0)
        if many and bool(rising.all()):  # all at all, at once, in their order
            mask = torch.zeros(count, len(used), dtype=torch.bool)
            mask[whose, models] = True
            return stack, Peers(mask)
        columns = torch.arange(len(rows)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        senders = torch.zeros(count, int(sizes.max()), dtype=torch.long)
        mask = torch.zeros(senders.shape, dtype=torch.bool)
        senders[whose, columns], mask[whose, columns] = models, True
        return stack, Peers(mask, senders)

    def sent(self) -> tuple[Tensor, list[tuple[int, ...]]]:
        """All networks that came, as one stack, and the rows of it that each client was sent."""
        every = [networks(job) for job in self.jobs.values()]
        stacks = {id(stack): stack for stack, _ in every}
        if len(stacks) == 1:
            return every[0].stack, [use for _, use in every]
        starts, start = dict[int, int](), 0
        for known, stack in stacks.items():
            starts[known], start = start, start + len(stack)
        return torch.cat(list(stacks.values())), [tuple(starts[id(stack)] + row for row in use) for stack, use in every]

    def own(self) -> Params:
        """The one network that each client was sent."""
        stack, uses = self.sent()
        return self.completed(self._placed(stack[[rows[0] for rows in uses]]))

    def predictors(self) -> Ensemble | Predictor:
        """What clients predict with: a network, a mixture, or an ensemble; the networks of guests stand behind theirs."""
        predictors = tuple(self._predictor(number) for number in range(self.number("predictors") or 1))
        weights = self.stack_if_sent("weights")
        return predictors[0] if weights is None else Ensemble(predictors, weights, self.stack_if_sent("offsets"))

    def _predictor(self, number: int) -> Predictor:
        """The `number`-th predictor of each: of its rows of networks the first is its own, the others are mixed."""
        count, (stack, uses) = len(self.layout.place), self.sent()
        own, guests = list[int](), list[int]()
        mixed = [[len(job.tensors.get(f"share/{n}", ())) for n in range(number + 1)] for job in self.jobs.values()]
        width = max(sizes[-1] for sizes in mixed)
        weights = torch.zeros(count, width, dtype=torch.float64)
        senders = torch.zeros(count, width, dtype=torch.long)
        for i, job, rows, sizes in zip(self.rows, self.jobs.values(), uses, mixed, strict=True):
            first, size = sum(sizes[:-1]) + number, sizes[-1]
            own.append(rows[first])
            if size:
                weights[i, :size] = job.tensors[f"share/{number}"]
                senders[i, :size] = torch.arange(size) + count + len(guests)
                guests += rows[first + 1 : first + 1 + size]
        networks = torch.cat([self._placed(stack[own]), stack[guests]]) if guests else self._placed(stack[own])
        params = self.completed(networks, f"{HOME}/{number}")
        return Predictor(params, (weights, Peers(weights > 0, senders)) if width else None)


def networks(job: Job) -> Networks:
    """The networks of a job that has some."""
    if job.networks is None:
        raise InputError(f"a request to '{job.verb}' came without networks, expected some; ask again")
    return job.networks


def _leaf(key: str) -> str:
    """The parameter that a buffer of an optimiser belongs to."""
    return key.removeprefix(STATE).partition("/")[2]

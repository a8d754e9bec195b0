"""Host: where the data are. It answers the requests of a driver over clients of its own; no row of data goes out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from scool_ppl.base.describe import feed
from scool_ppl.data.reading import SPLITS
from scool_ppl.errors import USER_ERRORS, InputError, unknown
from scool_ppl.far.home import SEAL, Home
from scool_ppl.far.wire import HOME, Answers, Description, Job, Networks, Reply, Request, flat, shaped
from scool_ppl.graph.candidates import Peers
from scool_ppl.tasks.named import plain, task_of, written
from scool_ppl.train.batches import Batches, Probe, labelled, padded
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Plan, Pull
from scool_ppl.train.executors.executor import STARTED, with_started
from scool_ppl.train.privacy.account import STEPS
from scool_ppl.train.privacy.evidence import noise_of, refuse
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Ensemble, Mixture, Params, PredictionLoss, Predictor

Work = dict[str, Job]
Found = dict[str, dict[str, Tensor]]
EXACT = {
    "gradients": "gradients of losses",
    "temperatures": "temperatures of networks",
    "images": "losses image by image",
    "predictions": "losses image by image, by which clients choose together what they deploy",
}
"""Verbs whose answers cannot be noised: a host whose clients noise their evidence does none of them, whoever asks."""
RELEASE = "release"
"""How many releases of losses a private client has made before."""
STATE = "state/"
"""What the names of an optimiser's tensors begin with."""


class Host:
    """Clients of one place, of one network, with their own optimiser and batches.

    What is private stays in `home`, on disk where there is a folder for it; keeps=False sends it to the driver, and back,
    as processes of one simulation do. What is frozen stays here either way.
    """

    def __init__(self, clients: Clients, *, keeps: bool = True, home: Path | None = None) -> None:
        self.clients, self._moved = clients, dict[str, Clients]()
        self.place = {name: i for i, name in enumerate(clients.names)}
        self.parts, leaves = clients.parts, clients.parameters()
        self.shapes = {name: value.shape for name, value in self.parts.cooperating(leaves).items()}
        self.private = {name: value.shape for name, value in self.parts.at_home(leaves).items()}
        self.dtype = next(iter(leaves.values())).dtype
        self.home = Home(home) if keeps else None
        self._batches: tuple[Plan, Batches] | None = None
        self.verbs: dict[str, Callable[[Clients, Work], Found]] = {
            "init": self._init,
            "train": self._train,
            "losses": self._losses,
            "gradients": self._gradients,
            "step": self._step,
            "temperatures": self._temperatures,
            "images": self._images,
            "predictions": self._predictions,
            "evaluate": self._evaluate,
            "predict": self._predict,
        }

    def describe(self) -> dict[str, Description]:
        """What each client says of itself; the executor is settled by then."""
        clients, federation = self.clients, self.clients.federation
        forward, roster, leaves = clients.forward(), clients.roster, clients.parameters()
        privacy = None if clients.privacy is None else asdict(clients.privacy)
        facts = {
            name: told for name, told in clients.facts().items() if name not in ("number of clients", "client", "data")
        }
        targets = [federation.labels(i, rows) for i, rows in enumerate(federation.train)]
        dtype = next(iter(leaves.values())).dtype
        entropy = federation.task.marginal(targets, dtype).double().tolist()
        return {
            name: Description(
                rows=tuple(roster.rows[:, i].tolist()),
                counts=tuple(tuple(each) for each in roster.counts[:, i].tolist()),
                input_shape=roster.input_shape,
                tokens=roster.tokens,
                kind=roster.kind,
                task=written(federation.task) if plain(federation.task) == federation.task else None,
                statistics=tuple(federation.task.statistics(targets[i]).tolist()),
                entropy=entropy[i],
                network=tuple((leaf, tuple(shape)) for leaf, shape in self.shapes.items()),
                dtype=str(dtype).removeprefix("torch."),
                bytes_per_model=clients.bytes_per_model,
                draws_noise=clients.draws_noise,
                batch_size=clients.batch_size,
                probe_size=clients.probe_size,
                executor=clients.executor_name if forward else "",
                fingerprint=self._fingerprint(i),
                facts=facts,
                privacy=privacy,
                private=self._stand_in,
            )
            for name, i in self.place.items()
        }

    @property
    def _stand_in(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What a driver has of private parts."""
        if self.home is not None:
            return ((SEAL, (4,)),) if self.private else ()
        return tuple((name, tuple(shape)) for name, shape in self.private.items())

    def _fingerprint(self, client: int) -> str:
        """SHA-256 of a client's data: inputs, targets as it calls them, and what they are used for."""
        federation, found = self.clients.federation, hashlib.sha256()
        for split in SPLITS:
            rows = getattr(federation, split)[client]
            feed(found, (split, federation.inputs[rows], federation.labels(client, rows)))
        return found.hexdigest()

    def handle(self, requests: Mapping[str, Request]) -> Answers:
        """The replies of these clients; where one of them raises, the others are asked again without it."""
        strangers = [name for name in requests if name not in self.place]
        if strangers:
            raise unknown("client of this host", strangers[0], self.place)
        try:
            return Answers(self._together(requests), {})
        except USER_ERRORS as error:
            if len(requests) == 1:
                return Answers({}, dict.fromkeys(requests, reason(error)))
        each = [self.handle({name: request}) for name, request in requests.items()]
        return Answers(
            {name: reply for one in each for name, reply in one.replies.items()},
            {name: fault for one in each for name, fault in one.faults.items()},
        )

    def _together(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        """Jobs that are alike are done for all clients at once."""
        alike: dict[tuple[object, ...], dict[str, int]] = {}
        for name, request in requests.items():
            for number, job in enumerate(request):
                kind = (number, job.verb, *sorted(job.options.items()))
                alike.setdefault(kind, {})[name] = number
        found: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in requests}
        for names in alike.values():
            work = {name: requests[name][number] for name, number in names.items()}
            job = next(iter(work.values()))
            if job.verb not in self.verbs:
                raise unknown("verb", job.verb, self.verbs)
            self._check_private(job)
            for name, told in self.verbs[job.verb](self._clients(job), work).items():
                found[name][names[name]] = {key: value.detach().cpu() for key, value in told.items()}
        return {name: tuple(told[number] for number in range(len(told))) for name, told in found.items()}

    def _check_private(self, job: Job) -> None:
        """Raises InputError where private clients would hand out what is not accounted for."""
        privacy = self.clients.privacy
        if privacy is None:
            return
        if privacy.evidence_noise is not None and job.verb in EXACT:
            refuse(EXACT[job.verb])
        if "batch" in job.tensors or "at" in job.options:
            raise InputError("a private client was asked for a single step, expected rounds of training; ask for these")

    def _clients(self, job: Job) -> Clients:
        """With the executor and the task that the driver says are everybody's."""
        executor, task = job.options.get("executor"), job.options.get("task")
        if isinstance(executor, str) and executor != self.clients.executor_name:
            self.clients.use_executor(executor)
        federation = self.clients.federation
        if not isinstance(task, str) or (plain(federation.task) is not None and task == written(federation.task)):
            return self.clients
        if task not in self._moved:
            self._moved[task] = self.clients.for_federation(replace(federation, task=task_of(task)))
        return self._moved[task]

    def _init(self, clients: Clients, work: Work) -> Found:
        (seed,) = {int(job.options["seed"] or 0) for job in work.values()}
        networks = clients.init(seed)
        return {name: self._reply(networks, self.place[name], {}) for name in work}

    def _reply(self, networks: Params, client: int, buffers: Params) -> dict[str, Tensor]:
        """One client's network and buffers as the driver gets them."""
        own = {name: value[client].cpu() for name, value in self.parts.at_home(networks).items()}
        told = {"theta": flat(self.parts.cooperating(networks))[client]}
        kept = {STATE + key: value[client] for key, value in buffers.items()}
        if not own:
            return {**told, **kept}
        if self.home is None:
            return {**told, HOME: flat({name: value[None] for name, value in own.items()})[0], **kept}
        belongings = {key: value.cpu() for key, value in kept.items() if key.partition("/")[2].partition("/")[2] in own}
        sent = {key: value for key, value in kept.items() if key not in belongings}
        return {**told, HOME: self.home.keep({**own, **belongings}), **sent}

    def _belongings(self, work: Work, key: str = HOME) -> dict[str, Params]:
        """Of each of these clients what is private, and what belongs to it."""
        if not self.private:
            return {}
        if self.home is not None:
            return {name: self.home.find(job.tensors[key]) for name, job in work.items()}
        rows = {name: shaped(job.tensors[key][None], self.private) for name, job in work.items()}
        return {name: {leaf: value[0] for leaf, value in row.items()} for name, row in rows.items()}

    def _completed(self, stack: Tensor, work: Work, key: str = HOME) -> Params:
        """Flat networks (N, P), and behind what cooperates what is private of all clients of this host, (n, ...); 0 of
        those who were not asked.
        """
        params, every = shaped(stack, self.shapes), self._belongings(work, key)
        for leaf, shape in self.private.items():
            params[leaf] = torch.zeros(len(self.place), *shape, dtype=self.dtype)
            for name, own in every.items():
                params[leaf][self.place[name]] = own[leaf]
        return params

    def _train(self, clients: Clients, work: Work) -> Found:
        """theta, optimiser state and a pull -> theta, state, loss; with `at` of one step only, at batch `at`."""
        there = [self.place[name] for name in work]
        plan = self._plan(next(iter(work.values())))._replace(
            absent=tuple(i for i in self.place.values() if i not in there),
            pull=self._pull(work),
            importance=self._stack(work, "importance") if "importance" in next(iter(work.values())).tensors else None,
        )
        params, state = self._completed(self._stack(work, "theta"), work), self._state(work)
        if clients.privacy is not None:
            state |= {STEPS: self._stack(work, STEPS)}
        at = next(iter(work.values())).options.get("at")
        if at is None:
            trained = clients.train(params, state, plan)
        else:
            part = self._drawn(clients, plan).steps(int(at), int(at) + 1)
            weight = part.weight.index_fill(0, torch.tensor(plan.absent, dtype=torch.long), 0)
            trained = clients.follow(params, state, part._replace(weight=weight), plan)
        buffers = dict(trained.optimizer_state)
        started = buffers.pop(STARTED, torch.ones(len(self.place), dtype=torch.bool))
        made = buffers.pop(STEPS, None)
        return {
            name: {
                **self._reply(trained.params, i, buffers if started[i] else {}),
                "loss": trained.loss[i],
                "moved": trained.moved[i],
                **({} if made is None else {STEPS: made[i]}),
            }
            for name, i in self.place.items()
            if name in work
        }

    @staticmethod
    def _plan(job: Job) -> Plan:
        epochs, steps, seed, round = (job.options.get(name) for name in ("epochs", "steps", "seed", "round"))
        return Plan(int(epochs or 0), None if steps is None else int(steps), int(seed or 0), int(round or 0))

    def _drawn(self, clients: Clients, plan: Plan) -> Batches:
        """The batches of a plan, kept while it is the same: it is asked for step by step."""
        plan = plan._replace(absent=(), pull=None, shares=None, importance=None)
        if self._batches is None or self._batches[0] != plan:
            self._batches = plan, clients.batches(plan)
        return self._batches[1]

    def _stack(self, work: Work, key: str) -> Tensor:
        """What each client was sent as a row of all clients of this host; 0 of those who were not asked."""
        like = next(iter(work.values())).tensors[key]
        stack = like.new_zeros(len(self.place), *like.shape)
        for name, job in work.items():
            stack[self.place[name]] = job.tensors[key]
        return stack

    def _state(self, work: Work) -> Params:
        """The optimiser's state of all clients of this host, with a note of who has none."""
        keys = sorted({key for job in work.values() for key in job.tensors if key.startswith(STATE)})
        if not keys:
            return {}
        started = torch.tensor([name in work and keys[0] in work[name].tensors for name in self.place])
        have = {name: job for name, job in work.items() if keys[0] in job.tensors}
        state = {key.removeprefix(STATE): self._stack(have, key) for key in keys}
        for name, own in self._belongings(have).items():
            for key, value in own.items():
                if key.startswith(STATE):
                    entry = key.removeprefix(STATE)
                    state.setdefault(entry, value.new_zeros(len(self.place), *value.shape))[self.place[name]] = value
        return with_started(state, started)

    def _pull(self, work: Work) -> Pull | None:
        if "centre" not in next(iter(work.values())).tensors:
            return None
        return Pull(shaped(self._stack(work, "centre"), self.shapes), self._stack(work, "strength"))

    def _step(self, clients: Clients, work: Work) -> Found:
        """theta, optimiser state and a gradient -> theta and state after one step of the optimiser."""
        found: Found = {}
        for name, job in work.items():
            theta, gradient = (
                {key: value[0] for key, value in shaped(job.tensors[what][None], self.shapes).items()}
                for what in ("theta", "gradient")
            )
            state = {key.removeprefix(STATE): v for key, v in job.tensors.items() if key.startswith(STATE)}
            after, kept = clients.stepped(theta, state, gradient)
            row = flat({key: value[None] for key, value in after.items()})[0]
            found[name] = {"theta": row, **{STATE + key: value for key, value in kept.items()}}
        return found

    def _probe(self, clients: Clients, job: Job, round: int | None = None) -> Probe:
        seed, when = int(job.options["seed"] or 0), int(job.options["round"] or 0)
        return clients.probe(seed, when if round is None else round, str(job.options["split"]))

    def _guests(self, work: Work) -> tuple[Tensor, Peers]:
        """The networks that these clients look at, as a stack, and who looks at which of its rows: (K, M)."""
        stacks = {id(networks(job).stack): networks(job).stack for job in work.values()}
        starts, start = dict[int, int](), 0
        for known, stack in stacks.items():
            starts[known], start = start, start + len(stack)
        uses = {
            name: [starts[id(networks(job).stack)] + row for row in networks(job).use] for name, job in work.items()
        }
        used = sorted({row for rows in uses.values() for row in rows})
        place = {row: number for number, row in enumerate(used)}
        stack = torch.cat(list(stacks.values())) if len(stacks) > 1 else next(iter(stacks.values()))
        stack = stack if len(used) == len(stack) else stack[used]
        width = max(map(len, uses.values()))
        most = 2 * sum(map(len, uses.values())) >= len(work) * len(used)
        if most and all(rows == sorted(set(rows)) for rows in uses.values()):  # all at all, at once, in their order
            mask = torch.zeros(len(self.place), len(used), dtype=torch.bool)
            for name, rows in uses.items():
                mask[self.place[name], [place[row] for row in rows]] = True
            return stack, Peers(mask)
        senders = torch.zeros(len(self.place), width, dtype=torch.long)
        mask = torch.zeros(len(self.place), width, dtype=torch.bool)
        for name, rows in uses.items():
            senders[self.place[name], : len(rows)] = torch.tensor([place[row] for row in rows])
            mask[self.place[name], : len(rows)] = True
        return stack, Peers(mask, senders)

    @torch.no_grad()
    def _losses(self, clients: Clients, work: Work) -> Found:
        """Networks -> the mean loss of each on the client's probe."""
        job = next(iter(work.values()))
        stack, peers = self._guests(work)
        probe, forward = self._probe(clients, job), clients.forward()
        params = self._completed(stack, work)
        if peers.senders is None:
            asked = peers.mask.any(1)
            chosen = Probe(*(field[asked] for field in probe))
            losses = torch.zeros(peers.mask.shape, dtype=stack.dtype)
            own = {name: value[asked] for name, value in self.parts.at_home(params).items()}
            losses[asked] = forward.all_losses({**params, **own}, chosen).T.cpu()
        else:
            losses = forward.pair_losses(params, peers.senders, probe, "sender").cpu()
        if clients.privacy is not None and clients.privacy.evidence_noise:
            losses = losses + self._noise(clients.privacy, work, peers, probe).to(losses)
        return {name: {"loss": losses[i][peers.mask[i]]} for name, i in self.place.items() if name in work}

    def _noise(self, privacy: Privacy, work: Work, peers: Peers, probe: Probe) -> Tensor:
        """The noise of each client's losses, where it looks at a network (K, M)."""
        noise = torch.zeros(peers.mask.shape, dtype=torch.float64)
        for name, job in work.items():
            i, (seed, round) = self.place[name], (int(job.options[what] or 0) for what in ("seed", "round"))
            count, size, number = int(peers.mask[i].sum()), int(probe.mask[i].sum()), int(job.tensors[RELEASE])
            noise[i, peers.mask[i]] = noise_of(privacy, count, size, seed, round, name, number)
        return noise

    def _gradients(self, clients: Clients, work: Work) -> Found:
        """Networks -> the mean loss of each on the client's probe, or on its batches `batch` (N,) of a round, and the
        gradient of that in the network.
        """
        names, job = list(work), next(iter(work.values()))
        counts = [len(networks(work[name]).use) for name in names]
        owner = torch.tensor([self.place[name] for name in names]).repeat_interleave(torch.tensor(counts))
        if "batch" in job.tensors:
            drawn = self._drawn(clients, self._plan(job))
            at = torch.cat([work[name].tensors["batch"] for name in names])
            index, weight, targets = (field[owner, at] for field in (drawn.index, drawn.weight, drawn.targets))
            rows = Probe(index, targets, weight != 0)
        else:
            rows = Probe(*(field[owner] for field in self._probe(clients, job)))
        leaves = torch.cat([networks(work[name]).picked() for name in names]).detach().requires_grad_()
        with torch.enable_grad():
            params = self._completed(leaves, work)
            own = {name: value[owner] for name, value in self.parts.at_home(params).items()}
            losses = clients.forward().own_loss({**params, **own}, rows)
            (gradient,) = torch.autograd.grad(losses.sum(), [leaves])
        parts = zip(names, losses.split(counts), gradient.split(counts), strict=True)
        return {name: {"loss": loss, "gradient": part} for name, loss, part in parts}

    def _own(self, work: Work) -> Params:
        """The one network that each client was sent."""
        rows = {name: networks(job).picked()[0] for name, job in work.items()}
        stack = next(iter(rows.values())).new_zeros(len(self.place), len(next(iter(rows.values()))))
        for name, row in rows.items():
            stack[self.place[name]] = row
        return self._completed(stack, work)

    @torch.no_grad()
    def _temperatures(self, clients: Clients, work: Work) -> Found:
        """A client's own network -> its temperature, see `train.ImageLoss`."""
        probe = self._probe(clients, next(iter(work.values())), 0)
        found = clients.forward().temperatures(self._own(work), probe)
        return {name: {"temperature": found[self.place[name]]} for name in work}

    @torch.no_grad()
    def _images(self, clients: Clients, work: Work) -> Found:
        """Networks and a temperature of each -> their losses image by image, (N, n, T)."""
        job = next(iter(work.values()))
        whole = bool(job.options["whole"])
        probe = clients.whole(str(job.options["split"])) if whole else self._probe(clients, job, 0)
        forward, found = clients.forward(), Found()
        for name, asked in work.items():
            i = self.place[name]
            mine = Probe(*(field[i : i + 1] for field in probe))
            params = self._completed(networks(asked).picked(), {name: asked})
            params |= {leaf: value[i : i + 1] for leaf, value in self.parts.at_home(params).items()}
            if not bool(mine.mask.any()):
                found[name] = {"losses": torch.zeros(len(networks(asked).use), 0, 1)}
                continue
            losses = forward.image_losses(params, None, mine, asked.tensors["temperature"])[0]
            found[name] = {"losses": losses[:, mine.mask[0].to(losses.device)]}
        return found

    def predictors(self, work: Work) -> Ensemble | Predictor:
        """What clients predict with: a network, a mixture, or an ensemble; the networks of guests stand behind theirs."""
        job = next(iter(work.values()))
        predictors = tuple(self._predictor(work, number) for number in range(int(job.options["predictors"] or 1)))
        if "weights" not in job.tensors:
            return predictors[0]
        offsets = self._stack(work, "offsets") if "offsets" in job.tensors else None
        return Ensemble(predictors, self._stack(work, "weights"), offsets)

    def _predictor(self, work: Work, number: int) -> Predictor:
        """The `number`-th predictor of each: of its rows of networks the first is its own, the others are mixed."""
        count, share = len(self.place), f"share/{number}"
        own, guests = list[Tensor](), list[Tensor]()
        width = max(len(job.tensors[share]) if share in job.tensors else 0 for job in work.values())
        weights = torch.zeros(count, width, dtype=torch.float64)
        senders, behind = torch.zeros(count, width, dtype=torch.long), count
        for name, i in self.place.items():
            if name not in work:
                own.append(torch.zeros(1, sum(shape.numel() for shape in self.shapes.values())))
                continue
            job = work[name]
            sizes = [1 + (len(job.tensors[f"share/{c}"]) if f"share/{c}" in job.tensors else 0)
                     for c in range(number + 1)]  # fmt: skip
            rows = networks(job).picked()[sum(sizes[:-1]) : sum(sizes)]
            own.append(rows[:1])
            guests.append(rows[1:])
            if share in job.tensors:
                mixed = len(job.tensors[share])
                weights[i, :mixed] = job.tensors[share]
                senders[i, :mixed] = torch.arange(behind, behind + mixed)
                behind += mixed
        like = networks(next(iter(work.values()))).stack
        params = self._completed(torch.cat([*(row.to(like) for row in own), *guests]), work, f"{HOME}/{number}")
        return Predictor(params, (weights, Peers(weights > 0, senders)) if width else None)

    @torch.no_grad()
    def _predictions(self, clients: Clients, work: Work) -> Found:
        """A predictor -> -log p of each of the client's own images of a split, (n, T)."""
        job = next(iter(work.values()))
        predictor = self.predictors(work)
        assert isinstance(predictor, Predictor)
        split = str(job.options["split"])
        offsets = self._stack(work, "offsets") if "offsets" in job.tensors else None
        index, mask = padded(getattr(clients.federation, split))
        question = PredictionLoss(predictor, split, offsets)
        losses = clients.forward().prediction_losses(question, index, labelled(clients.federation, index), mask)
        return {name: {"losses": losses[i][mask[i]]} for name, i in self.place.items() if name in work}

    def _evaluate(self, clients: Clients, work: Work) -> Found:
        """What it predicts with -> score, score on its own outputs and loss on a split."""
        split = str(next(iter(work.values())).options["split"])
        numbers = torch.stack(list(clients.evaluate(*_called(self.predictors(work), split))), 1)
        return {name: {"numbers": numbers[self.place[name]]} for name in work}

    def _predict(self, clients: Clients, work: Work) -> Found:
        """What it predicts with -> the outputs for its own rows of a split, (n, ...)."""
        split = str(next(iter(work.values())).options["split"])
        outputs, mask = clients.predict(*_called(self.predictors(work), split))
        return {name: {"outputs": outputs[i][mask[i]]} for name, i in self.place.items() if name in work}


def networks(job: Job) -> Networks:
    """The networks of a job that has some."""
    if job.networks is None:
        raise InputError(f"a request to '{job.verb}' came without networks, expected some; ask again")
    return job.networks


def reason(error: BaseException) -> str:
    """An error as the one line that a driver is told."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _called(predictors: Ensemble | Predictor, split: str) -> tuple[Params | Ensemble, str, Mixture | None]:
    """The arguments of `evaluate` and `predict`."""
    if isinstance(predictors, Ensemble):
        return predictors, split, None
    return predictors.networks, split, predictors.mixture

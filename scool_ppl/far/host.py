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
from scool_ppl.far.wire import RELEASE, STATE, Answers, Description, Job, Option, Reply, Request, flat, shaped
from scool_ppl.far.work import Found, Layout, Work, networks
from scool_ppl.graph.candidates import Peers
from scool_ppl.tasks.named import plain, task_of, written
from scool_ppl.train.batches import Batches, Probe, labelled, padded
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Plan
from scool_ppl.train.privacy.account import STEPS
from scool_ppl.train.privacy.evidence import noise_of, refuse
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Ensemble, Mixture, Params, PredictionLoss, Predictor

EXACT = {
    "gradients": "gradients of losses",
    "temperatures": "temperatures of networks",
    "images": "losses image by image",
    "predictions": "losses image by image, by which clients choose together what they deploy",
}
"""Verbs whose answers cannot be noised: a host whose clients noise their evidence does none of them, whoever asks."""


class Host:
    """Clients of one place, of one network, with their own optimiser and batches.

    What is private stays in `home`, on disk where there is a folder for it; keeps=False sends it to the driver, and back,
    as processes of one simulation do. What is frozen stays here either way.
    """

    def __init__(self, clients: Clients, *, keeps: bool = True, home: Path | None = None) -> None:
        self.clients, self._moved = clients, dict[str, Clients]()
        self.place = {name: i for i, name in enumerate(clients.names)}
        self.parts, leaves = clients.parts, clients.parameters()
        self.layout = Layout(
            self.place,
            {name: value.shape for name, value in self.parts.cooperating(leaves).items()},
            {name: value.shape for name, value in self.parts.at_home(leaves).items()},
            next(iter(leaves.values())).dtype,
            Home(home) if keeps else None,
        )
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
        forward, roster, dtype = clients.forward(), clients.roster, self.layout.dtype
        privacy = None if clients.privacy is None else asdict(clients.privacy)
        facts = {
            name: told for name, told in clients.facts().items() if name not in ("number of clients", "client", "data")
        }
        targets = [federation.labels(i, rows) for i, rows in enumerate(federation.train)]
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
                network=tuple((leaf, tuple(shape)) for leaf, shape in self.layout.shapes.items()),
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
        if self.layout.home is not None:
            return ((SEAL, (4,)),) if self.layout.private else ()
        return tuple((name, tuple(shape)) for name, shape in self.layout.private.items())

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
        alike: dict[tuple[int, str, tuple[tuple[str, Option], ...]], dict[str, Job]] = {}
        for name, request in requests.items():
            for number, job in enumerate(request):
                alike.setdefault((number, job.verb, tuple(sorted(job.options.items()))), {})[name] = job
        found: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in requests}
        for (number, verb, _), jobs in alike.items():
            if verb not in self.verbs:
                raise unknown("verb", verb, self.verbs)
            work = Work(self.layout, jobs)
            self._check_private(work.first)
            for name, told in self.verbs[verb](self._clients(work.first), work).items():
                found[name][number] = {key: value.detach().cpu() for key, value in told.items()}
        return {name: tuple(told[number] for number in range(len(told))) for name, told in found.items()}

    def _check_private(self, job: Job) -> None:
        """Raises InputError where private clients would hand out what is not accounted for."""
        privacy = self.clients.privacy
        if privacy is None:
            return
        if privacy.evidence_noise is not None:
            if job.verb in EXACT:
                refuse(EXACT[job.verb])
            if job.verb in ("evaluate", "predict") and job.options.get("split") != "test":
                refuse("scores and outputs on images that are not for tests")
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
        return work.answered(clients.init(work.number("seed")), {})

    def _train(self, clients: Clients, work: Work) -> Found:
        """theta, optimiser state and a pull -> theta, state, loss; with `at` of one step only, at batch `at`."""
        asked = set(work.rows)
        plan = work.plan._replace(
            absent=tuple(i for i in self.place.values() if i not in asked),
            pull=work.pull(),
            importance=work.stack_if_sent("importance"),
        )
        params, state, at = work.networks(), work.state(), work.option("at")
        if clients.privacy is not None:
            state |= {STEPS: work.stack(STEPS)}
        if at is None:
            trained = clients.train(params, state, plan)
        else:
            part = self._drawn(clients, plan).steps(int(at), int(at) + 1)
            weight = part.weight.index_fill(0, torch.tensor(plan.absent, dtype=torch.long), 0)
            trained = clients.follow(params, state, part._replace(weight=weight), plan)
        buffers, more = dict(trained.optimizer_state), {"loss": trained.loss, "moved": trained.moved}
        if STEPS in buffers:
            more[STEPS] = buffers.pop(STEPS)
        found = work.answered(trained.params, buffers)
        return work.each(lambda name, i: {**found[name], **{key: value[i] for key, value in more.items()}})

    def _drawn(self, clients: Clients, plan: Plan) -> Batches:
        """The batches of a plan, kept while it is the same: it is asked for step by step."""
        plan = plan._replace(absent=(), pull=None, shares=None, importance=None)
        if self._batches is None or self._batches[0] != plan:
            self._batches = plan, clients.batches(plan)
        return self._batches[1]

    def _step(self, clients: Clients, work: Work) -> Found:
        """theta, optimiser state and a gradient -> theta and state after one step of the optimiser."""
        found: Found = {}
        for name, job in work.jobs.items():
            theta, gradient = (
                {key: value[0] for key, value in shaped(job.tensors[what][None], self.layout.shapes).items()}
                for what in ("theta", "gradient")
            )
            state = {key.removeprefix(STATE): v for key, v in job.tensors.items() if key.startswith(STATE)}
            after, kept = clients.stepped(theta, state, gradient)
            row = flat({key: value[None] for key, value in after.items()})[0]
            found[name] = {"theta": row, **{STATE + key: value for key, value in kept.items()}}
        return found

    @staticmethod
    def _probe(clients: Clients, work: Work, round: int | None = None) -> Probe:
        return clients.probe(work.number("seed"), work.number("round") if round is None else round, work.split)

    @torch.no_grad()
    def _losses(self, clients: Clients, work: Work) -> Found:
        """Networks -> the mean loss of each on the client's probe."""
        stack, peers = work.guests()
        probe, forward, params = self._probe(clients, work), clients.forward(), work.completed(stack)
        if peers.senders is None:
            asked = peers.mask.any(1)
            chosen = Probe(*(field[asked] for field in probe))
            losses = torch.zeros(peers.mask.shape, dtype=stack.dtype)
            own = {name: value[asked] for name, value in self.parts.at_home(params).items()}
            losses[asked] = forward.all_losses({**params, **own}, chosen).T.cpu()
        else:
            losses = forward.pair_losses(params, peers, probe, "sender").cpu()
        if clients.privacy is not None and clients.privacy.evidence_noise:
            losses = losses + self._noise(clients.privacy, work, peers, probe).to(losses)
        each = losses[peers.mask].split(peers.mask.sum(1).tolist())
        return work.each(lambda _, i: {"loss": each[i]})

    def _noise(self, privacy: Privacy, work: Work, peers: Peers, probe: Probe) -> Tensor:
        """The noise of each client's losses, where it looks at a network (K, M)."""
        noise = torch.zeros(peers.mask.shape, dtype=torch.float64)
        for name, i in zip(work, work.rows, strict=True):
            count, size, number = (
                int(peers.mask[i].sum()),
                int(probe.mask[i].sum()),
                int(work.jobs[name].tensors[RELEASE]),
            )
            drawn = noise_of(privacy, count, size, work.number("seed"), work.number("round"), name, number)
            noise[i, peers.mask[i]] = drawn
        return noise

    def _gradients(self, clients: Clients, work: Work) -> Found:
        """Networks -> the mean loss of each on the client's probe, or on its batches `batch` (N,) of a round, and the
        gradient of that in the network.
        """
        stack, uses = work.sent()
        counts = [len(rows) for rows in uses]
        owner = torch.tensor(work.rows).repeat_interleave(torch.tensor(counts))
        if "batch" in work.first.tensors:
            drawn, at = self._drawn(clients, work.plan), torch.cat([job.tensors["batch"] for job in work.jobs.values()])
            index, weight, targets = (field[owner, at] for field in (drawn.index, drawn.weight, drawn.targets))
            rows = Probe(index, targets, weight != 0)
        else:
            rows = Probe(*(field[owner] for field in self._probe(clients, work)))
        leaves = stack[[row for use in uses for row in use]].detach().requires_grad_()
        with torch.enable_grad():
            params = work.completed(leaves)
            own = {name: value[owner] for name, value in self.parts.at_home(params).items()}
            losses = clients.forward().own_loss({**params, **own}, rows)
            (gradient,) = torch.autograd.grad(losses.sum(), [leaves])
        parts = zip(work, losses.split(counts), gradient.split(counts), strict=True)
        return {name: {"loss": loss, "gradient": part} for name, loss, part in parts}

    @torch.no_grad()
    def _temperatures(self, clients: Clients, work: Work) -> Found:
        """A client's own network -> its temperature, see `train.ImageLoss`."""
        found = clients.forward().temperatures(work.own(), self._probe(clients, work, 0))
        return work.each(lambda _, i: {"temperature": found[i]})

    @torch.no_grad()
    def _images(self, clients: Clients, work: Work) -> Found:
        """Networks and a temperature of each -> their losses image by image, (N, n, T)."""
        probe = clients.whole(work.split) if work.option("whole") else self._probe(clients, work, 0)
        forward = clients.forward()

        def of(name: str, i: int) -> dict[str, Tensor]:
            mine, asked = Probe(*(field[i : i + 1] for field in probe)), work.jobs[name]
            if not bool(mine.mask.any()):
                return {"losses": torch.zeros(len(networks(asked).use), 0, 1)}
            params = Work(self.layout, {name: asked}).completed(networks(asked).picked())
            params |= {leaf: value[i : i + 1] for leaf, value in self.parts.at_home(params).items()}
            losses = forward.image_losses(params, None, mine, asked.tensors["temperature"])[0]
            return {"losses": losses[:, mine.mask[0].to(losses.device)]}

        return work.each(of)

    @torch.no_grad()
    def _predictions(self, clients: Clients, work: Work) -> Found:
        """A predictor -> -log p of each of the client's own images of a split, (n, T)."""
        predictor = work.predictors()
        assert isinstance(predictor, Predictor)
        index, mask = padded(getattr(clients.federation, work.split))
        question = PredictionLoss(predictor, work.split, work.stack_if_sent("offsets"))
        losses = clients.forward().prediction_losses(question, index, labelled(clients.federation, index), mask)
        return work.each(lambda _, i: {"losses": losses[i][mask[i]]})

    def _evaluate(self, clients: Clients, work: Work) -> Found:
        """What it predicts with -> score, score on its own outputs and loss on a split."""
        numbers = torch.stack(list(clients.evaluate(*_called(work))), 1)
        return work.each(lambda _, i: {"numbers": numbers[i]})

    def _predict(self, clients: Clients, work: Work) -> Found:
        """What it predicts with -> the outputs for its own rows of a split, (n, ...)."""
        outputs, mask = clients.predict(*_called(work))
        return work.each(lambda _, i: {"outputs": outputs[i][mask[i]]})


def reason(error: BaseException) -> str:
    """An error as the one line that a driver is told."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _called(work: Work) -> tuple[Params | Ensemble, str, Mixture | None]:
    """The arguments of `evaluate` and `predict`."""
    predictors = work.predictors()
    if isinstance(predictors, Ensemble):
        return predictors, work.split, None
    return predictors.networks, work.split, predictors.mixture

"""Clients in this process: K networks as stacked tensors and the data that they learn from."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from scool_ppl.base.arguments import check_kind, whole
from scool_ppl.base.describe import digest, named, settings, shown_html, signature
from scool_ppl.base.machine import threads
from scool_ppl.base.randomness import generator, key, seeded
from scool_ppl.data.federation import Federation
from scool_ppl.data.reading import SPLITS
from scool_ppl.data.roster import Roster
from scool_ppl.errors import InputError, unknown
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.batches import (
    Batches,
    Probe,
    batch_table,
    drawn,
    labelled,
    last_epoch,
    padded,
    shared,
    shuffled,
    weighted,
)
from scool_ppl.train.contract import BEHAVIOUR, Coupling, Evaluation, Facts, Plan, Trained
from scool_ppl.train.demands import ONE_PRIVATE_PART, WEIGHED, Demand, check_demands
from scool_ppl.train.executors.choosing import Executors
from scool_ppl.train.executors.descent import MakeOptimizer, step_by
from scool_ppl.train.executors.lockstep import in_lock_step
from scool_ppl.train.executors.private import check_sample_by_sample, private_batches
from scool_ppl.train.executors.sharing import by_shares
from scool_ppl.train.faults import check_held_out, check_probed
from scool_ppl.train.forward import Forward
from scool_ppl.train.gradients import midpoint_alignment
from scool_ppl.train.networks import network_of
from scool_ppl.train.networks.examine import examine
from scool_ppl.train.networks.parts import declared
from scool_ppl.train.networks.precision import PRECISIONS, in_bf16
from scool_ppl.train.privacy.account import STEPS, Account, steps_made
from scool_ppl.train.privacy.evidence import check_question, noised
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import (
    Alignment,
    Ensemble,
    ImageLoss,
    Mixture,
    OwnLoss,
    PairLoss,
    Params,
    PredictionLoss,
    Predictor,
    Question,
    check_whose,
)


class Clients:
    """K networks of one architecture, each with a client's data.

    executor: `stacked` (vmap), `loop` (one by one), or `auto`: both are timed at the first use, and the faster is kept in
    `executor_name`, and in the user's cache for other processes, see `executors.remembered`. The two agree up to
    rounding; networks with dropout draw different noise in each, so for them `auto` does not measure but takes the stack
    wherever it runs. precision: `full`, or `bf16`, see `precision.in_bf16`. privacy: training is DP-SGD, and
    losses of networks are noised, see `privacy.promise`, also for what that does not promise. frozen, private: names of
    parameters, shell patterns such as "3.*", "head" or "body"; all others cooperate, see `networks.parts`. What is
    frozen is as `network` builds it, from seed 0 where that draws random numbers.
    """

    def __init__(
        self,
        federation: Federation,
        network: Callable[[], nn.Module] | None = None,
        *,
        optimizer: MakeOptimizer = partial(torch.optim.SGD, lr=0.1, weight_decay=5e-4),
        batch_size: int = 10,
        probe_size: int = 100,
        executor: str = "auto",
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        precision: str = "full",
        common_start: bool = True,
        privacy: Privacy | None = None,
        frozen: Collection[str] = (),
        private: Collection[str] = (),
    ) -> None:
        if not whole(batch_size, probe_size):
            raise InputError(
                f"batch_size={batch_size}, probe_size={probe_size}: expected whole numbers of at least 1 each"
            )
        _check_parts(federation, network, optimizer, device, dtype)
        self.batch_size, self.probe_size, self.common_start = batch_size, probe_size, common_start
        self.device, self.optimizer = torch.device(device), optimizer
        self.network, self._task = network or network_of(federation), federation.task
        self._dtype = federation.inputs.dtype if dtype is None and federation.inputs.is_floating_point() else dtype
        self._hold(federation)
        output_shape = self._task.output_shape(federation.inputs.shape[1:])
        self._module, random, self._width = examine(self.network, self.inputs[:2], output_shape, self._dtype)
        self.parts = declared(self._module, frozen, private)
        for name in self.parts.frozen:
            self._module.get_parameter(name).requires_grad_(False)
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
        self.precision = precision
        if precision == "bf16":
            self._module = in_bf16(self._module)
        self.privacy = privacy
        if privacy is not None:
            check_kind("privacy", privacy, Privacy, "e.g. Privacy(noise=1.0, clip=1.0)")
            check_sample_by_sample(self._module, self.inputs[:2])
            _ = self.account  # refuses what nobody can count
        self._executors = Executors(self._module, self._task, optimizer, random, executor, self.inputs[:2], privacy)

    def _hold(self, federation: Federation) -> None:
        self.federation, self.names, self.num_clients = federation, tuple(federation.names), federation.num_clients
        tokens = not federation.inputs.is_floating_point()
        self.inputs = federation.inputs.to(self.device, None if tokens else self._dtype)
        self._own = self._task.own_outputs(federation.all_counts()).to(self.device)

    def __repr__(self) -> str:
        return f"Clients({self.num_clients} networks of {self.bytes_per_model} bytes, {self.federation.kind})"

    def _repr_html_(self) -> str | None:
        return shown_html(self)

    def for_federation(self, federation: Federation) -> Self:
        """The same networks, optimiser and executor for the clients of another federation, with data of the same kind."""
        ours, theirs = self.federation.kind, federation.kind
        if ours != theirs:
            raise InputError(f"data are {theirs}, the networks are for {ours}; make new Clients")
        moved = copy.copy(self)
        moved._task, moved._executors = federation.task, self._executors.on(federation.task)
        moved._hold(federation)
        return moved

    @property
    def roster(self) -> Roster:
        """Who takes part, without the data."""
        return self.federation.roster

    @property
    def carried(self) -> None:
        """Nothing: they are in this process."""

    @property
    def executor_name(self) -> str:
        """The executor in use; "auto" before the first use."""
        return self._executors.name

    def use_executor(self, name: str) -> None:
        """Use the executor that an earlier run chose, instead of measuring: its rounding is that of the run."""
        self._executors.use(name)

    @property
    def bytes_per_model(self) -> int:
        """Size in bytes of what is sent of one client's network: the parameters that cooperate."""
        sent = self.parts.cooperating(self.parameters()).values()
        return sum(leaf.numel() * leaf.element_size() for leaf in sent)

    @property
    def frozen(self) -> Params:
        """The parameters that all clients have in common, without a leading dimension."""
        return {name: self._module.get_parameter(name).detach() for name in self.parts.frozen}

    @property
    def account(self) -> Account | None:
        """Of private clients, what they promise."""
        if self.privacy is None:
            return None
        return Account.of(self.privacy, self.federation.sizes("train"), self.batch_size)

    @property
    def refused(self) -> Mapping[Demand, str]:
        """Private training accounts for a client's own images, of which all count alike. A client has one private part, and
        others' images meet it without random numbers.
        """
        if self.privacy is not None:
            return {
                "others' data": "and private training accounts for nobody's images but one's own; train without noise",
                "several networks": WEIGHED,
            }
        found: dict[Demand, str] = {}
        if self.parts.private:
            found["several networks"] = ONE_PRIVATE_PART
            if self.draws_noise:
                found["others' data"] = "which private parts of networks with dropout cannot; declare nothing private"
        return found

    def facts(self) -> Facts:
        """What the clients are made of: names, behaviour, network, optimiser, sizes of batches, and their data."""
        return {
            "number of clients": [str(self.num_clients)],
            "client": list(self.names),
            BEHAVIOUR: ["as asked"],
            "network": [
                *signature(dict(self._module.named_parameters())),
                *(["in bf16"] if self.precision == "bf16" else ()),
            ],
            **self._told_parts(),
            "optimizer": [named(self.optimizer), *settings(self.optimizer)],
            "batch size": [str(self.batch_size)],
            "probe size": [str(self.probe_size)],
            **({"privacy": settings(self.privacy)} if self.privacy is not None else {}),
            "data": [f"SHA-256 {self.federation.fingerprint}"],
        }

    def _told_parts(self) -> Facts:
        """Which parameters are private, and which are frozen at what."""
        frozen = [f"'{name}' SHA-256 {digest(value)}" for name, value in self.frozen.items()]
        told = {"private parameter": list(self.parts.private), "frozen parameter": frozen}
        return {kind: names for kind, names in told.items() if names}

    def init(self, seed: int) -> Params:
        """theta^0: the same for all clients, or with common_start=False one per client, keyed by its name."""
        if self.common_start:
            one = self._fresh(key(seed, "network"))
            return {name: value.expand(self.num_clients, *value.shape).clone() for name, value in one.items()}
        each = [self._fresh(key(seed, "network", name)) for name in self.names]
        return {name: torch.stack([params[name] for params in each]) for name in each[0]}

    def _fresh(self, seed: int) -> Params:
        with seeded(seed, self.device):
            module = self.network()
        return self._trained(module.to(self.device, self._dtype))

    def _trained(self, module: nn.Module) -> Params:
        """What is trained of a network, what cooperates before what is private."""
        leaves = {name: leaf.detach() for name, leaf in module.named_parameters() if name not in self.parts.frozen}
        return {**self.parts.cooperating(leaves), **self.parts.at_home(leaves)}

    def away(self, round: int) -> Mapping[str, str]:
        """Nobody: whoever is in this process takes part."""
        return {}

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        """Local training from params on the clients' own images, or on others', too, as the plan's `shares` say."""
        if plan.epochs < 0 or (plan.steps is not None and plan.steps < 1):
            raise InputError(
                f"epochs={plan.epochs}, steps={plan.steps}: expected epochs of at least 0, steps of at least 1 or None"
            )
        check_demands(self.refused, plan.demands)
        batches = self.batches(plan, steps_made(optimizer_state or {}, self.num_clients))
        if plan.importance is not None:
            batches = weighted(batches, self.federation.train, plan.importance)
        if plan.shares is not None and self.parts.private:
            return self._by_shares(params, optimizer_state or {}, batches, plan)
        if plan.shares is not None:
            random = generator(plan.seed, "share", plan.round) if plan.shares.sampled else None
            batches = shared(batches, plan.shares.others, plan.shares.own, random)
        if plan.absent:
            batches = batches.without(plan.absent)
        return self.follow(params, optimizer_state, batches, plan)

    def batches(self, plan: Plan, before: Tensor | None = None) -> Batches:
        """Each client's own batches of a round; before: (K,), of private training the steps that each has made already."""
        plain = shuffled(
            self.federation, self.batch_size, epochs=plan.epochs, steps=plan.steps, seed=plan.seed, round=plan.round
        )
        if self.privacy is None:
            return plain
        before = steps_made({}, self.num_clients) if before is None else before
        return private_batches(self.privacy, self.federation, plain, self.batch_size, before, plan)

    def follow(self, params: Params, optimizer_state: Params | None, batches: Batches, plan: Plan) -> Trained:
        """Training by these batches in place of the plan's own; the loss is the mean over a client's last epoch."""
        state, made = optimizer_state or {}, steps_made(optimizer_state or {}, self.num_clients)
        state = {name: value for name, value in state.items() if name != STEPS}
        self._check(params)
        params = {name: params[name] for name in self.parameters()}
        self._executors.choose(batches, partial(self._trial, params))
        batches = self._placed(batches)
        seeds = [key(plan.seed, "dropout", plan.round, name) for name in self.names]
        executor = self._executors.running
        if isinstance(plan.pull, Coupling):
            params, state, losses = in_lock_step(executor, params, state, self.inputs, batches, plan.pull, seeds)
        else:
            params, state, losses = executor.train(params, state, self.inputs, batches, plan.pull, seeds)
        active = batches.active.cpu()
        trained = Trained(params, state, self._last_epoch(losses, batches).cpu(), active.any(1))
        if self.privacy is None:
            return trained
        return trained._replace(optimizer_state={**state, STEPS: made + active.sum(1)})

    def _by_shares(self, params: Params, state: Params, batches: Batches, plan: Plan) -> Trained:
        """Training on others' images, too, that each meet their owner's private part."""
        assert plan.shares is not None
        forward, sizes = self._forward(params), batches.samples
        random = generator(plan.seed, "share", plan.round) if plan.shares.sampled else None
        table = batch_table(sizes, plan.shares.others, plan.shares.own, random).without(plan.absent)
        params = {name: params[name] for name in self.parameters()}
        params, state, losses = by_shares(forward, self.stepped, params, state, self._placed(batches), table, plan.pull)
        moves = (table.weight != 0).any(-1)
        samples = (sizes[table.index, table.targets] * (table.weight != 0)).sum(-1)
        per_epoch = (self.federation.sizes("train") / self.batch_size).ceil()
        return Trained(params, state, last_epoch(losses, samples, moves, per_epoch), moves.any(1))

    def _placed(self, batches: Batches) -> Batches:
        placed = batches.each(lambda field: field.to(self.device))
        return placed._replace(weight=placed.weight.to(next(self._module.parameters()).dtype))

    def _last_epoch(self, losses: Tensor, batches: Batches) -> Tensor:
        """Mean loss (K,) over each client's last steps, as many as one pass over its own images takes."""
        per_epoch = (self.federation.sizes("train") / self.batch_size).ceil().to(losses.device)
        return last_epoch(losses, batches.samples, batches.active, per_epoch)

    @property
    def draws_noise(self) -> bool:
        """Does training draw random numbers, as dropout does?"""
        return self._executors.loop.random

    def parameters(self) -> Params:
        """What is trained of one network as it was built: names and shapes, without a leading dimension."""
        return self._trained(self._module)

    def stepped(self, params: Params, state: Params, gradients: Params) -> tuple[Params, Params]:
        """One step of one client's optimiser by gradients that others have found; its parameters and optimiser state."""
        leaves = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
        kept = step_by(self.optimizer, leaves, state, gradients)
        return {name: leaf.detach() for name, leaf in leaves.items()}, kept

    def forward(self) -> Forward:
        """What answers are computed on, of any networks; which settles the executor."""
        return self._forward() if self._executors.name != "auto" else self._forward(self.init(0))

    def _check(self, params: Params, guests: bool = False) -> None:
        """Raises InputError unless these are networks of all clients; behind them may be those of `guests`."""
        expected = {name: (self.num_clients, *leaf.shape) for name, leaf in self.parameters().items()}
        found = {name: tuple(value.shape) for name, value in params.items()}
        if guests:
            shared = [shape for name, shape in found.items() if name not in self.parts.private]
            count = max(self.num_clients, min((shape[0] for shape in shared if shape), default=0))
            expected |= {name: (count, *shape[1:]) for name, shape in self.parts.cooperating(expected).items()}
        if found != expected:
            wrong = min(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            raise InputError(
                f"parameter '{wrong}' has shape {found.get(wrong)}, expected {expected.get(wrong)}: one row per "
                "client; take them from init() or train() of the same federation and network"
            )

    def _trial(self, params: Params) -> tuple[Params, Tensor, Batches, str]:
        """Two steps, to measure the executors by, and what the faster one depends on besides the network."""
        shape = (self.num_clients, self.batch_size, *self.inputs.shape[1:])
        code = getattr(self.optimizer, "__code__", None)  # two lambdas have one name
        known = [
            named(self.optimizer),
            *settings(self.optimizer),
            *([code.co_code.hex(), repr(code.co_names)] if code else ()),
            *(["privately"] if self.privacy is not None else ()),
        ]
        optimizer = " ".join(known)
        case = f"{shape} {self.inputs.dtype} on {self.device}, {optimizer}"
        return params, self.inputs, self._placed(self.batches(Plan(epochs=0, steps=2))), case

    def _forward(self, *networks: Params) -> Forward:
        """What answers and evaluations are computed on; networks of all clients, which settles the executor."""
        for each in networks:
            self._check(each, guests=True)
        if networks:
            first = {name: value[: self.num_clients] for name, value in networks[0].items()}
            self._executors.choose(None, partial(self._trial, first))
        clip = math.inf if self.privacy is None else self.privacy.evidence_clip or math.inf
        executors = self._executors
        return Forward(executors.running, executors.loop, self._task, self.inputs, self._width, clip, self.parts)

    @torch.no_grad()
    def evaluate(self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None) -> Evaluation:
        """Every client's network, or ensemble, on its own images of a split, with its own labels.

        With `mixture` (weights (K, M), peers) client i predicts with sum_j w_ij p(y | h_theta_j(x)), rows normalised.
        """
        index, mask = padded(self._members(split))
        targets, mask = labelled(self.federation, index).to(self.device), mask.to(self.device)
        totals = torch.zeros(3, self.num_clients, device=self.device)
        for columns, outputs in self._forward(*_networks_of(params)).outputs(params, index, mixture):
            theirs = self._own.view(len(outputs), *(1,) * (outputs.dim() - 2), -1)
            own = outputs.masked_fill(~theirs, -torch.inf)
            labels = targets[:, columns]
            scores = [self._task.scores(predicted, labels) for predicted in (outputs, own)]
            each = torch.stack([*scores, self._task.losses(outputs, labels)])
            totals = totals + each.where(mask[:, columns], 0).sum(-1)
        return Evaluation(*(totals / mask.sum(-1)).cpu())

    def evaluations(self, predictors: Sequence[Predictor], split: str = "test") -> tuple[Evaluation, ...]:
        """What `evaluate` says of each of these."""
        return tuple(self.evaluate(each.networks, split, each.mixture) for each in predictors)

    @torch.no_grad()
    def predict(
        self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None
    ) -> tuple[Tensor, Tensor]:
        """Outputs (K, n, ...) of every client's network, mixture or ensemble on its own rows of a split, mask (K, n)."""
        index, mask = padded(self._members(split))
        found = [outputs for _, outputs in self._forward(*_networks_of(params)).outputs(params, index, mixture)]
        empty = torch.zeros(self.num_clients, 0, *self._task.output_shape(self.inputs.shape[1:]))
        return torch.cat([*found, *([] if found else [empty])], 1).cpu(), mask

    def _members(self, split: str) -> tuple[Tensor, ...]:
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        return getattr(self.federation, split)

    def probe(self, seed: int, round: int, split: str = "train") -> Probe:
        """One fixed batch per client of at most probe_size of its images; all of them if there are no more."""
        self._members(split)
        return drawn(self.federation, split, self.probe_size, seed=seed, round=round)

    def whole(self, split: str) -> Probe:
        """All images of every client."""
        index, mask = padded(self._members(split))
        return Probe(index, labelled(self.federation, index), mask)

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        """The answers to all questions of a round, on the round's probes, which are drawn once."""
        for question in questions.values():
            check_question(question, self.privacy)
        others = (question for question in questions.values() if isinstance(question, PairLoss | OwnLoss | Alignment))
        probes = {split: self.probe(seed, round, split) for split in sorted({question.split for question in others})}
        if "validation" in probes:
            check_held_out(probes["validation"].mask.any(1), self.names)
            self._say_if_cut("validation")
        return {name: self._answer(question, probes, seed, round).cpu() for name, question in questions.items()}

    def _say_if_cut(self, split: str) -> None:
        """Warns where a probe is not all of a split: methods that learn from held-out images are printed with all."""
        most = max(len(rows) for rows in self._members(split))
        if most > self.probe_size:
            warnings.warn(
                f"a client has {most} {split} images, of which {self.probe_size} are looked at in a round; "
                f"Clients(probe_size={most}) looks at all, or lower {split}= of the federation",
                stacklevel=3,
            )

    def _answer(self, question: Question, probes: Mapping[str, Probe], seed: int, round: int) -> Tensor:
        if isinstance(question, ImageLoss):
            return self._image_loss(question, seed)
        if isinstance(question, PredictionLoss):
            return self._prediction_loss(question)
        if isinstance(question, PairLoss):
            probe = probes[question.split]
            pairs = self.pair_loss(question.networks, question.peers, probe, question.whose)
            return noised(pairs, question, probe.mask.sum(1), self.privacy, seed, round, self.names)
        if isinstance(question, OwnLoss):
            probe = probes[question.split]
            own = self.own_loss(question.networks, probe)
            own = noised(own, question, probe.mask.sum(1), self.privacy, seed, round, self.names)
            return _of(question.present, own)
        if isinstance(question, Alignment):
            probe, (receivers, _, senders) = probes[question.split], question.peers.pairs()
            self._check_probe(probe, torch.cat([receivers, senders]))
            return midpoint_alignment(self._forward(question.networks), question.networks, question.peers, probe)
        targets = [self.federation.labels(client, rows) for client, rows in enumerate(self.federation.train)]
        return _of(question.present, self._task.marginal(targets, next(self._module.parameters()).dtype))

    @torch.no_grad()
    def _prediction_loss(self, question: PredictionLoss) -> Tensor:
        index, mask = padded(self._members(question.split))
        forward = self._forward(question.predictor.networks)
        return forward.prediction_losses(question, index, labelled(self.federation, index), mask)

    @torch.no_grad()
    def _image_loss(self, question: ImageLoss, seed: int) -> Tensor:
        forward, peers = self._forward(question.networks), question.peers
        probe = self.whole(question.split) if question.whole else self.probe(seed, 0, question.split)
        if not probe.mask.shape[1]:
            return torch.full((*peers.mask.shape, 0, 1), torch.nan)
        temperature = torch.ones(len(next(iter(question.networks.values()))), device=self.device)
        if question.calibrated:
            temperature = forward.temperatures(question.networks, self.probe(seed, 0, "validation"))
        losses = forward.image_losses(question.networks, peers.senders, probe, temperature)
        return losses.masked_fill(~peers.mask.to(losses.device)[..., None, None], torch.nan)

    def _check_probe(self, probe: Probe, asked: Tensor) -> None:
        """Raises InputError where a client who is `asked` (n,) has nothing in the probe."""
        check_probed(~probe.mask.any(1).cpu(), asked, self.names)

    @threads(1)
    def _check_pairs(self, peers: Peers, probe: Probe, whose: str) -> None:
        """The same for whoever's data pairs are of; by one thread, see `Forward.all_losses`."""
        receivers, _, senders = peers.pairs()
        self._check_probe(probe, (senders if whose == "receiver" else receivers).cpu())

    def own_loss(self, networks: Params, probe: Probe) -> Tensor:
        """Mean loss of each client's network on its own row of a probe, (K,), differentiable in the networks."""
        return self._forward(networks).own_loss(networks, probe)

    @torch.no_grad()
    def pair_loss(self, networks: Params, peers: Peers, probe: Probe, whose: str = "receiver") -> Tensor:
        """Losses of pairs (K, M) on a probe, 0 where masked; see `questions.PairLoss`."""
        check_whose(whose)
        if peers.num_clients != self.num_clients:
            raise InputError(f"peers are of {peers.num_clients} clients, expected {self.num_clients}: one row for each")
        self._check_pairs(peers, probe, whose)
        forward = self._forward(networks)
        if peers.is_table or self.parts.private:
            losses = forward.pair_losses(networks, peers, probe, whose)
        else:
            losses = forward.all_losses(networks, probe)
            losses = losses if whose == "receiver" else losses.T
        return losses.to(peers.mask.device).where(peers.mask, 0)


def _networks_of(params: Params | Ensemble) -> tuple[Params, ...]:
    """The stacks of networks that are run."""
    return tuple(each.networks for each in params.predictors) if isinstance(params, Ensemble) else (params,)


def _of(present: Tensor | None, values: Tensor) -> Tensor:
    """The values (K,) of those present, 0 of the others."""
    return values if present is None else values.where(present.to(values.device), 0)


def _check_parts(federation: object, network: object, optimizer: object, device: object, dtype: object) -> None:
    """Refuses what cannot be a part of clients, before anything is built of it."""
    check_kind("federation", federation, Federation, "load_federation(spec) makes one")
    for what, part in (("network", network), ("optimizer", optimizer)):
        if isinstance(part, nn.Module | torch.optim.Optimizer) or not (callable(part) or part is None):
            found = repr(part) if isinstance(part, str) else f"a {type(part).__name__}"
            raise InputError(
                f"{what} is {found}, expected a function that makes one; write lambda or functools.partial"
            )
    if dtype is not None:
        check_kind("dtype", dtype, torch.dtype, "e.g. torch.float64")
        if not dtype.is_floating_point:  # type: ignore[attr-defined]
            raise InputError(f"dtype is {dtype}, expected one of floating-point numbers, e.g. torch.float64")
    try:
        torch.empty(0, device=device)  # type: ignore[call-overload]
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device {device!r} cannot be used ({str(error).split('.')[0]}), expected e.g. 'cpu'"
        ) from error

"""RemoteClients: clients who are elsewhere, as a driver meets them. No data are here, and no network is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from scool_ppl.base.describe import listed
from scool_ppl.base.randomness import seeded
from scool_ppl.data.federation import Federation
from scool_ppl.data.reading import SPLITS
from scool_ppl.data.roster import Roster
from scool_ppl.errors import InputError, unknown
from scool_ppl.far.agreement import roster_of
from scool_ppl.far.asking import Asking, Predicting
from scool_ppl.far.exchange import Exchange, Part, Told, got
from scool_ppl.far.home import SEAL
from scool_ppl.far.training import Training
from scool_ppl.far.wire import HOME, Fabric, Job, shaped
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.named import written
from scool_ppl.train.contract import BEHAVIOUR, Coupling, Evaluation, Facts, Plan, Trained
from scool_ppl.train.demands import ONE_PRIVATE_PART, WEIGHED, Demand, check_demands
from scool_ppl.train.networks.parts import Parts
from scool_ppl.train.privacy.account import STEPS, Account, steps_made
from scool_ppl.train.privacy.evidence import check_question
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Ensemble, Mixture, Params, Predictor, Question


class RemoteClients:
    """Clients whose data and training are elsewhere; what they answer is all that is known of them.

    They keep the contract of clients (`train.AnyClients`). A round is one trip to train, one to look and one to evaluate;
    steps that clients take together (`Coupling`, `Shares`) take trips of their own, where the fabric is `near`: where it
    is not, a coupling holds everybody where the round began, and shares are refused.

    task: where it is a class of the user's own. federation: the data, where a simulation has them all here anyway.
    network: what builds a network, where that is known here; a run's folder keeps it.
    silent: who did not answer when networks were last evaluated, and why; it has no score then, and that is no fault.
    """

    def __init__(
        self,
        fabric: Fabric,
        *,
        task: Task | None = None,
        federation: Federation | None = None,
        network: Callable[[], nn.Module] | None = None,
    ) -> None:
        self.fabric, self.network = fabric, network
        described = fabric.describe()
        if federation is not None:
            task = federation.task
        self._roster = roster_of(described, task)
        if federation is not None:
            if set(federation.names) != set(described):
                raise InputError(
                    f"the hosts have the clients {listed(described)}, the federation {listed(federation.names)}; give the "
                    "federation of which the hosts have the parts"
                )
            described = {name: described[name] for name in federation.names}
            self._roster = federation.roster
        self._federation, self.described = federation, described
        self.names, self.num_clients = self._roster.names, self._roster.num_clients
        first = next(iter(described.values()))
        self.batch_size, self.probe_size = first.batch_size, first.probe_size
        self.shapes = {name: torch.Size(shape) for name, shape in first.network}
        self.private = {name: torch.Size(shape) for name, shape in first.private}
        self.parts = Parts(private=tuple(self.private))
        self.dtype: torch.dtype = getattr(torch, first.dtype)
        self.bytes_per_model, self._draws_noise = first.bytes_per_model, first.draws_noise
        executors = {told.executor for told in described.values()}
        self._executor = executors.pop() if len(executors) == 1 else "auto"
        self.exchange, self.silent = Exchange(fabric, self.names), dict[str, str]()
        if task is None:
            self.exchange.common["task"] = written(self._roster.task)
        self._initial: dict[int, Params] = {}

    def __repr__(self) -> str:
        return f"RemoteClients({self.num_clients} networks of {self.bytes_per_model} bytes, {self._roster.kind})"

    @property
    def roster(self) -> Roster:
        """Who takes part, without the data."""
        return self._roster

    @property
    def federation(self) -> Federation:
        """The data, where a simulation has them; else they are where their owners are."""
        if self._federation is None:
            raise InputError(
                "the clients' data are elsewhere, expected clients in this process; ask them by `answer`, `evaluate` or "
                "`predict`, and `roster` for who they are"
            )
        return self._federation

    @property
    def account(self) -> Account | None:
        """Of private clients, what they promise: they count their steps, the driver what it asks."""
        told = next(iter(self.described.values()))
        if told.privacy is None:
            return None
        fields: dict[str, Any] = dict(told.privacy)
        return Account.of(Privacy(**fields), self._roster.sizes("train"), self.batch_size)

    @property
    def refused(self) -> Mapping[Demand, str]:
        """Steps that all take together: where a message is slow, or each step would have to be one of its own."""
        own, found = "which clients elsewhere", dict[Demand, str]()
        # Where messages are slow there is no lock step: neighbours are held where the round began.
        together: tuple[Demand, ...] = ("lock step", "others' data") if self.fabric.near else ("others' data",)
        if self.private:
            found["others' data"] = f"{own} cannot with private parts; declare nothing private, or use one process"
            found["several networks"] = ONE_PRIVATE_PART
        if not self.fabric.near:
            found["others' data"] = "which takes two messages a step; use one process, or ranks of torchrun"
        if self._draws_noise:
            why = f"{own} cannot with networks that draw random numbers, as dropout does; take another network"
            found |= dict.fromkeys(together, why)
        if self.account is not None:
            found |= dict.fromkeys(together, f"{own} cannot while they train privately; use one process")
            found["several networks"] = WEIGHED
        return found

    @property
    def executor_name(self) -> str:
        """How all hosts run their clients; "auto" where they differ."""
        return self._executor

    @property
    def carried(self) -> int:
        """Bytes that the fabric has carried so far."""
        return self.fabric.bytes

    def use_executor(self, name: str) -> None:
        """Use the executor that an earlier run chose."""
        if name not in ("auto", self._executor):
            self._executor = self.exchange.common["executor"] = name

    def init(self, seed: int) -> Params:
        """theta^0, as everybody builds its own."""
        if seed not in self._initial:
            size = sum(shape.numel() for shape in self.shapes.values())
            stack = torch.zeros(self.num_clients, size, dtype=self.dtype)
            homes = self._homes()

            def take(i: int, told: Told) -> None:
                stack[i] = got(told, "theta", (size,))
                if homes is not None:
                    homes[i] = got(told, HOME, homes[i].shape)

            self.exchange([Part(self._everybody, lambda i: Job("init", {"seed": seed}, {}), take)])
            own = {} if homes is None else shaped(homes, self.private)
            self._initial[seed] = {**shaped(stack, self.shapes), **own}
        return {name: value.clone() for name, value in self._initial[seed].items()}

    @property
    def frozen(self) -> Params:
        """The parameters that all clients have in common, as `network` builds them here, where that is known."""
        if self.network is None or SEAL in self.private:
            return {}
        with seeded(0, torch.device("cpu")):  # the seed of `Clients`
            module = self.network().to(self.dtype)
        known = {*self.shapes, *self.private}
        return {name: leaf.detach() for name, leaf in module.named_parameters() if name not in known}

    def _homes(self) -> Tensor | None:
        """Room for what stands for everybody's private part."""
        if not self.private:
            return None
        size = sum(shape.numel() for shape in self.private.values())
        return torch.zeros(self.num_clients, size, dtype=torch.int64 if SEAL in self.private else self.dtype)

    @property
    def _everybody(self) -> Tensor:
        return torch.ones(self.num_clients, dtype=torch.bool)

    def away(self, round: int) -> Mapping[str, str]:
        """Who is known to sit a round out."""
        return self.fabric.away(round)

    def train(self, params: Params, optimizer_state: Params | None, plan: Plan) -> Trained:
        """Local training where the data are."""
        pull = plan.pull
        if isinstance(pull, Coupling) and (not self.fabric.near or plan.shares is not None):
            pull = pull.held(params)
        check_demands(self.refused, plan._replace(pull=pull).demands)
        together = isinstance(pull, Coupling) or plan.shares is not None
        if together and plan.importance is not None:
            raise InputError(
                "images were to count differently in steps that clients elsewhere take together, expected one of the two; "
                "choose another mixing rule, or clients in one process"
            )
        state = optimizer_state or {}
        if self.account is not None:
            state = {**state, STEPS: steps_made(state, self.num_clients)}
        training = Training(
            self.exchange, self._roster, self.batch_size, self.shapes, self.private, params, state, plan
        )
        if plan.shares is not None:
            assert not isinstance(pull, Coupling)
            return training.by_shares(pull)
        return training.in_lock_step(pull) if isinstance(pull, Coupling) else training.alone(pull)

    def answer(self, questions: Mapping[str, Question], *, seed: int, round: int) -> dict[str, Tensor]:
        """The answers to all questions of a round, on probes that their owners draw as in one process."""
        privacy = None if self.account is None else self.account.privacy
        for question in questions.values():
            check_question(question, privacy)
        entropy = torch.tensor([told.entropy for told in self.described.values()], dtype=self.dtype)
        asking = Asking(self.exchange, self._roster, entropy, self.probe_size, self.parts, seed, round)
        found = asking.answers(questions)
        self.silent = asking.silent or self.silent
        return found

    def evaluate(self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None) -> Evaluation:
        """Every client's network, mixture or ensemble on its own rows; nan for who does not answer."""
        return self._evaluated([params if isinstance(params, Ensemble) else Predictor(params, mixture)], split)[0]

    def evaluations(self, predictors: Sequence[Predictor], split: str = "test") -> tuple[Evaluation, ...]:
        """What `evaluate` says of each of these, in one trip."""
        return self._evaluated(predictors, split)

    def _evaluated(self, asked: Sequence[Predictor | Ensemble], split: str) -> tuple[Evaluation, ...]:
        tables = [torch.full((self.num_clients, 3), torch.nan, dtype=self.dtype) for _ in asked]
        who = self._with_rows(split)

        def part(wire: Predicting, table: Tensor) -> Part:
            def take(i: int, told: Told) -> None:
                table[i] = got(told, "numbers", (3,))

            return Part(who, lambda i: wire.job("evaluate", i, {"split": split}), take)

        parts = [part(Predicting(each, self.parts), table) for each, table in zip(asked, tables, strict=True)]
        self.silent = self.exchange.attempt(parts)
        return tuple(Evaluation(*table.T) for table in tables)

    def _with_rows(self, split: str) -> Tensor:
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        return self._roster.sizes(split) > 0

    def predict(
        self, params: Params | Ensemble, split: str = "test", mixture: Mixture | None = None
    ) -> tuple[Tensor, Tensor]:
        """Outputs (K, n, ...) of every client's network, mixture or ensemble on its own rows of a split, mask (K, n)."""
        wire = Predicting(params if isinstance(params, Ensemble) else Predictor(params, mixture), self.parts)
        who, sizes = self._with_rows(split), self._roster.sizes(split)
        mask = torch.arange(int(sizes.max()))[None] < sizes[:, None]
        found: list[Tensor] = []

        def take(i: int, told: Told) -> None:
            outputs = got(told, "outputs")
            if len(outputs) != int(sizes[i]) or (found and outputs.shape[1:] != found[0].shape[2:]):
                raise InputError(f"it sent outputs of shape {tuple(outputs.shape)}, expected {int(sizes[i])} rows")
            if not found:
                found.append(outputs.new_zeros(*mask.shape, *outputs.shape[1:]))
            found[0][i, : len(outputs)] = outputs

        self.exchange([Part(who, lambda i: wire.job("predict", i, {"split": split}), take)])
        shape = self._roster.task.output_shape(self._roster.input_shape)
        return (found[0] if found else torch.zeros(*mask.shape, *shape)), mask

    def facts(self) -> Facts:
        """What the clients are made of; of their data what each says of its own."""
        told = next(iter(self.described.values())).facts
        known = {"number of clients": [str(self.num_clients)], "client": list(self.names), **told}
        if self._federation is not None:  # as in one process, where the run may go on
            return {**known, "data": [f"SHA-256 {self._federation.fingerprint}"]}
        return {
            **known,
            BEHAVIOUR: [*told.get(BEHAVIOUR, []), "elsewhere"],
            "data": [f"SHA-256 {told.fingerprint} of {name}" for name, told in self.described.items()],
        }

    def for_federation(self, federation: Federation) -> Self:
        """Refused: whose data it is is not for the driver to say."""
        raise InputError(
            "clients who are elsewhere were to get other data, expected these; start hosts with those data"
        )

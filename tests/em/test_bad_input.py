"""Clients, models and their parts refuse what they cannot use in one line: found, expected, remedy."""

from __future__ import annotations

import inspect
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import scool_ppl
from scool_ppl import (
    EM,
    BlockBernoulli,
    Clients,
    CooperationModel,
    Evidence,
    Federation,
    GraphPrior,
    NaturalGradient,
    OneHot,
    ProjectedGradient,
    Schedule,
    SVIStep,
    likelihoods,
    load_model,
    mixing,
    priors,
)
from scool_ppl.graph.candidates import Peers
from scool_ppl.look.peers import PeerPolicy
from scool_ppl.train.contract import Plan
from scool_ppl.train.networks import MLP
from scool_ppl.train.round_start import Remembered, RoundStart
from tests.helpers.refusals import Case, refused, refuses
from tests.helpers.small import brief

NAN, INF = math.nan, math.inf
X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y, OWNER = torch.arange(24) % 3, torch.arange(24) // 8
SPLIT = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2] * 3)
TINY = Federation.from_arrays(X, Y, OWNER, split=SPLIT)
NEWCOMER = replace(Federation.from_arrays(X + 1, Y, OWNER, split=SPLIT).select([0]), names=("new",))
CLIENTS = Clients(TINY, executor="stacked")
PARAMS = CLIENTS.init(0)
PAIR = Peers.everybody(2)


def unvalidated() -> Federation:
    return Federation.from_arrays(X, Y, OWNER, validation=0.0)


def em(model: str = "local", **choices: Any) -> EM:
    return EM(load_model(model, 3, **choices), CLIENTS, Schedule(1, 1))


def two() -> EM:
    return EM(load_model("local", 2), Clients(TINY.select([0, 1]), executor="stacked"))


def rebuilt(federation: Federation) -> CooperationModel:
    return load_model("local", federation.num_clients)


def stepped(model: str, **choices: Any) -> Any:
    run = em(model, **choices)
    return run.step(run.init())


def train(**changes: Any) -> Any:
    return CLIENTS.train(changes.pop("params", PARAMS), None, Plan(**changes))


CLIENT: list[Case] = [
    (lambda: Clients("digits"), "federation is 'digits', expected a Federation; load_federation(spec) makes one"),  # type: ignore[arg-type]
    (lambda: Clients(TINY, MLP(4, 3, (3,))), "network is a MLP, expected a function that makes one"),  # type: ignore[arg-type]
    (lambda: Clients(TINY, "mlp"), "network is 'mlp', expected a function"),  # type: ignore[arg-type]
    (lambda: Clients(TINY, lambda: None), "gave a NoneType"),  # type: ignore[arg-type,return-value]
    (lambda: Clients(TINY, partial(MLP, 5, 3, (3,))), "does not take the federation's inputs of shape (4,)"),
    (lambda: Clients(TINY, partial(MLP, 4, 2, (3,))), "shape (2, 2) for 2 samples, expected (2, 3)"),
    (lambda: Clients(TINY, optimizer="sgd"), "optimizer is 'sgd', expected a function"),  # type: ignore[arg-type]
    (lambda: Clients(TINY, optimizer=partial(torch.optim.SGD, lr=-1)), "optimiser cannot be used"),
    (lambda: Clients(TINY, batch_size=0), "batch_size=0, probe_size=100: expected whole numbers"),
    (lambda: Clients(TINY, batch_size=2.5), "batch_size=2.5"),  # type: ignore[arg-type]
    (lambda: Clients(TINY, executor="stack"), "did you mean 'stacked'?"),
    (lambda: Clients(TINY, device="gpu"), "device 'gpu' cannot be used"),
    (lambda: Clients(TINY, dtype=torch.int64), "dtype is torch.int64, expected one of floating-point"),
    (lambda: Clients(TINY, dtype="float64"), "dtype is 'float64', expected a dtype"),  # type: ignore[arg-type]
    (lambda: CLIENTS.init("a"), "seed is 'a'"),  # type: ignore[arg-type]
    (lambda: train(params={}), "parameter '1.bias' has shape None, expected (3, 64)"),
    (lambda: train(epochs=-1), "epochs=-1, steps=None: expected epochs of at least 0"),
    (lambda: train(steps=0), "steps of at least 1"),
    (lambda: CLIENTS.evaluate(PARAMS, "tset"), "unknown split 'tset'"),
    (lambda: CLIENTS.probe(0, 0, "tset"), "unknown split 'tset'"),
    (lambda: CLIENTS.pair_loss(PARAMS, PAIR, CLIENTS.probe(0, 0)), "peers are of 2 clients, expected 3"),
    (lambda: CLIENTS.pair_loss(PARAMS, Peers.everybody(3), CLIENTS.probe(0, 0), "x"), "unknown whose 'x'"),  # type: ignore[arg-type]
]


class Writes(PeerPolicy):
    """Remembers a plain tensor, or with axes that are not of clients."""

    def __init__(self, entry: Any) -> None:
        self.entry = entry

    def __call__(self, start: RoundStart) -> Peers:
        return Peers.everybody(start.num_clients)

    def to_remember(self, start: RoundStart) -> Any:
        return {"mine": self.entry}


def local(**parts: Any) -> CooperationModel:
    return load_model("local", 3)._replace(**parts)


def stepped_with(peers: PeerPolicy) -> object:
    run = EM(local(peers=peers), CLIENTS)
    return run.step(run.init())


DRIVER: list[Case] = [
    (
        lambda: EM(local(likelihood=lambda evidence: 0), CLIENTS),
        "likelihood of the model is a function, expected a Like",
    ),
    (lambda: EM(local(peers=3), CLIENTS), "peers of the model is 3, expected a PeerPolicy"),
    (lambda: EM(local(mixing=3), CLIENTS), "mixing of the model is 3, expected a Mixing; subclass it"),
    (
        lambda: stepped_with(Writes(torch.zeros(3))),
        "'mine' is to be remembered as a Tensor, expected train.Remembered",
    ),
    (
        lambda: stepped_with(Writes(Remembered(torch.zeros(3, 2), (0, 1)))),
        "'mine' is to be remembered with the axes (0, 1) of clients and has shape (3, 2), expected 3 along each",
    ),
    (lambda: EM("scool_sbm", CLIENTS), "model is 'scool_sbm', expected a CooperationModel; load_model"),  # type: ignore[arg-type]
    (
        lambda: EM(load_model("local", 3), TINY),
        "clients is a Federation, expected Clients; Clients(federation) makes them",
    ),  # type: ignore[arg-type]
    (lambda: EM(load_model("local", 4), CLIENTS), "the model is for 4 clients, the federation has 3"),
    (lambda: EM(load_model("local", 3), CLIENTS, 5), "schedule is 5, expected a Schedule"),  # type: ignore[arg-type]
    (lambda: EM(load_model("local", 3), CLIENTS, seed="a"), "seed is 'a'"),  # type: ignore[arg-type]
    (lambda: EM(load_model("local", 3), CLIENTS, seed=1.5), "seed is 1.5"),  # type: ignore[arg-type]
    (lambda: em().fit(0), "rounds is 0, expected a whole number of at least 1"),
    (lambda: em().fit(1.5), "rounds is 1.5"),  # type: ignore[arg-type]
    (lambda: em().fit("3"), "rounds is '3'"),  # type: ignore[arg-type]
    (lambda: em().fit(1, checkpoint_every="2"), "checkpoint_every is '2', expected a whole number"),  # type: ignore[arg-type]
    (lambda: em().fit(1, keep=1.5), "keep is 1.5, expected a whole number"),  # type: ignore[arg-type]
    (lambda: em().fit(1, run=3), "run is 3, expected a"),  # type: ignore[arg-type]
    (lambda: em().fit(1, state=3), "state is 3, expected a EMState"),  # type: ignore[arg-type]
    (lambda: em().fit(1, callbacks=[3]), "callback is 3, expected a Callable"),  # type: ignore[list-item]
    (lambda: em().resume(None), "run is None, expected a"),  # type: ignore[arg-type]
    (lambda: em().step(em().init(), absent=3), "absent is 3, expected a Collection"),  # type: ignore[arg-type]
    (lambda: em().leave(em().init(), 3, rebuilt), "names is 3, expected a Collection"),  # type: ignore[arg-type]
    (lambda: em().leave(None, ["0"], rebuilt), "state is None, expected a EMState"),  # type: ignore[arg-type]
    (lambda: em().leave(em().init(), [TINY.names[0]], None), "build is None, expected a Callable"),  # type: ignore[arg-type]
    (lambda: em().join(em().init(), NEWCOMER, rebuilt, None), "unknown start 'None'"),  # type: ignore[arg-type]
    (lambda: em().join(two().init(), NEWCOMER, rebuilt), "the state is of [2] clients, expected 3"),
    (lambda: em().step(None), "state is None, expected a EMState; take it from init"),  # type: ignore[arg-type]
    (
        lambda: em().step(em().init()._replace(params={n: v[:2] for n, v in PARAMS.items()})),
        "the state is of [2] clients",
    ),
    (
        lambda: em("scool_sbm").step(em("scool_sbm", blocks=3).init()),
        "parameter 'B_unconstrained' has shape (3, 3), expected",
    ),
    (lambda: em("l2c").step(em().init()), "parameter 'alpha' has shape None"),
    (lambda: em().graph(em().init()), "call step first"),
    (lambda: em().evaluate(em().init(), "tset"), "unknown split"),
    (lambda: Schedule(-1), "local_epochs=-1"),
    (lambda: Schedule(1.5), "local_epochs=1.5"),  # type: ignore[arg-type]
    (lambda: Schedule("5"), "local_epochs=5"),  # type: ignore[arg-type]
    (lambda: Schedule(local_steps=0), "local_steps=0"),
    (lambda: stepped("fedfomo", norm=-1.0), "norm is -1.0, expected a positive number; 1 and 2 are usual"),
    (lambda: stepped("l2c", learning_rate=-1.0), "the optimiser refuses its settings: Invalid learning rate: -1"),
    (lambda: stepped("latent_space", learning_rate=-1.0), "the optimiser refuses its settings"),
    (
        lambda: EM(load_model("fedfomo", 3), Clients(unvalidated()), Schedule(1, 1)).fit(1, progress=False),
        "no validation images of client 0, client 1, client 2, this model needs them",
    ),
]


PARTS: list[Case] = [
    (lambda: GraphPrior(0), "num_clients is 0"),
    (lambda: GraphPrior(2.5), "num_clients is 2.5"),  # type: ignore[arg-type]
    (lambda: GraphPrior(2)(Evidence.given(loss=torch.zeros(2, 2))), "has no `model`"),
    (lambda: priors.SBM(3)(Evidence.given(loss=torch.zeros(2, 2))), "the prior is for 3 clients, the evidence has 2"),
    (lambda: priors.SBM(3, alpha=NAN), "alpha=nan"),
    (lambda: priors.SBM(3, alpha=INF), "alpha=inf"),
    (lambda: priors.SBM(3, 2.5), "num_blocks=2.5"),  # type: ignore[arg-type]
    (lambda: priors.SBM(3, temper=NAN), "temper=nan"),
    (lambda: priors.SBM(3, inside=NAN), "inside=nan"),
    (lambda: priors.SBM(3, clamp=0.5), "clamp=0.5"),
    (lambda: priors.Dirac(torch.zeros(2, 3)), "graph has shape (2, 3), expected (K, K)"),
    (lambda: priors.Dirac(torch.zeros(0, 0)), "graph has shape (0, 0)"),
    (lambda: priors.Dirac([[0.0]]), "weights of Dirac is a list, expected a Tensor"),  # type: ignore[arg-type]
    (lambda: priors.Dirac(torch.full((2, 2), NAN)), "non-finite weights"),
    (lambda: priors.Attention(3, scale=NAN), "scale=nan"),
    (lambda: priors.Box(3, start=NAN), "start=nan"),
    (lambda: priors.ModelMixture(3, floor=NAN), "floor=nan"),
    (lambda: Evidence.given(loss=torch.zeros(3)), "shape (3,), expected floating-point (clients, candidates)"),
    (lambda: Evidence.given(loss=[[0.0]]), "loss is a list, expected a Tensor"),  # type: ignore[arg-type]
    (lambda: Evidence.given(loss=torch.zeros(2, 2, dtype=torch.long)), "loss is torch.int64"),
    (lambda: Evidence.given(loss=torch.zeros(0, 0)), "shape (0, 0)"),
    (lambda: Evidence.given(loss=torch.zeros(3, 2)), "expected (3, 3)"),
    (
        lambda: Evidence.given(loss=torch.zeros(2, 2), label_entropy=torch.zeros(3)),
        "label_entropy has shape (3,), expected",
    ),
    (lambda: likelihoods.CrossLoss()(Evidence.given(loss=torch.zeros(2, 2))), "given without clients"),
    (lambda: likelihoods.CrossLoss(n_eff=NAN), "n_eff=nan"),
    (lambda: likelihoods.CrossLoss(n_eff=INF), "n_eff=inf"),
    (lambda: likelihoods.CrossLoss(temperature=0), "temperature=0"),
    (lambda: likelihoods.CrossLoss(reference="x"), "unknown reference 'x'"),  # type: ignore[arg-type]
    (lambda: likelihoods.ModelMixture(n_eff=NAN), "n_eff=nan"),
    (lambda: likelihoods.ModelMixture(average=NAN), "average=nan"),
    (lambda: likelihoods.GradientAlignment(0), "temperature=0"),
    (lambda: likelihoods.MixedValidation(-1), "n_eff=-1"),
    (lambda: likelihoods.ModelDistance(NAN), "kappa=nan"),
    (lambda: mixing.MixModels("x"), "base='x'"),  # type: ignore[arg-type]
    (lambda: mixing.Pull(NAN), "strength=nan"),
    (lambda: mixing.Pull(INF), "strength=inf"),
    (lambda: mixing.MixUpdates("auto"), "clip=auto, expected a positive radius, or none"),  # type: ignore[arg-type]
    (lambda: NaturalGradient(sweeps=2.5), "sweeps=2.5"),  # type: ignore[arg-type]
    (lambda: NaturalGradient(step=NAN), "step=nan"),
    (lambda: NaturalGradient(tol=NAN), "a finite tol"),
    (lambda: ProjectedGradient(step=INF), "step=inf"),
    (lambda: ProjectedGradient(domain="boxx"), "did you mean 'box'?"),  # type: ignore[arg-type]
    (lambda: SVIStep(steps=0), "steps=0"),
    (lambda: SVIStep(optim=torch.optim.Adam), "optim of SVIStep is a type, expected a PyroOptim"),  # type: ignore[arg-type]
    (lambda: OneHot(), "got both or neither of probs and logits"),
    (lambda: BlockBernoulli(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 2)), "memberships of 3 and 3 blocks"),
]


TABLE = [*CLIENT, *DRIVER, *PARTS]


@refused(TABLE)
def test_one_line_says_what_is_wrong(call: Any, words: str) -> None:
    refuses(call, words)


ROOMS = Path(__file__).parents[1]
REFUSED_IN = {
    "Federation": ("data/test_federation.py", "Federation.from_npz("),
    "load_federation": ("data/test_specs.py", "load_federation("),
    "CooperationGraph": ("graph/test_cooperation.py", "CooperationGraph("),
    "peers": ("look/test_peers.py", "RandomPairs("),
    "load_model": ("zoo/test_bad_input.py", "load_model("),
}
"""Where public names are given what they cannot use, if not in this file, and by which call."""


def test_every_public_name_is_given_what_it_cannot_use() -> None:
    """All of __all__ take arguments and are tried, but for those that take what Pyro gives them."""
    given_by_pyro = {"AutoMeanField", "MomentELBO", "InputError", "CooperationModel"}
    here = inspect.getsource(sys.modules[__name__])
    for name in set(scool_ppl.__all__) - given_by_pyro:
        if name in REFUSED_IN:
            file, call = REFUSED_IN[name]
            assert call in (ROOMS / file).read_text(), name
        else:
            assert f"{name}(" in here or f"{name}." in here, name


@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("model", ["scool_sbm", "scool_attention", "fedavg", "federico", "cobo"])
def test_few_clients_with_few_images_are_no_error(model: str, size: int, samples: int) -> None:
    """One client or two, of whom one has a single image: numbers stay finite."""
    owner = torch.tensor([0] * samples + [1] * 5 * (size - 1))
    few = Federation.from_arrays(X[: len(owner)], Y[: len(owner)], owner, split=torch.zeros_like(owner), num_classes=3)
    run = EM(brief(load_model(model, size, federation=few)), Clients(few, executor="stacked"), Schedule(1, 1))
    state = run.init()
    for _ in range(2):
        state, info = run.step(state)
        assert not info.quarantined
    assert all(bool(value.isfinite().all()) for value in (*state.params.values(), state.moments["Y"]))

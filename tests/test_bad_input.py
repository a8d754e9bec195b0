"""Every public entry refuses what it cannot use in one line: found, expected, remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import scool_ppl
from scool_ppl import (
    EM,
    BlockBernoulli,
    Clients,
    CooperationGraph,
    Evidence,
    Federation,
    GraphPrior,
    InputError,
    NaturalGradient,
    OneHot,
    ProjectedGradient,
    Schedule,
    SVIStep,
    likelihoods,
    load_federation,
    load_model,
    mixing,
    peers,
    priors,
)
from scool_ppl.cli.main import main
from scool_ppl.em.model import CooperationModel
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.networks import MLP
from scool_ppl.zoo.load import model_names

NAN, INF = math.nan, math.inf
X, Y, OWNER = (
    torch.randn(24, 4, generator=torch.Generator().manual_seed(0)),
    torch.arange(24) % 3,
    torch.arange(24) // 8,
)
SPLIT = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2] * 3)
TINY = Federation.from_arrays(X, Y, OWNER, split=SPLIT)
NEWCOMER = replace(Federation.from_arrays(X + 1, Y, OWNER, split=SPLIT).select([0]), names=("new",))
CLIENTS = Clients(TINY, executor="stacked")
PARAMS = CLIENTS.init(0)
PAIR = Peers.everybody(2)
Call = Callable[[], Any]


def arrays(**changes: Any) -> Federation:
    return Federation.from_arrays(**{"inputs": X, "targets": Y, "clients": OWNER, **changes})


def em(model: str = "local", **choices: Any) -> EM:
    return EM(load_model(model, 3, **choices), CLIENTS, Schedule(1, 1))


def two() -> EM:
    return EM(load_model("local", 2), Clients(TINY.select([0, 1]), executor="stacked"))


def rebuilt(federation: Federation) -> CooperationModel:
    return load_model("local", federation.num_clients)


def stepped(model: str, **choices: Any) -> Any:
    run = em(model, **choices)
    return run.step(run.init())


def graph(**changes: Any) -> CooperationGraph:
    return CooperationGraph(**{"weights": torch.zeros(2, 2), "names": ("a", "b"), "peers": PAIR, **changes})


def train(**changes: Any) -> Any:
    return CLIENTS.train(changes.pop("params", PARAMS), None, **{"epochs": 1, "seed": 0, "round": 0, **changes})


FEDERATION: list[tuple[Call, str]] = [
    (lambda: arrays(inputs=torch.randn(24)), "shape (24,), expected float32 (N, ...)"),
    (lambda: arrays(inputs=[["a"] * 4] * 24), "cannot be read as one array of numbers"),
    (
        lambda: arrays(inputs=torch.where(torch.arange(24)[:, None] == 5, NAN, X)),
        "input 5 holds NaN or infinity, expected",
    ),
    (lambda: arrays(inputs=X * INF), "input 0 holds NaN or infinity"),
    (lambda: arrays(targets=Y + 0.5), "expected whole numbers"),
    (lambda: arrays(targets=Y - 1), "targets run from -1 to 1, expected 0 to"),
    (lambda: arrays(targets=Y[:5]), "expected int64 (24,)"),
    (lambda: arrays(num_classes=2), "targets run from 0 to 2, expected 0 to 1"),
    (lambda: arrays(num_classes=-1), "num_classes is -1, expected a whole number of at least 0"),
    (lambda: arrays(num_classes=2.5), "num_classes is 2.5, expected a whole number"),
    (lambda: arrays(names=["a", "a", "b"]), "names ['a'] are repeated or empty"),
    (lambda: arrays(names=["a"]), "1 names for 3 clients, expected one name a client"),
    (lambda: arrays(names="abc"), "names is the text 'abc', expected a list"),
    (lambda: arrays(validation=1.5), "validation=1.5 and test=0.2, expected fractions"),
    (lambda: arrays(validation=NAN), "validation=nan and test=0.2"),
    (lambda: arrays(validation=0.6, test=0.6), "validation=0.6 and test=0.6"),
    (lambda: arrays(seed="a"), "seed is 'a', expected a whole number"),
    (lambda: arrays(clients=OWNER[:3]), "3 client ids for 24 rows"),
    (lambda: arrays(clients=[[0, 1], [1, 2], [99]]), "index lists hold 0 to 99, expected 0 to 23"),
    (lambda: arrays(clients=[]), "0 client ids for 24 rows"),
    (lambda: arrays(split=torch.full((24,), 5)), "split runs from 5 to 5, expected 0 train"),
    (lambda: arrays(split=torch.full((24,), 2)), "has no training data, expected at least one row"),
    (lambda: arrays(groups=[0, 1]), "2 groups for 3 clients"),
    (lambda: arrays(truth=torch.ones(2, 2)), "truth has shape (2, 2), expected (3, 3)"),
    (lambda: arrays(truth=torch.full((3, 3), NAN)), "truth must be finite"),
    (lambda: Federation.from_datasets([]), "inputs of shapes []"),
    (lambda: Federation.from_datasets([TensorDataset(X)]), "expected a pair (input, label)"),
    (lambda: Federation.from_npz("nowhere.npz"), "no file nowhere.npz"),
    (lambda: Federation.from_npz(None), "path is None, expected"),  # type: ignore[arg-type]
    (lambda: TINY.select([]), "no clients, expected at least one"),
    (lambda: TINY.select([0, 0]), "names ['client 0'] are repeated"),
    (lambda: TINY.select(["client 0"]), "select was given client 'client 0', expected a position from 0 to 2"),  # type: ignore[list-item]
    (lambda: TINY.select([-1]), "select was given client -1"),
    (lambda: TINY.sizes("tset"), "unknown split 'tset'; known: test, train, validation; did you mean 'test'?"),
    (lambda: TINY.labels(9, torch.tensor([0])), "labels was given client 9, expected a position from 0 to 2"),
    (lambda: TINY.labels(0, torch.tensor([99])), "labels was given rows 99 to 99, expected 0 to 23"),
    (lambda: TINY.classes(9), "classes was given client 9"),
    (lambda: TINY.join(TINY), "are repeated or empty"),
    (lambda: TINY.join("x"), "newcomers is 'x', expected a Federation"),  # type: ignore[arg-type]
    (
        lambda: TINY.join(load_federation("digits", clients=4)),
        "expected classification of 3 outputs from inputs",
    ),
    (lambda: load_federation(3), "federation is 3, expected a str; name it, e.g. 'digits'"),  # type: ignore[arg-type]
    (lambda: load_federation(""), "unknown dataset ''; known: "),
    (lambda: load_federation("digits", clients=0), "clients is 0, expected a whole number of at least 1"),
    (lambda: load_federation("digits", clients=2.5), "clients is 2.5, expected a whole number"),  # type: ignore[arg-type]
    (lambda: load_federation("digits", seed=1.5), "seed is 1.5, expected a whole number"),  # type: ignore[arg-type]
    (lambda: load_federation("iid:digits:client=3"), "did you mean 'clients'?"),
    (lambda: load_federation("iid:digits:clients=3,clients=4"), "given twice"),
    (lambda: load_federation("iid:digits:clients=100000"), "the pool has 1297; lower clients"),
]

CLIENT: list[tuple[Call, str]] = [
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
    (lambda: CLIENTS.pair_loss(PARAMS, Peers.everybody(3), CLIENTS.probe(0, 0), model="x"), "unknown model 'x'"),  # type: ignore[arg-type]
]

DRIVER: list[tuple[Call, str]] = [
    (lambda: EM("scool_sbm", CLIENTS), "model is 'scool_sbm', expected a CooperationModel; load_model"),  # type: ignore[arg-type]
    (lambda: EM(load_model("local", 3), TINY), "clients is a Federation, expected a Clients"),  # type: ignore[arg-type]
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
]

MODELS: list[tuple[Call, str]] = [
    (lambda: load_model(None, 3), "model is None, expected a name or the path"),  # type: ignore[arg-type]
    (lambda: load_model("scool_sbn", 3), "unknown model 'scool_sbn'; known: "),
    (lambda: load_model("local", 0), "num_clients is 0, expected a whole number of at least 1"),
    (lambda: load_model("local", 2.5), "num_clients is 2.5"),  # type: ignore[arg-type]
    (lambda: load_model("local", "3"), "num_clients is '3'"),  # type: ignore[arg-type]
    (lambda: load_model("fedavg", 3, federation="digits"), "federation is 'digits', expected a Federation"),  # type: ignore[arg-type]
    (lambda: load_model("fedavg", 4, federation=TINY), "the federation has 3 clients, num_clients is 4"),
    (lambda: load_model("oracle", 3), "'oracle' needs truth"),
    (
        lambda: load_model("oracle", 3, truth=torch.ones(2, 2)),
        "truth is of shape (2, 2), expected a tensor with 3 clients",
    ),
    (lambda: load_model("fedavg", 3, samples=[1, 2, 3]), "samples is list, expected a tensor"),
    (lambda: load_model("scool_sbm", 3, block=4), "did you mean 'blocks'?"),
    (lambda: load_model("scool_sbm", 3, blocks=2.5), "blocks of scool_sbm is 2.5"),
    (lambda: load_model("scool_sbm", 3, blocks="3"), "blocks of scool_sbm is '3', expected a whole number"),
    (lambda: load_model("scool_sbm", 3, blocks=0), "expected at least one block"),
    (lambda: load_model("scool_sbm", 3, reference="midpiont"), "did you mean 'midpoint'?"),
    (lambda: load_model("scool_sbm", 3, clip=0.0), "clip=0.0, expected a positive radius"),
    (lambda: load_model("scool_sbm", 3, keep=0), "keep=0"),
    (lambda: load_model("dpsgd", 3, topology="rign"), "did you mean 'ring'?"),
    (lambda: load_model("dpsgd", 3, groups=0), "groups=0"),
    (lambda: load_model("dpsgd", 3, learning_rate=0.0), "learning_rate=0.0"),
    (lambda: load_model("ditto", 3, strength=-1.0), "strength is -1.0, expected at least 0"),
    (lambda: load_model("dada", 3, degree=-1.0), "degree=-1.0"),
    (lambda: load_model("latent_space", 3, spread=-1.0), "spread is -1.0"),
    (lambda: load_model("covariate_sbm", 3, covariate="a.b.c"), "covariate is 'a.b.c', expected whole numbers"),
    (lambda: load_model("covariate_sbm", 3, covariate="0.0"), "covariate has 2 entries, expected 3"),
    (lambda: load_model("meta_l2c", 3, encoder="nowhere"), "cannot read an encoder from 'nowhere'"),
    (lambda: stepped("fedfomo", norm=-1.0), "norm is -1.0, expected a positive number; 1 and 2 are usual"),
    (lambda: stepped("l2c", learning_rate=-1.0), "the optimiser refuses its settings: Invalid learning rate: -1"),
    (lambda: stepped("latent_space", learning_rate=-1.0), "the optimiser refuses its settings"),
    (
        lambda: EM(load_model("fedfomo", 3), Clients(arrays(validation=0.0)), Schedule(1, 1)).fit(1, progress=False),
        "a client has no validation images, this model needs them",
    ),
]

PARTS: list[tuple[Call, str]] = [
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
    (lambda: peers.Top(0), "keep=0"),
    (lambda: peers.Top(1.5), "keep=1.5"),  # type: ignore[arg-type]
    (lambda: peers.EpsilonGreedy(epsilon=NAN), "epsilon=nan"),
    (lambda: peers.EpsilonGreedy(decay=NAN), "decay=nan"),
    (lambda: peers.RandomPairs("x"), "unknown schedule 'x'"),  # type: ignore[arg-type]
    (lambda: peers.RandomPairs(warmup=-1), "warmup of RandomPairs is -1"),
    (lambda: NaturalGradient(sweeps=2.5), "sweeps=2.5"),  # type: ignore[arg-type]
    (lambda: NaturalGradient(step=NAN), "step=nan"),
    (lambda: NaturalGradient(tol=NAN), "a finite tol"),
    (lambda: ProjectedGradient(step=INF), "step=inf"),
    (lambda: ProjectedGradient(domain="boxx"), "did you mean 'box'?"),  # type: ignore[arg-type]
    (lambda: SVIStep(steps=0), "steps=0"),
    (lambda: SVIStep(optim=torch.optim.Adam), "optim of SVIStep is a type, expected a PyroOptim"),  # type: ignore[arg-type]
    (lambda: OneHot(), "got both or neither of probs and logits"),
    (lambda: BlockBernoulli(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 2)), "memberships of 3 and 3 blocks"),
    (lambda: graph(names=("a", "a")), "names of clients repeat"),
    (lambda: graph(weights=torch.zeros(3, 3)), "weights of shape (3, 3)"),
    (lambda: graph(weights=torch.full((2, 2), NAN)), "not finite"),
    (lambda: graph(weights=torch.full((2, 2), 3.0)), "expected probabilities in [0, 1]"),
    (lambda: graph(kind="edge"), "did you mean 'edges'?"),
    (lambda: graph(groups=(1,)), "groups has 1 entries, expected 2"),
    (lambda: graph().sample(-1), "num_samples is -1, expected a whole number of at least 0"),
    (lambda: graph().score(torch.zeros(3, 3)), "truth has shape (3, 3), expected (2, 2)"),
    (lambda: graph().save("graph.foo"), "expected .graphml or .gexf"),
    (lambda: CooperationGraph.load("nowhere.graphml"), "nowhere.graphml"),
]

TABLE = [*FEDERATION, *CLIENT, *DRIVER, *MODELS, *PARTS]


@pytest.mark.parametrize(
    ("call", "words"), TABLE, ids=[f"{number}-{words[:40]}" for number, (_, words) in enumerate(TABLE)]
)
def test_one_line_says_what_is_wrong(call: Call, words: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    line = str(caught.value)
    assert words in line
    assert "\n" not in line


def test_every_public_name_is_in_the_table() -> None:
    """All of __all__ take arguments and are tried above, but for those that take what Pyro gives them."""
    import inspect

    text = inspect.getsource(inspect.getmodule(test_every_public_name_is_in_the_table))  # type: ignore[arg-type]
    given_by_pyro = {"AutoMeanField", "MomentELBO", "InputError", "CooperationModel"}
    for name in set(scool_ppl.__all__) - given_by_pyro:
        assert f"{name}(" in text.replace(f"{name}.", f"{name}("), name


@pytest.mark.parametrize("value", [NAN, INF, "x"], ids=str)
@pytest.mark.parametrize("model", model_names())
def test_no_hyperparameter_takes_what_is_no_number(model: str, value: object) -> None:
    """Every number of every model, by its own signature."""
    from scool_ppl.zoo.load import hyperparameters

    for name, parameter in hyperparameters(model).items():
        if isinstance(parameter.default, bool | int | float):
            with pytest.raises(InputError, match=f"hyperparameter {name} of {model} is "):
                load_model(model, 3, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("model", ["scool_sbm", "scool_attention", "fedavg", "federico", "cobo"])
def test_few_clients_with_few_images_are_no_error(model: str, size: int, samples: int) -> None:
    """One client or two, of whom one has a single image: numbers stay finite."""
    owner = torch.tensor([0] * samples + [1] * 5 * (size - 1))
    few = Federation.from_arrays(X[: len(owner)], Y[: len(owner)], owner, split=torch.zeros_like(owner), num_classes=3)
    run = EM(load_model(model, size, federation=few), Clients(few, executor="stacked"), Schedule(1, 1))
    state = run.init()
    for _ in range(2):
        state, info = run.step(state)
        assert not info.quarantined
    assert all(bool(value.isfinite().all()) for value in (*state.params.values(), state.moments["Y"]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "--clients=0"], "clients is 0"),
        (["fit", "local", "--rounds=0"], "rounds=0"),
        (["fit", "scool_sbm", "clip=-1"], "clip=-1.0, expected a positive radius"),
        (["fit", "ditto", "strength=-1"], "strength is -1.0"),
        (["fit", "l2c", "learning_rate=-1", "--warmup-epochs=1"], "Invalid learning rate"),
        (["fit", "latent_space", "spread=0"], "spread is 0.0"),
        (["check", "nowhere.py"], "no model file at 'nowhere.py'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_command_line_ends_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments + (["--quiet"] if arguments[0] == "fit" else []))
    line = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in line
    assert line.count("\n") == 1


def test_a_run_in_which_all_clients_fail_ends_with_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["fit", "fedavg", "--clients=4", "--learning-rate=1e30", "--warmup-epochs=3", "--quiet"])
    assert ended.value.code == 3
    assert "all clients failed in round 1 (client 0: its training loss is not finite" in capsys.readouterr().err

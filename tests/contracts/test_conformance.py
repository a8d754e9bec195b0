"""One suite for every model file, and so for every prior, likelihood, mixing rule, peer policy and E-step."""

from __future__ import annotations

import copy
import gc

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import Predictive

from scool_ppl import EM, Clients, InputError, SVIStep
from scool_ppl.base.randomness import generator
from scool_ppl.infer.estep import Posterior
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import RoundEvidence
from scool_ppl.workbench import Settings
from scool_ppl.zoo.load import model_names
from tests.helpers.models import FEDERATION, SCHEDULE, looked, made
from tests.helpers.states import flattened

BY_POSITION = {"dpsgd": "its graph is a ring of the list", "ring": "its prior is a ring of the list"}
BY_DRAWS = {"latent_space": "its places are drawn, and inferred from draws"}


@pytest.mark.parametrize("model", model_names())
def test_the_prior_is_a_pyro_program(model: str) -> None:
    em = made(model)
    evidence = looked(em)
    shape = tuple(evidence.peers.mask.shape)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trace = poutine.trace(em.model.prior).get_trace(evidence)
        draws = Predictive(em.model.prior, num_samples=3, return_sites=["Y"])(evidence)["Y"]
    assert tuple(trace.nodes["_RETURN"]["value"].shape) == shape
    assert tuple(draws.shape) == (3, *shape)
    assert bool(torch.isfinite(draws).all())
    assert "Y" in pyro.render_model(em.model.prior, model_args=(evidence,)).source
    assert not pyro.get_param_store().keys()


@pytest.mark.parametrize("model", model_names())
def test_masked_candidates_have_weight_zero_in_the_graph(model: str) -> None:
    em = made(model)
    state, info = em.step(em.init())
    graph = em.graph(state)
    assert not graph.weights[~graph.peers.mask].any()
    assert state.peers is not None
    assert not state.moments["Y"][~state.peers.mask].any(), "what callbacks and other rounds see"
    assert bool(torch.isfinite(graph.weights).all())
    assert bool(torch.isfinite(torch.tensor(info.elbo)))
    if not em.model.prior.includes_self:
        assert not graph.dense().diagonal().any()
    if graph.kind == "rows":
        sums = graph.weights.sum(1)
        assert bool((((sums - 1).abs() < 1e-6) | (sums == 0)).all())


@pytest.mark.parametrize("model", model_names())
def test_the_state_is_everything(model: str) -> None:
    """Another EM that is given a copy of the state goes on with the same bits: nothing hides anywhere else."""
    em = made(model)
    state, _ = em.step(em.init())
    em.step(state)  # whatever it leaves behind in the EM must not matter
    there, _ = made(model).step(copy.deepcopy(state))
    here, _ = em.step(state)
    one, other = flattened(here), flattened(there)
    assert one.keys() == other.keys()
    assert all(torch.equal(value.nan_to_num(-9.0), other[name].nan_to_num(-9.0)) for name, value in one.items())


@pytest.mark.parametrize("model", model_names())
def test_a_round_leaves_no_networks_in_cycles(model: str) -> None:
    """Stacks of networks that only the collector of cycles would find pile up until it happens to run."""
    em = made(model)
    state, _ = em.step(em.init())
    shapes = {value.shape for value in state.params.values()}
    gc.disable()
    gc.freeze()  # what is here already is not looked at
    try:
        em.step(state)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [type(found).__name__ for found in gc.garbage if isinstance(found, RoundEvidence)]
        left += [f"stack {shape}" for found in gc.garbage if (shape := stack_shape(found)) in shapes]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
    assert not left


def stack_shape(found: object) -> torch.Size | None:
    return found.shape if isinstance(found, torch.Tensor) else None


@pytest.mark.parametrize("model", [name for name in model_names() if name not in (*BY_POSITION, *BY_DRAWS)])
def test_relabelling_the_clients_relabels_the_result(model: str) -> None:
    order = [2, 0, 3, 1]
    here: dict[str, object] = {}
    there: dict[str, object] = {}
    if model == "covariate_sbm":
        here, there = {"covariate": "0.0.1.1"}, {"covariate": "1.0.1.0"}
    results = []
    for federation, choices in ((FEDERATION, here), (FEDERATION.select(order), there)):
        em = made(model, federation, **choices)
        state = em.init()
        for _ in range(2):
            state, _ = em.step(state)
        results.append((em.graph(state).dense().double(), state.params))
    (graph, params), (moved, moved_params) = results
    assert torch.allclose(graph[order][:, order], moved, atol=1e-4)
    for name, value in params.items():
        assert torch.allclose(value[order], moved_params[name], atol=1e-4)


@pytest.mark.parametrize("model", model_names())
def test_an_isolated_client_keeps_to_itself_and_nobody_hears_of_it(model: str) -> None:
    """Client 0 takes part with nobody: everything is finite, and the others do not depend on its network."""
    em = made(model)
    start = em.round_start(em.init())
    trained = em.train(em.init(), start).trained.params
    results = []
    for scale in (1.0, 3.0):
        changed = {name: value.clone() for name, value in trained.items()}
        for value in changed.values():
            value[0] *= scale
        evidence = RoundEvidence(start, changed, em.model.peers(start), em.model.needs)
        mask = evidence.peers.mask.clone()
        mask[0] = mask[:, 0] = False
        evidence.peers = evidence.peers._replace(mask=mask)
        joint = Joint(em.model.prior, em.model.likelihood(evidence))
        posterior, _ = em.infer(em.init(), evidence, joint)
        mixed = em.mix(em.init(), changed, posterior, evidence.peers)
        assert all(bool(torch.isfinite(value).all()) for value in (*mixed.values(), *posterior.moments.values()))
        results.append((posterior.moments["Y"], mixed))
    looked_at = mask[1:, 1:]
    assert torch.allclose(results[0][0][1:, 1:][looked_at], results[1][0][1:, 1:][looked_at], atol=1e-6)
    for name, value in results[0][1].items():
        assert torch.allclose(value[1:], results[1][1][name][1:], atol=1e-6)


NO_SVI = {
    "blocks": "not linear in its moments",
    "hedge": "not linear in its moments",
    "cobo": "point mass",
    "dada": "point mass",
    "pfedgraph": "point mass",
    "meta_l2c": "weight decay",
    "scool_attention": "weight decay",
}
CHOSEN: list[tuple[str, dict[str, object]]] = [("federico", {"learn": True}), ("fedfomo", {"fallback": "trained"})]


@pytest.mark.parametrize(
    ("model", "choices"), [(name, {}) for name in model_names() if name not in BY_DRAWS] + CHOSEN, ids=str
)
def test_svi_ends_where_the_models_own_e_step_does_or_is_refused(model: str, choices: dict[str, object]) -> None:
    """On the evidence of one round, on which the model's own goes on until its bound rises no more."""
    built = [Settings().model(model, FEDERATION, **choices)]
    if model in NO_SVI:
        with pytest.raises(InputError, match=f"e-step 'svi' was asked for.*{NO_SVI[model]}.*; leave --e-step out"):
            Settings(e_step="svi").model(model, FEDERATION, **choices)
        return
    built.append(Settings(e_step="svi").model(model, FEDERATION, **choices))
    ends: list[Posterior] = []
    for each in built:
        em = EM(each, Clients(FEDERATION, executor="stacked", dtype=torch.float64), SCHEDULE, seed=1)
        start = em.round_start(em.init())
        look = em.look(start, em.train(em.init(), start).trained.params)
        found, before = em.model.e_step(look.joint, look.evidence, {}, generator(0, "conformance")), -torch.inf
        repeats = 0 if em.model.prior.accumulates or isinstance(em.model.e_step, SVIStep) else 40
        while repeats and found.elbo - before > 1e-4:
            before, repeats = found.elbo, repeats - 1
            found = em.model.e_step(look.joint, look.evidence, found.q, generator(0, "conformance"))
        ends.append(found)
    own, svi = ends
    assert torch.allclose(own.moments["Y"], svi.moments["Y"].to(own.moments["Y"]), atol=0.03)
    assert svi.elbo > own.elbo - 4, "a few nats are the parameters', which SVI's steps have not all moved to the end"

"""GraphPrior and Joint: what every prior can do because it is a Pyro program."""

from __future__ import annotations

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import Predictive

from scool_ppl import GraphPrior, InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.moments import log_joint
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import Positions, known_blocks, some_masked, without_client
from tests.helpers.small import close, normal


def test_everything_of_pyro_works_on_a_prior() -> None:
    evidence = evidence_of(random_log_lik(4))
    prior = SBM(4, 2)
    assert "Y" in pyro.render_model(prior, model_args=(evidence,)).source
    trace = poutine.trace(prior).get_trace(evidence)
    trace.compute_log_prob()
    assert torch.equal(trace.nodes["_RETURN"]["value"], trace.nodes["Y"]["value"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = Predictive(prior, num_samples=200)(evidence)
    assert draws["Y"].shape == (200, 4, 4)
    assert set(draws["Y"].unique().tolist()) == {0.0, 1.0}
    z = draws["z"].reshape(200, 4, 2)
    same = (z[:, 0] * z[:, 1]).sum(-1) > 0.5
    assert draws["Y"][same, 0, 1].mean() > 0.8 > 0.2 > draws["Y"][~same, 0, 1].mean()


def test_a_prior_without_a_model_is_refused() -> None:
    with pytest.raises(InputError, match="Empty has no `model`; write one"):
        type("Empty", (GraphPrior,), {})(3)(evidence_of(random_log_lik(3)))


def test_a_prior_for_other_clients_is_refused() -> None:
    with pytest.raises(InputError, match="the prior is for 4 clients, the evidence has 3; build it with num_clients=3"):
        SBM(4, 2)(evidence_of(random_log_lik(3)))


def test_the_plates_are_open_only_while_the_prior_runs() -> None:
    prior, evidence = SBM(3, 2), evidence_of(random_log_lik(3))
    for use in (lambda: prior.model(evidence), lambda: prior.sender(torch.ones(3)), lambda: prior.row_logits(evidence)):
        with pytest.raises(InputError, match=r"plates are open only while it runs; call prior\(evidence\)"):
            use()
    with prior.opened(evidence):
        assert prior.sender(torch.ones(3)).shape == (1, 3)
    with pytest.raises(InputError, match="plates are open only"):
        prior.sender(torch.ones(3))


def test_senders_are_seen_by_those_who_have_them_as_candidates() -> None:
    senders = torch.tensor([[1, 2], [2, 0], [0, 1]])
    x = normal(3, 4)
    prior = Positions(3)
    for peers, seen in (
        (Peers.everybody(3), x[None]),
        (Peers(torch.ones(3, 2, dtype=torch.bool), senders), x[senders]),
    ):
        with prior.opened(Evidence.given(loss=torch.zeros(peers.mask.shape), peers=peers)):
            assert torch.equal(prior.sender(x), seen)
            assert torch.equal(prior.receiver(x), x[:, None])


def test_the_joint_is_the_prior_and_the_evidence_of_the_edges_that_take_part() -> None:
    """As a table, and as a function of the graph; what is masked may be anything."""
    joint, evidence = known_blocks(mask=some_masked(3))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trace = poutine.trace(joint.prior).get_trace(evidence)
    values = {name: trace.nodes[name]["value"] for name in ("pi", "z", "Y")}
    mask = evidence.peers.mask
    expected = trace.log_prob_sum() + (joint.log_lik * values["Y"])[mask].sum()
    spoiled = torch.where(mask, joint.log_lik, torch.tensor(torch.nan).double())
    for log_lik in (joint.log_lik, spoiled, lambda graph: (joint.log_lik * graph)[mask].sum()):
        close(log_joint(Joint(joint.prior, log_lik), values, evidence)[0], expected)
    assert Joint(joint.prior, spoiled).table is spoiled
    assert Joint(joint.prior, lambda graph: graph.sum()).table is None


def test_who_is_absent_has_no_say() -> None:
    prior = SBM(4, 2).double()
    evidence = without_client(evidence_of(random_log_lik(4)), 1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trace = poutine.trace(prior).get_trace(evidence)
    trace.compute_log_prob()
    assert float(trace.nodes["z"]["log_prob"][1].detach()) == 0
    assert bool((trace.nodes["z"]["log_prob"][[0, 2, 3]] != 0).all())
    edges = trace.nodes["Y"]["log_prob"]
    assert not bool(edges[1].any())
    assert not bool(edges[:, 1].any())
    assert bool((edges[0, [2, 3]] != 0).all())


def test_its_state_is_a_copy() -> None:
    prior = SBM(3, 2).double()
    state = prior.state()
    before = {name: value.clone() for name, value in state.items()}
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter += 1
    assert all(torch.equal(value, before[name]) for name, value in state.items())
    assert set(state) == {"B_unconstrained", "alpha_unconstrained"}

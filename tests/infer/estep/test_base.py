"""What every E-step shares: where it starts, closed forms, and leaving the world alone."""

from __future__ import annotations

import pyro
import pytest
import torch
from torch import Tensor

from scool_ppl import (
    AutoMeanField,
    InputError,
    NaturalGradient,
    SVIStep,
)
from scool_ppl.infer.estep.base import filled, optimizer_settings, set_closed_form, softened, starting_points
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.sbm import SBM
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, planted, random_log_lik
from tests.helpers.priors import (
    known_blocks,
    rng,
    sbm,
    scattered,
)
from tests.helpers.small import close, uniform


@pytest.mark.parametrize("step", [NaturalGradient(), SVIStep(steps=20)])
def test_an_e_step_repeats_and_leaves_the_world_alone(step: NaturalGradient | SVIStep) -> None:
    log_lik = random_log_lik(6)
    state, results = torch.get_rng_state(), []
    for _ in range(2):
        results.append(step(Joint(sbm(6, 3), log_lik), evidence_of(log_lik), {}, rng()))
    assert results[0].bounds == results[1].bounds
    assert all(torch.equal(results[0].moments[name], results[1].moments[name]) for name in results[0].moments)
    assert torch.equal(state, torch.get_rng_state())
    assert not pyro.get_param_store().keys()
    assert pyro.settings.get("module_local_params") is False


def test_closed_form_parameters_are_laid_out_as_their_gradients_are() -> None:
    """torch warns in the backward pass where they are not, and MMSBM's B comes out of an einsum that transposes."""

    class Transposed(SBM):
        def closed_form(self, moments: dict[str, Tensor], evidence: Evidence) -> dict[str, Tensor]:
            return {"B": torch.full((2, 3), 0.5).T[:2, :2]}

    prior = Transposed(3, 2)
    set_closed_form(prior, {}, Evidence.given(loss=torch.zeros(3, 3)))
    assert all(parameter.is_contiguous() for parameter in prior.parameters())
    assert torch.allclose(prior.B, torch.full((2, 2), 0.5).double())


def test_a_start_is_where_the_guide_begins_and_the_rest_is_flat_or_random() -> None:
    joint, evidence = known_blocks()
    guide = AutoMeanField(joint)
    guide.setup(evidence)
    graph, z = uniform(3, 3), uniform(3, 2).softmax(-1)
    guide.load(filled(guide, {"Y": graph, "z": z}, rng()))
    close(guide.distribution("Y").mean, graph)
    close(guide.distribution("z").mean, z)
    flat = filled(guide, {}, rng())
    assert torch.equal(flat["z_logits"], filled(guide, {}, rng())["z_logits"])
    assert float((flat["z_logits"] - filled(guide, {}, rng(1))["z_logits"]).abs().min()) > 0, "symmetry is a saddle"
    with pytest.raises(InputError, match="starts names the Dirichlet site 'pi'"):
        filled(guide, {"pi": z}, rng())


def test_softened_memberships_are_a_mixture_with_uniform_ones() -> None:
    joint, evidence = known_blocks()
    guide = scattered(joint, evidence)
    q = guide.values()
    found = softened(guide, q, 0.7)
    close(found["z_logits"].softmax(-1), 0.7 * q["z_logits"].softmax(-1) + 0.3 / 2)
    assert torch.equal(found["Y_logits"], q["Y_logits"])
    assert torch.equal(found["pi_concentration"], q["pi_concentration"])
    assert set(softened(guide, {**q, "Y_logits": torch.zeros(3, 2)}, 0.7)) == {"z_logits", "pi_concentration"}


def test_it_starts_from_the_last_round_else_from_the_priors_starts() -> None:
    _, log_lik = planted(6, 3, noise=0.2)
    joint, evidence = Joint(sbm(6, 4), log_lik), evidence_of(log_lik)
    guide = scattered(joint, evidence)
    q = guide.values()
    (warm,) = starting_points(guide, joint, evidence, q, rng(), 1.0)
    guide.load(warm)  # logits of one-hot sites come back up to a constant
    for site, name in (("Y", "Y_logits"), ("z", "z_logits"), ("pi", "pi_concentration")):
        other = scattered(joint, evidence)
        other.load({name: q[name]})
        close(guide.distribution(site).mean, other.distribution(site).mean)
    cold = starting_points(guide, joint, evidence, {}, rng(), 1.0)
    wanted = joint.prior.starts(evidence, torch.where(evidence.peers.mask, log_lik, 0.0), rng())
    assert len(cold) == len(wanted) == 2
    for start, moments in zip(cold, wanted, strict=True):
        close(start["z_logits"].softmax(-1), moments["z"].double(), 1e-6)
    # The candidates have changed: the memberships are still those of the last round.
    (mended,) = starting_points(guide, joint, evidence, {"z_logits": q["z_logits"]}, rng(), 1.0)
    assert torch.allclose(mended["z_logits"].softmax(-1), q["z_logits"].softmax(-1))


def test_an_optimiser_that_refuses_its_settings_is_one_line_and_other_errors_stay() -> None:
    with (
        pytest.raises(InputError, match="the optimiser refuses its settings: Invalid learning"),
        optimizer_settings(),
    ):
        torch.optim.SGD([torch.zeros(1)], lr=-1)
    with pytest.raises(ValueError, match="something else"), optimizer_settings():
        raise ValueError("something else")

"""A run goes on only with what it began with: every setting of every part is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyro
import pytest
import torch

from scool_ppl import EM, CooperationModel, InputError, Schedule, SVIStep, load_model
from scool_ppl.runs.identity import compare, facts
from tests.helpers.small import clients

K = 4


def driver(model: str | CooperationModel, **choices: Any) -> EM:
    whose = clients(K)
    if isinstance(model, str):
        model = load_model(model, K, federation=whose.federation, **choices)
    return EM(model, whose, Schedule(local_steps=1), seed=1)


def by_svi(rate: float) -> CooperationModel:
    model = load_model("latent_space", K)
    return model._replace(e_step=SVIStep(steps=2, num_samples=2, optim=pyro.optim.Adam({"lr": rate})))


OTHERS: dict[str, tuple[EM, EM, str]] = {
    "clamp": (driver("scool_sbm"), driver("scool_sbm", clamp=0.2), r"prior clamp=0.1, this EM clamp=0.2"),
    "alpha": (driver("scool_sbm"), driver("scool_sbm", alpha=2.0), r"alpha=\(8,\) of 1, this EM alpha=\(8,\) of 2"),
    "fixed alpha": (
        driver("scool_sbm", learn_alpha=False),
        driver("scool_sbm", learn_alpha=False, alpha=2.0),
        r"alpha=\(8,\) of 1, this EM alpha=\(8,\) of 2",
    ),
    "strength": (driver("ditto"), driver("ditto", strength=2.0), "mixing strength=1.0, this EM strength=2.0"),
    "sparsity": (driver("dada"), driver("dada", sparsity=2.0), "prior sparsity=10.0, this EM sparsity=2.0"),
    "norm": (driver("fedfomo"), driver("fedfomo", norm=1.0), "prior norm=2.0, this EM norm=1.0"),
    "scale": (driver("scool_attention"), driver("scool_attention", scale=5.0), "prior scale=10.0, this EM scale=5.0"),
    "rate": (driver(by_svi(0.1)), driver(by_svi(0.2)), "e_step optim=.*'?lr'?: 0.1.*this EM optim=.*lr'?: 0.2"),
    "peers": (driver("federico"), driver("federico", epsilon=0.1), "peers epsilon=0.3, this EM epsilon=0.1"),
    "given graph": (driver("fedavg"), driver("fedavg", samples=torch.ones(K)), "start of the prior weights="),
    "samples": (driver("scool_sbm"), driver("scool_sbm", weigh=True), r"mixing samples=None, this EM samples=\(4,\) "),
    "other samples": (
        driver("scool_sbm", weigh=True, samples=torch.tensor([3, 4, 5, 6])),
        driver("scool_sbm", weigh=True, samples=torch.tensor([3, 4, 6, 5])),
        r"mixing samples=\(4,\) (\w{12}), this EM samples=\(4,\) (?!\1)\w{12}",
    ),
    "covariate": (
        driver("covariate_sbm", blocks=2, covariate="0.0.1.1"),
        driver("covariate_sbm", blocks=2, covariate="0.1.0.1"),
        "start of the prior hint=",
    ),
}


@pytest.mark.parametrize("setting", OTHERS)
def test_another_setting_is_refused(setting: str, tmp_path: Path) -> None:
    began, other, words = OTHERS[setting]
    began.fit(1, run=tmp_path / "run", progress=False)
    for go_on in (
        lambda: other.fit(2, run=tmp_path / "run", resume=True, progress=False),
        lambda: other.resume(tmp_path / "run"),
    ):
        with pytest.raises(InputError, match=words):
            go_on()
    assert began.fit(2, run=tmp_path / "run", resume=True, progress=False).state.round == 2


def test_facts_do_not_depend_on_what_was_learned() -> None:
    """Otherwise a run would refuse itself."""
    em = driver("scool_sbm")
    before = facts(em)
    em.step(em.step(em.init())[0])
    assert facts(em) == before
    assert facts(driver("scool_sbm")) == before, "nor on the object"


@pytest.mark.filterwarnings("ignore:TraceEnum_ELBO found no sample sites")
def test_what_pyro_notes_on_a_bound_is_no_setting(tmp_path: Path) -> None:
    """TraceEnum_ELBO finds its number of plates in the first round; the run goes on nevertheless."""

    def em() -> EM:
        model = load_model("latent_space", K)
        return driver(model._replace(e_step=SVIStep(steps=2, num_samples=2, elbo=pyro.infer.TraceEnum_ELBO())))

    first = em()
    before = facts(first)
    first.fit(1, run=tmp_path / "run", progress=False)
    assert facts(first) == before
    assert em().fit(2, run=tmp_path / "run", resume=True, progress=False).state.round == 2


def test_a_fact_that_only_the_run_has_is_seen() -> None:
    with pytest.raises(InputError, match="privacy epsilon=1, this EM nothing"):
        compare({"seed": ["1"], "privacy": ["epsilon=1"]}, {"seed": ["1"]}, "the run")


def test_facts_of_an_earlier_format_are_compared_as_far_as_they_go() -> None:
    own = facts(driver("federico"))
    told = {"prior": ["ModelMixture"], "peers": ["EpsilonGreedy", "count=3"], "seed": ["1"]}
    compare(told, own, "the run", partial=True)
    with pytest.raises(InputError, match="count=2, this EM count=3"):
        compare({**told, "peers": ["EpsilonGreedy", "count=2"]}, own, "the run", partial=True)
    with pytest.raises(InputError, match=r"peers nothing, this EM epsilon=0\.3"):
        compare(told, {"peers": ["EpsilonGreedy", "count=3", "epsilon=0.3"]}, "the run")
    with pytest.raises(InputError, match="seed 1, this EM 2"):
        compare(told, {"seed": ["2"]}, "the run", partial=True)

"""Choosing by the bound: it is a lower bound on what enumeration gives, and only what may be compared is compared."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import softplus

from scool_ppl import EM, load_federation, load_model
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence
from scool_ppl.workbench.choose import Bound, Choices, best_bound, check_comparable, choose, looked
from scool_ppl.workbench.settings import Settings
from tests.helpers.small import ONE_STEP, clients, normal

SPEC = "permuted:digits:clients=6,groups=2,train=30,test=20"
SHORT = Settings(rounds=1, warmup_epochs=30, local_epochs=1, executor="stacked")


@pytest.fixture(scope="module")
def chosen() -> Choices:
    models: list[Any] = [("scool_sbm", {"blocks": blocks}) for blocks in (1, 2)]
    return choose(models, load_federation(SPEC, seed=0), SHORT, progress=False)


def test_two_groups_are_better_explained_by_two_blocks_than_by_one(chosen: Choices) -> None:
    assert chosen.best.name == "scool_sbm blocks=2"
    assert "of round 2 of scool_sbm" in chosen.evidence
    assert chosen.likelihood.startswith("CrossLoss(n_eff=5.0")
    assert [row["below the best"] == 0 for row in chosen.rows()] == [False, True]


def test_the_bound_of_independent_edges_is_the_evidence_itself() -> None:
    """log sum_Y P(Y) exp(sum_ij l_ij Y_ij) = sum_ij log(1 - p_ij + p_ij exp(l_ij)), highest in what the ring learns, b."""
    em = EM(load_model("ring", 4), clients(4), ONE_STEP)
    evidence, table = Evidence(Peers.everybody(4)), 3 * normal(4, 4, seed=1)
    found = best_bound(em, Joint(em.model.prior, table), evidence)
    steps = (torch.arange(4)[:, None] - torch.arange(4)).abs()
    steps = torch.minimum(steps, 4 - steps)

    def exact(b: float) -> float:
        terms = softplus(b - steps + table) - softplus(b - steps.double())
        return float(terms[evidence.peers.mask].sum())

    highest = max(exact(b / 100) for b in range(-600, 600))
    assert found == pytest.approx(highest, abs=2e-3)
    assert found > exact(1.0) + 1e-2, "b has moved"


def test_near_bounds_are_not_told_apart() -> None:
    found = Choices((Bound("a", -10.0, ""), Bound("b", -8.0, ""), Bound("c", -30.0, "")), "", "")
    assert found.best.name == "b"
    assert [one.name for one in found.near] == ["a"]


def test_it_is_written_as_table_and_picture(chosen: Choices, tmp_path: Path) -> None:
    chosen.save(tmp_path / "out")
    told = json.loads((tmp_path / "out" / "choice.json").read_text())
    assert told["best"] == "scool_sbm blocks=2"
    assert [row["bound"] for row in told["bounds"]] == [one.bound for one in chosen.bounds]
    assert (tmp_path / "out" / "choice.csv").read_text().startswith("name,bound,note,below the best\n")
    assert (tmp_path / "out" / "choice.png").read_bytes().startswith(b"\x89PNG")
    assert all(math.isfinite(one.bound) for one in chosen.bounds)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([("scool_sbm", {}), ("scool_sbm", {"n_eff": 2.0})], "same likelihood"),
        ([("scool_sbm", {}), ("scool_sbm", {"keep": 2})], "has Top"),
        ([("hedge", {})], "is a portfolio"),
        ([("fedavg", {})], "ignores the evidence"),
        ([("cobo", {})], "one table of weights"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_training(
    models: list[Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scool_ppl.em.EM.fit", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(InputError, match=words):
        choose(models, load_federation(SPEC, seed=0), SHORT, progress=False)


def test_a_likelihood_of_the_mean_graph_has_no_bound() -> None:
    whose = clients(4)
    em = EM(load_model("l2c", 4), whose, ONE_STEP)
    check_comparable({"l2c": em})
    start = em.init()
    with pytest.raises(InputError, match="no bound"):
        looked(em, start, start.params)

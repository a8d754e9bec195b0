"""Draws from the posterior of a graph: against the probabilities that q states, written out by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from scool_ppl import EM, load_model
from scool_ppl.em.state import EMState
from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.workbench.posterior import interval, posterior_of, sample_posterior
from tests.helpers.command import TINY, fit
from tests.helpers.small import ONE_STEP, clients, normal, uniform

DRAWS = 4000


def state_of(em: EM) -> EMState:
    """A state of four clients and two blocks with a q that is neither sure nor flat."""
    z = normal(4, 2, seed=3)
    y = normal(4, 4, seed=4)
    mask = Peers.everybody(4)
    moments = {"Y": torch.where(mask.mask, y.sigmoid(), 0.0), "z": z.softmax(1)}
    return em.init()._replace(
        round=1, peers=mask, moments=moments, q={"Y_logits": y, "z_logits": z, "pi_concentration": torch.ones(4, 2)}
    )


@pytest.fixture
def em() -> EM:
    return EM(load_model("scool_sbm", 4, blocks=2), clients(4), ONE_STEP)


def test_edges_and_blocks_are_as_often_as_q_says(em: EM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.workbench.posterior.merged", lambda labels, weights, peers: labels)
    state = state_of(em)
    found = sample_posterior(em, state, DRAWS, seed=1)
    y, z = state.moments["Y"], state.moments["z"]
    error = 4 * (0.25 / DRAWS) ** 0.5
    assert float((found.probability - y).abs().max()) < error
    together = found.together
    assert together is not None
    assert float((together - (z @ z.T).fill_diagonal_(1)).abs().max()) < error
    alone = float(z.prod(0).sum())
    count = found.block_count
    assert count is not None
    assert count.mean == pytest.approx(2 - alone, abs=error), "one block only if all are in it"
    assert found.edges.mean == pytest.approx(float(y.sum()), abs=12 * error)
    for teachers, expected in zip(found.teachers, y.sum(1).tolist(), strict=True):
        assert teachers.mean == pytest.approx(expected, abs=3 * error)


def test_what_the_prior_expects_of_a_pair_is_its_own_b(em: EM) -> None:
    """E_q B[z_i, z_j] for z_i, z_j drawn from q: sum_gh q_ig q_jh B_gh."""
    state = state_of(em)
    prior = {**state.prior, "B": torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=torch.float64)}
    names = [name for name in state.prior if name.startswith("B")]
    assert names, state.prior.keys()
    sure = {**state.q, "z_logits": torch.tensor([[30.0, -30.0], [30.0, -30.0], [-30.0, 30.0], [-30.0, 30.0]]).double()}
    em.model.prior.load_state_dict(state.prior)
    em.model.prior.B = prior["B"]
    found = sample_posterior(em, state._replace(q=sure, prior=em.model.prior.state()), 10)
    block = torch.tensor([0, 0, 1, 1])
    expected = prior["B"][block[:, None], block].fill_diagonal_(0)
    assert found.expected is not None
    torch.testing.assert_close(found.expected, expected, rtol=0, atol=1e-9)


def test_blocks_that_cooperate_in_a_draw_are_one(em: EM) -> None:
    state = state_of(em)
    full = torch.full((4, 4), 30.0, dtype=torch.float64)
    ones = state._replace(
        q={**state.q, "Y_logits": full}, moments={**state.moments, "Y": full.sigmoid().fill_diagonal_(0)}
    )
    found = sample_posterior(em, ones, 50)
    assert found.block_count == (1.0, 1.0, 1.0)
    assert found.is_sure


def test_draws_repeat_and_leave_the_users_randomness_alone(em: EM) -> None:
    state = state_of(em)
    before = torch.get_rng_state()
    first, again = (sample_posterior(em, state, 20, seed=3) for _ in range(2))
    assert torch.equal(first.graphs, again.graphs)
    assert first.blocks is not None
    assert again.blocks is not None
    assert torch.equal(first.blocks, again.blocks)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_ends_of_an_interval_are_quantiles() -> None:
    assert interval(torch.arange(201)) == (100.0, 5.0, 195.0)


def test_a_table_of_weights_has_no_posterior() -> None:
    em = EM(load_model("cobo", 4), clients(4), ONE_STEP)
    state = em.init()._replace(round=1, peers=Peers.everybody(4), moments={"Y": uniform(4, 4)})
    with pytest.raises(InputError, match="no posterior to draw from"):
        sample_posterior(em, state, 5)


def test_a_graph_through_components_has_no_edges_to_draw() -> None:
    em = EM(load_model("ifca", 4, components=2), clients(4), ONE_STEP)
    state, _ = em.step(em.init())
    with pytest.raises(InputError, match="choose among components"):
        sample_posterior(em, state, 5)


def test_the_posterior_of_a_run_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])
    fit(tmp_path / "run", "scool_sbm", "blocks=3", *TINY)
    found = posterior_of(tmp_path / "run", 30)
    folder = found.save(tmp_path / "run" / "posterior")
    with np.load(folder / "posterior.npz") as arrays:
        assert arrays["graphs"].shape == (30, 4, 4)
        np.testing.assert_allclose(arrays["graphs"].mean(0), arrays["probability"])
        assert set(arrays) == {"names", "graphs", "senders", "probability", "blocks", "together", "expected"}
    assert json.loads((folder / "posterior.json").read_text())["draws"] == 30
    rows = list(csv.DictReader((folder / "posterior.csv").read_text().splitlines()))
    assert [row["client"] for row in rows] == list(found.graph.names)
    assert (folder / "posterior.png").read_bytes().startswith(b"\x89PNG")

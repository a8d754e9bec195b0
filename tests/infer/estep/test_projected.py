"""ProjectedGradient and the projection on the simplex, against every support, a constrained optimiser and quadratics."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from scool_ppl import InputError, NaturalGradient, ProjectedGradient
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.estep.base import Posterior
from scool_ppl.infer.estep.projected import onto_simplex
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.box import Box
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.small import close, normal, uniform

OFF = ~torch.eye(4, dtype=torch.bool)


def nearest(values: list[float]) -> list[float]:
    """The point of the simplex that is nearest: over every set of positive entries, where the others are 0."""
    best: tuple[float, list[float]] | None = None
    for size in range(1, len(values) + 1):
        for support in itertools.combinations(range(len(values)), size):
            shift = (sum(values[k] for k in support) - 1) / size
            point = [values[k] - shift if k in support else 0.0 for k in range(len(values))]
            away = sum((a - b) ** 2 for a, b in zip(values, point, strict=True))
            if min(point) >= 0 and (best is None or away < best[0]):
                best = away, point
    assert best is not None
    return best[1]


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 5.0, 1e4])
def test_the_projection_is_the_nearest_point_of_all_supports(scale: float) -> None:
    rows = scale * normal(40, 5, seed=1)
    mask = uniform(40, 5, seed=2) < 0.7
    mask[0] = False
    mask[1:, 0] |= ~mask[1:].any(1)
    found = onto_simplex(rows, mask)
    assert not bool(found[~mask].any())
    assert not bool(found[0].any())
    for i in range(1, 40):
        expected = torch.tensor(nearest(rows[i, mask[i]].tolist()), dtype=torch.float64)
        close(found[i, mask[i]], expected, 1e-11 * max(1.0, scale))


def test_the_projection_is_what_a_constrained_optimiser_finds() -> None:
    rows = normal(5, 6, seed=3)
    found = onto_simplex(rows, torch.ones(5, 6, dtype=torch.bool)).numpy()
    for row, projected in zip(rows.numpy(), found, strict=True):
        result = minimize(
            lambda w, v=row: 0.5 * np.sum((w - v) ** 2),
            np.full(6, 1 / 6),
            jac=lambda w, v=row: w - v,
            bounds=[(0, 1)] * 6,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(6)},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        assert result.success
        np.testing.assert_allclose(projected, result.x, atol=1e-6)


def test_the_projection_ignores_what_is_masked_ties_and_itself() -> None:
    mask = torch.tensor([[True, True, False, True], [True, True, True, True], [False, True, False, False]])
    rows = normal(3, 4, seed=4)
    rows[1] = 3.0
    found = onto_simplex(rows, mask)
    for junk in (torch.nan, torch.inf, 1e9):
        assert torch.equal(onto_simplex(rows.masked_fill(~mask, junk), mask), found)
    close(found[1], torch.full((4,), 0.25))
    assert found[2].tolist() == [0, 1, 0, 0]
    close(onto_simplex(found, mask), found, 1e-15)


def step(
    log_lik: Tensor | Callable[[Tensor], Tensor],
    evidence: Evidence,
    start: float = 0.5,
    q: dict[str, Tensor] | None = None,
    **settings: object,
) -> Posterior:
    joint = Joint(Box(evidence.num_clients, start).double(), log_lik)
    return ProjectedGradient(**settings)(joint, evidence, q or {}, torch.Generator())  # type: ignore[arg-type]


def test_a_step_on_evidence_is_clipped_to_the_box() -> None:
    log_lik = random_log_lik(4)
    found = step(log_lik, evidence_of(log_lik), start=0.3, step=0.2)
    expected = (0.3 + 0.2 * log_lik).clamp(0, 1)
    close(found.moments["Y"][OFF], expected[OFF])
    assert bool(((expected > 0) & (expected < 1))[OFF].any())
    assert bool((expected == 0)[OFF].any())
    assert bool((expected == 1)[OFF].any())
    assert not bool(found.moments["Y"].diagonal().any())
    # As many steps as asked for, and the next round goes on from where this one ended.
    twice = step(log_lik, evidence_of(log_lik), start=0.3, step=0.2, steps=2)
    again = step(log_lik, evidence_of(log_lik), start=0.9, step=0.2, q=found.q)
    close(twice.moments["Y"], again.moments["Y"])
    close(twice.moments["Y"][OFF], (expected + 0.2 * log_lik).clamp(0, 1)[OFF])
    assert len(twice.bounds) == 3


@pytest.mark.parametrize("domain", ["box", "simplex"])
def test_it_climbs_to_the_nearest_graph_of_a_quadratic(domain: str) -> None:
    """-|Y - T|^2 / 2 is highest in a domain at the projection of T on it."""
    target = 2 * normal(4, 4, seed=5)
    quadratic = lambda graph: -torch.where(OFF, graph - target, 0.0).square().sum() / 2  # noqa: E731
    found = step(quadratic, evidence_of(random_log_lik(4)), domain=domain, step=0.5, steps=100)
    for i in range(4):
        row = target[i, OFF[i]]
        expected = row.clamp(0, 1) if domain == "box" else torch.tensor(nearest(row.tolist()), dtype=torch.float64)
        close(found.moments["Y"][i, OFF[i]], expected, 1e-9)
    rises = torch.tensor(found.bounds).double().diff()
    assert float(rises.min()) >= -1e-12
    assert float(rises.max()) > 1e-3
    # The bound is the density itself: the box is flat, up to the end that torch leaves out.
    value = float(quadratic(found.moments["Y"]))
    assert found.elbo == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize("domain", ["box", "simplex"])
def test_a_step_that_is_too_long_is_halved(domain: str) -> None:
    """The bound never falls, wherever it begins: a step of 40 up this quadratic would end ever further away."""
    target = 0.3 * uniform(4, 4, seed=5)
    quadratic = lambda graph: -torch.where(OFF, graph - target, 0.0).square().sum() / 2  # noqa: E731
    evidence = evidence_of(random_log_lik(4))
    found = step(quadratic, evidence, domain=domain, start=0.4, step=40.0, steps=60)
    assert float(torch.tensor(found.bounds).double().diff().min()) >= -1e-9
    assert len(found.bounds) == 61
    close(found.moments["Y"], step(quadratic, evidence, domain=domain, step=0.5, steps=100).moments["Y"], 1e-3)


def test_masked_pairs_keep_their_weight_and_have_no_influence() -> None:
    log_lik = random_log_lik(4)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[0, 2] = mask[3, 1] = False
    results = []
    for junk in (0.0, torch.nan, 1e9):
        spoiled = torch.where(mask, log_lik, torch.tensor(junk).double())
        results.append(step(spoiled, evidence_of(torch.nan_to_num(spoiled), mask), start=0.7, step=0.1))
        assert results[-1].q["Y"][0, 2] == results[-1].q["Y"][3, 1] == 0.7
        assert results[-1].moments["Y"][0, 2] == 0
        assert torch.equal(results[-1].moments["Y"], results[0].moments["Y"])
        assert results[-1].bounds == results[0].bounds
    # What was kept is there again when the pair is looked at.
    back = step(log_lik, evidence_of(log_lik), step=0.1, q=results[0].q)
    close(back.moments["Y"][0, 2], (0.7 + 0.1 * log_lik[0, 2]).clamp(0, 1))


def test_without_a_graph_to_begin_with_it_begins_in_the_middle() -> None:
    class Flat(Box):
        def initial_graph(self) -> Tensor:
            return None  # type: ignore[return-value]

    log_lik = torch.zeros(4, 4).double()
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1, 0] = mask[2] = False
    looked = (OFF & mask).double()
    for domain, expected in (("box", 0.5 * looked), ("simplex", looked / looked.sum(1, True).clamp(min=1))):
        projected = ProjectedGradient(domain=domain)  # type: ignore[arg-type]
        found = projected(Joint(Flat(4).double(), log_lik), evidence_of(log_lik, mask), {}, torch.Generator())
        close(found.moments["Y"], expected)


@pytest.mark.parametrize("domain", ["box", "simplex"])
def test_a_table_of_peers_takes_its_entries_of_the_graph(domain: str) -> None:
    senders = torch.tensor([[1, 2], [3, 0], [0, 1], [2, 1]])
    table = Peers(torch.tensor([[True, True], [True, True], [True, False], [True, True]]), senders)
    log_lik, last = random_log_lik(4), uniform(4, 4, seed=6)
    evidence = Evidence.given(loss=-log_lik.gather(1, senders), peers=table)
    found = step(log_lik.gather(1, senders), evidence, q={"Y": last}, step=0.3, domain=domain).moments["Y"]
    for i in range(4):
        columns = [m for m in range(2) if table.mask[i, m]]
        moved = [float(last[i, senders[i, m]] + 0.3 * log_lik[i, senders[i, m]]) for m in columns]
        expected = nearest(moved) if domain == "simplex" else [min(max(value, 0.0), 1.0) for value in moved]
        assert found[i, columns].tolist() == pytest.approx(expected, abs=1e-12)
    assert found[2, 1] == 0


@pytest.mark.parametrize("domain", ["box", "simplex"])
@pytest.mark.parametrize("num_clients", [1, 2])
def test_few_clients(num_clients: int, domain: str) -> None:
    log_lik = random_log_lik(num_clients)
    found = step(log_lik, evidence_of(log_lik), domain=domain)
    assert bool(found.moments["Y"].isfinite().all())
    assert np.isfinite(found.elbo)
    if num_clients == 2 and domain == "simplex":
        close(found.moments["Y"], torch.tensor([[0.0, 1.0], [1.0, 0.0]]))


def test_natural_gradient_says_what_to_use_for_a_box() -> None:
    log_lik = random_log_lik(4)
    with pytest.raises(InputError, match="continuous"):
        NaturalGradient()(Joint(Box(4).double(), log_lik), evidence_of(log_lik), {}, torch.Generator())


@pytest.mark.parametrize(
    ("options", "words"),
    [({"step": 0.0}, "a positive step"), ({"steps": 0}, "at least one step"), ({"domain": "boxes"}, "mean 'box'")],
)
def test_impossible_settings_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ProjectedGradient(**options)  # type: ignore[arg-type]

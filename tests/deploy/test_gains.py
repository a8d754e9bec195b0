"""Gains over local-only training, image by image in plain Python loops."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from scool_ppl.deploy import Gains, gains
from scool_ppl.errors import InputError
from scool_ppl.train.clients import Clients
from scool_ppl.train.questions import Ensemble, Params, Predictor
from tests.helpers import tasks
from tests.helpers.small import CLASSES, clients, data, federation, networks, normal, one, outputs

SIZES = [(6, 5, 7), (7, 2, 25), (8, 5, 0), (9, 3, 1), (5, 4, 40)]
K = len(SIZES)
OFFSETS = normal(K, CLASSES, seed=4)


@pytest.fixture(scope="module")
def whose() -> Clients:
    """Clients with 7, 25, 0, 1 and 40 test images, each with its own names of the classes."""
    names = torch.stack([torch.randperm(CLASSES, generator=torch.Generator().manual_seed(i)) for i in range(K)])
    return clients().for_federation(replace(federation(K, SIZES), relabel=names))


def mixtures(whose: Clients, seed: int, predictors: int = 2) -> tuple[Ensemble, Params]:
    """Something deployed, and the local networks that it is compared with."""
    several = tuple(Predictor(networks(whose, seed=seed + 10 * place)) for place in range(predictors))
    weights = normal(K, predictors, seed=seed).softmax(1)
    return Ensemble(several, weights, OFFSETS), networks(whose, seed=seed + 100)


def right(scores: Tensor, label: int) -> int:
    return int(max(range(len(scores)), key=lambda c: float(scores[c])) == label)


def by_loops(whose: Clients, deployed: Ensemble, local: Params, split: str) -> list[tuple[float, float]]:
    """Gain and error of each client, from every image's two predictions written out."""
    found = []
    for i in range(K):
        x, y = data(whose, i, split)
        gained = []
        for n in range(len(y)):
            mixed = torch.zeros(CLASSES, dtype=torch.float64)
            for c, (params, _) in enumerate(deployed.predictors):
                exps = (outputs(one(params, i), x[n]) + OFFSETS[i]).exp()
                mixed += deployed.weights[i, c] * exps / exps.sum()
            gained.append(right(mixed, int(y[n])) - right(outputs(one(local, i), x[n]), int(y[n])))
        mean = statistics.fmean(gained) if gained else math.nan
        error = math.sqrt(statistics.variance(gained) / len(gained)) if len(gained) > 1 else math.nan
        found.append((mean, error))
    return found


@pytest.mark.parametrize("split", ["test", "validation"])
@pytest.mark.parametrize("seed", range(3))
def test_gain_and_error_are_those_of_loops_over_images(whose: Clients, seed: int, split: str) -> None:
    deployed, local = mixtures(whose, seed)
    found, expected = gains(whose, deployed, local, split), by_loops(whose, deployed, local, split)
    assert found.gain.tolist() == pytest.approx([gain for gain, _ in expected], abs=1e-12, nan_ok=True)
    assert found.error.tolist() == pytest.approx([error for _, error in expected], abs=1e-12, nan_ok=True)
    assert len(set(found.gain.nan_to_num(9).tolist())) > 2, "the clients differ, so that another order would show"


def test_a_client_without_test_images_is_nan_and_not_counted(whose: Clients) -> None:
    deployed, local = mixtures(whose, 0)
    found = gains(whose, deployed, local)
    assert found.gain.isnan().tolist() == [False, False, True, False, False]
    others = [i for i in range(K) if i != 2]
    assert Gains(found.gain[others], found.error[others]).harmed(0.5) == found.harmed(0.5)
    counted = Gains(torch.tensor([-1.0, torch.nan, 1.0, torch.nan]), torch.tensor([0.1, torch.nan, 0.1, torch.nan]))
    assert counted.harmed() == 0.5


def test_where_nobody_has_test_images_nothing_is_known() -> None:
    none = clients().for_federation(federation(K, [(6, 3, 0)] * K))
    found = gains(none, *mixtures(none, 0))
    assert bool(found.gain.isnan().all())
    assert bool(found.error.isnan().all())


def test_harmed_are_those_beyond_the_errors() -> None:
    found = Gains(torch.tensor([-0.3, -0.1, 0.5, 0.0, -0.5]), torch.tensor([0.1, 0.1, 0.1, 0.0, 0.2]))
    shares = [found.harmed(errors) for errors in (0.0, 0.9, 1.1, 2.0, 2.6, 3.1)]
    assert shares == [0.6, 0.6, 0.4, 0.4, 0.2, 0.0]
    assert found.harmed() == found.harmed(2.0)


def test_a_loss_of_just_so_many_errors_is_not_beyond_them() -> None:
    assert Gains(torch.tensor([-0.5]), torch.tensor([0.25])).harmed(2.0) == 0
    assert Gains(torch.tensor([-0.5]), torch.tensor([0.0])).harmed(2.0) == 1, "worse on every image, beyond any doubt"


@pytest.mark.parametrize("seed", range(3))
def test_harmed_is_what_loops_count(whose: Clients, seed: int) -> None:
    deployed, local = mixtures(whose, seed)
    counted = [(gain, error) for gain, error in by_loops(whose, deployed, local, "test") if not math.isnan(error)]
    several = [0, 1, 4]  # who has two test images at least
    found = gains(whose, deployed, local)
    for errors in (0.0, 0.5, 1.0, 2.0):
        expected = statistics.fmean(gain < -errors * error - 1e-9 for gain, error in counted)
        assert Gains(found.gain[several], found.error[several]).harmed(errors) == pytest.approx(expected)


def test_the_local_network_itself_gains_nothing_and_harms_nobody(whose: Clients) -> None:
    local = networks(whose)
    found = gains(whose, Ensemble((Predictor(local),), torch.ones(K, 1)), local)
    known = [0, 1, 4]
    assert found.gain[known].tolist() == found.error[known].tolist() == [0, 0, 0]
    assert found.harmed(0.0) == 0


@pytest.mark.parametrize("name", ["vectors", "text"])
def test_gains_are_in_the_score_of_the_task(name: str) -> None:
    """The mean over images is the difference of two evaluations."""
    whose = tasks.clients(tasks.federation(name))
    local = tasks.shifted(whose.init(0))
    others = {key: -value for key, value in local.items()}
    deployed = Ensemble((Predictor(local), Predictor(others)), torch.tensor([[0.3, 0.7]]).repeat(whose.num_clients, 1))
    found = gains(whose, deployed, local)
    expected = whose.evaluate(deployed).score - whose.evaluate(local).score
    assert found.gain.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert bool((found.gain != 0).any())
    assert bool((found.error > 0).any())


def test_an_error_that_is_not_known_is_no_proof() -> None:
    """A client with a single test image says nothing of what is beyond noise."""
    assert Gains(torch.tensor([-1.0]), torch.tensor([torch.nan])).harmed() == 0
    assert math.isnan(Gains(torch.tensor([torch.nan]), torch.tensor([torch.nan])).harmed())


def test_an_unknown_split_is_refused() -> None:
    whose = clients(2)
    networks = whose.init(0)
    with pytest.raises(InputError, match="unknown split 'tset'"):
        gains(whose, Ensemble((Predictor(networks),), torch.ones(2, 1)), networks, "tset")

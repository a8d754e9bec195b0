"""Dirac: a graph that is given."""

from __future__ import annotations

import pytest
import torch

from scool_ppl import (
    InputError,
    NaturalGradient,
)
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors.base import Joint
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.look.evidence import Evidence
from tests.helpers.evidence import evidence_of, random_log_lik
from tests.helpers.priors import (
    rng,
    without_client,
)
from tests.helpers.small import close, uniform


def test_dirac_needs_no_inference_and_keeps_its_graph() -> None:
    weights = torch.rand(4, 4, generator=rng()).double().fill_diagonal_(0)
    log_lik = random_log_lik(4)
    found = NaturalGradient()(Joint(Dirac(weights).double(), log_lik), evidence_of(log_lik), {}, rng())
    assert torch.equal(found.moments["Y"], weights)
    assert found.elbo == pytest.approx(float((weights * log_lik).fill_diagonal_(0).sum()))


def test_a_table_of_peers_takes_its_entries_and_draws_are_the_graph() -> None:
    graph = uniform(3, 3)
    senders = torch.tensor([[2, 1], [0, 2], [1, 0]])
    evidence = Evidence.given(loss=torch.zeros(3, 2), peers=Peers(torch.ones(3, 2, dtype=torch.bool), senders))
    drawn = Dirac(graph).double()(evidence)
    for i in range(3):
        close(drawn[i], graph[i, senders[i]])


def test_the_rest_of_a_row_is_scaled_up_while_somebody_is_absent() -> None:
    graph = torch.tensor([[0.0, 0.5, 0.5, 0.0], [0.2, 0.0, 0.2, 0.6], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    evidence = without_client(evidence_of(random_log_lik(4)), 1)
    drawn = Dirac(graph.double())(evidence)
    drawn = torch.where(evidence.peers.mask, drawn, 0.0)
    close(drawn[0], torch.tensor([0.0, 0.0, 1.0, 0.0]))
    close(drawn[3], torch.tensor([1.5, 0.0, 1.5, 0.0]))
    assert not bool(drawn[2].any()), "whom it learned from is away: nobody takes the place"


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_weights_on_the_diagonal_let_clients_choose_themselves(value: float) -> None:
    graph = torch.full((3, 3), 0.3).fill_diagonal_(value)
    prior = Dirac(graph)
    assert prior.includes_self is (value > 0)
    assert torch.equal(prior.initial_graph(), graph)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (torch.ones(2, 3), r"graph has shape \(2, 3\), expected \(K, K\)"),
        (torch.ones(3), r"graph has shape \(3,\)"),
        (torch.ones(0, 0), r"graph has shape \(0, 0\)"),
        (-torch.ones(2, 2), "negative or non-finite weights"),
        (torch.full((2, 2), torch.nan), "negative or non-finite weights"),
        ([[0.0, 1.0], [1.0, 0.0]], "weights of Dirac"),
    ],
)
def test_what_is_no_graph_is_refused(weights: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Dirac(weights)  # type: ignore[arg-type]

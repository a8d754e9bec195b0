"""States are data: what is in them, which ones an EM refuses, and what a round tells of its costs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scool_ppl import EM, CooperationModel, InputError, load_model
from scool_ppl.em.state import EMState, check_state
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.look.likelihoods import CrossLoss, Ignored
from scool_ppl.mix.after import MixUpdates
from scool_ppl.mix.base import Alone
from tests.helpers.runs import driver
from tests.helpers.small import CLASSES, FEATURES, ONE_STEP, clients
from tests.helpers.states import identical, leaves

NETWORK_BYTES = 8 * ((FEATURES + 1) * 3 + (3 + 1) * CLASSES)  # float64, three hidden units
PRIOR = {"B": torch.zeros(2, 2), "alpha": torch.ones(2)}


def stepped(em: EM) -> EMState:
    return em.step(em.init())[0]


def test_a_state_is_data_only() -> None:
    for model in ("scool_sbm", "federico"):  # blocks, memory
        found = dict(leaves(stepped(driver(model))))
        assert any(path.startswith("/memory" if model == "federico" else "/q") for path in found)
        for path, value in found.items():
            assert isinstance(value, Tensor | int | tuple | None), path
            assert not isinstance(value, Tensor) or not value.requires_grad, path


def test_the_state_counts_rounds() -> None:
    run = driver("scool_sbm", seed=5)
    state = run.init()
    assert (state.round, state.seed, state.peers, state.moments, state.q) == (0, 5, None, {}, {})
    assert identical(state.params, run.clients.init(5))
    for round in (1, 2):
        state, _ = run.step(state)
        assert (state.round, state.seed) == (round, 5)


@pytest.mark.parametrize(("model", "needed"), [("scool_sbm", False), ("scool_attention", True)])
def test_theta_0_is_kept_where_the_model_compares_with_it(model: str, needed: bool) -> None:
    run = driver(model)
    state = stepped(run)
    assert identical(state.initial, run.clients.init(1) if needed else {})
    assert not identical(state.initial, state.params)


def state_of(num_clients: int, prior: dict[str, Tensor]) -> EMState:
    return EMState({"weight": torch.zeros(num_clients, 2)}, {}, {}, {}, {}, prior, None, {}, 0, 0)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (state_of(2, PRIOR), r"the state is of \[2\] clients, expected 3; use the EM that it comes from"),
        (state_of(3, {"B": PRIOR["B"]}), r"parameter 'alpha' has shape None, expected \(2,\)"),
        (state_of(3, {**PRIOR, "B": torch.zeros(3, 3)}), r"parameter 'B' has shape \(3, 3\), expected \(2, 2\)"),
        ({}, "state is a dict, expected a EMState"),
    ],
)
def test_a_state_of_others_is_refused(state: EMState, words: str) -> None:
    check_state(state_of(3, PRIOR), PRIOR, 3)
    with pytest.raises(InputError, match=words):
        check_state(state, PRIOR, 3)


def moved(model: CooperationModel, size: int = 4) -> tuple[list[float], list[float]]:
    """Networks that each client received and sent in one round."""
    em = EM(model, clients(size), ONE_STEP)
    _, info = em.step(em.init())
    received, sent = ((part / NETWORK_BYTES).tolist() for part in (info.bytes_received, info.bytes_sent))
    return received, sent


def test_bytes_by_hand() -> None:
    whose = clients(4)
    assert whose.bytes_per_model == NETWORK_BYTES
    for name, networks in {"local": 0, "fedavg": 3, "scool_sbm": 3}.items():
        assert moved(load_model(name, 4, federation=whose.federation)) == ([networks] * 4, [networks] * 4)
    # Components are looked at before the first training, too; whoever uses one sends a copy back.
    assert moved(load_model("ifca", 4, components=2)) == ([2 + 2] * 4, [1] * 4)
    assert moved(load_model("fedem", 4, federation=whose.federation, components=3)) == ([3 + 3] * 4, [3] * 4)
    pairs = torch.eye(2).repeat_interleave(2, 0).repeat_interleave(2, 1).fill_diagonal_(0)
    assert moved(CooperationModel(Dirac(pairs), Ignored(), MixUpdates())) == ([1] * 4, [1] * 4)
    star = torch.zeros(4, 4)
    star[1:, 0] = 1  # all learn from client 0
    assert moved(CooperationModel(Dirac(star), Ignored(), MixUpdates())) == ([0, 1, 1, 1], [3, 0, 0, 0])
    # To look at a network costs it, whatever becomes of the graph.
    assert moved(CooperationModel(Dirac(star), CrossLoss(), Alone())) == ([3] * 4, [3] * 4)

"""Which axes are clients is declared, never guessed: sizes say nothing where there are as many blocks as clients."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from scool_ppl import EM, CooperationModel, Evidence, Federation, GraphPrior, OneHot, load_model
from scool_ppl.em.axes import Axes, entries_of, learned_axes, parameter_layouts, site_layouts
from scool_ppl.em.state import EMState
from scool_ppl.infer.priors import SBM, Dirac
from scool_ppl.look.likelihoods import Ignored
from scool_ppl.mix.base import Mixing, Terms
from scool_ppl.train.round_start import Remembered, RoundStart
from tests.helpers.small import ONE_STEP, brief, clients, uniform

K, LEAVER = 4, 1
STAYERS = [0, 2, 3]


def evidence() -> Evidence:
    return Evidence.given(loss=uniform(K, K))


def test_sites_have_the_axes_of_their_plates() -> None:
    """As many blocks as clients: pi and z are (4, 4), of which only the first axis is of clients."""
    layouts = site_layouts(SBM(K, num_blocks=K).double(), evidence())
    assert layouts == {"pi": ((0,), 1 / K), "z": ((0,), 1 / K), "Y": ((0, 1), 0.0)}


def test_parameters_of_q_have_the_axes_of_their_sites() -> None:
    layouts = parameter_layouts(SBM(K, num_blocks=K).double(), evidence())
    assert {name: layout.axes for name, layout in layouts.items()} == {
        "pi_concentration": (0,),
        "z_logits": (0,),
        "Y_logits": (0, 1),
        "Y": (0, 1),
    }
    assert all(layout.flat == (1 if name == "pi_concentration" else 0) for name, layout in layouts.items())


class Shared(GraphPrior):
    """A level that all clients share, and a table of which only the rows are of clients."""

    client_axes = {"table": (0,)}

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients)
        self.table = torch.nn.Parameter(torch.zeros(num_clients, K))

    def model(self, evidence: Evidence) -> Tensor:
        which = pyro.sample("which", OneHot(torch.ones(K).double() / K))
        level = (which * torch.linspace(-1, 1, K).double()).sum() + self.table.mean(1, keepdim=True)
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=level.expand(evidence.peers.mask.shape)))


def test_what_all_clients_share_has_no_axis_of_clients() -> None:
    assert site_layouts(Shared(K).double(), evidence())["which"] == ((), 1 / K)
    assert learned_axes(Shared(K)) == {"table": (0,)}
    assert learned_axes(SBM(K, num_blocks=K)) == {}, "B (4, 4) and alpha (4,) are of blocks"


@pytest.mark.parametrize(("axes", "shape"), [((0,), (4,)), ((1,), (1, 4)), ((0, 1), (4, 4)), ((0, 2), (4, 1, 4))])
def test_entries_are_of_whoever_is_in_one_of_the_axes(axes: Axes, shape: tuple[int, ...]) -> None:
    away = torch.tensor([False, True, False, True])
    found = entries_of(away, axes)
    assert found.shape == shape
    for place in torch.ones(shape).nonzero().tolist():
        assert bool(found[tuple(place)]) == any(bool(away[place[axis]]) for axis in axes)


def without_one(model: CooperationModel, fewer: CooperationModel, rounds: int = 2) -> tuple[EMState, EMState]:
    """A state, and what is left of it when a client goes: the second of four."""
    em = EM(model, clients(K), ONE_STEP)
    state = em.init()
    for _ in range(rounds):
        state, _ = em.step(state)
    _, left = em.leave(state, [em.clients.names[LEAVER]], lambda _: fewer)
    return state, left


def test_as_many_blocks_as_clients() -> None:
    state, left = without_one(*(brief(load_model("scool_sbm", size, blocks=K)) for size in (K, K - 1)))
    for kept in ("B_unconstrained", "alpha_unconstrained"):
        assert torch.equal(left.prior[kept], state.prior[kept]), "no block has left"
    for found, before in ((left.moments, state.moments), (left.q, state.q)):
        for name, value in before.items():
            rows = value[STAYERS]
            assert torch.equal(found[name], rows[:, STAYERS] if name.startswith("Y") else rows), name
    assert left.moments["z"].shape == (K - 1, K)


def test_an_absent_client_holds_its_row_and_nobodys_block() -> None:
    em = EM(brief(load_model("scool_sbm", K, blocks=K)), clients(K), ONE_STEP)
    state, _ = em.step(em.init())
    after, _ = em.step(state, absent=[em.clients.names[LEAVER]])
    changed = after.moments["pi"] != state.moments["pi"]
    assert not bool(changed[LEAVER].any())
    assert bool(changed[STAYERS].all()), "its column is a block of the others"
    assert bool((after.prior["alpha_unconstrained"] != state.prior["alpha_unconstrained"]).all())


@pytest.mark.filterwarnings("ignore:Shared runs in Pyro")  # a level is not linear in `which`
def test_a_learned_table_keeps_the_axes_that_its_prior_declares() -> None:
    def model(federation: Federation) -> CooperationModel:
        return brief(CooperationModel(Shared(federation.num_clients), Ignored(), Mixing()))

    em = EM(model(clients(K).federation), clients(K), ONE_STEP)
    state, _ = em.step(em.init())
    state = state._replace(prior={**state.prior, "table": uniform(K, K)})
    _, left = em.leave(state, [em.clients.names[LEAVER]], model)
    assert torch.equal(left.prior["table"], uniform(K, K)[STAYERS])
    assert torch.equal(left.moments["which"], state.moments["which"])


class Remembering(Mixing):
    """Remembers square matrices of which different axes are clients."""

    def during(self, start: RoundStart) -> Terms:
        known: dict[str, Axes] = {"rows": (0,), "columns": (1,), "pairs": (0, 1), "nobody": ()}
        return Terms(memory={name: Remembered(uniform(K, K, seed=9), axes) for name, axes in known.items()})


def test_what_is_remembered_keeps_the_axes_that_were_declared() -> None:
    model, fewer = (CooperationModel(Dirac(torch.zeros(size, size)), Ignored(), Remembering()) for size in (K, K - 1))
    _, left = without_one(model, fewer, rounds=1)
    matrix = uniform(K, K, seed=9)
    expected = {
        "rows": matrix[STAYERS],
        "columns": matrix[:, STAYERS],
        "pairs": matrix[STAYERS][:, STAYERS],
        "nobody": matrix,
    }
    for name, value in expected.items():
        assert torch.equal(left.memory[name].value, value), name

"""Components: who is served what, who trains it, and what becomes of those that nobody uses, by plain sums."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from scool_ppl import EM, CooperationModel, Evidence, Federation, GraphPrior, InputError, Schedule
from scool_ppl.deploy import alone
from scool_ppl.em.state import EMState
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors import Dirac
from scool_ppl.look.likelihoods import CrossLoss, Ignored
from scool_ppl.look.peers import Components, Top
from scool_ppl.mix.base import Alone
from scool_ppl.mix.components import CopyComponents, ServeComponents
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Trained
from scool_ppl.zoo.load import load_model
from tests.helpers.small import clients, close, networks, normal

K, G = 4, 3
SHARES = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 0, 0], [0.25, 0.75, 0]], dtype=torch.float64)
"""Nobody uses the third component."""


def seated(mixing: Any, moments: dict[str, Tensor]) -> tuple[EM, EMState]:
    """An EM whose state has a graph over components already."""
    whose = clients(K)
    em = EM(load_model("ifca", K, components=G)._replace(mixing=mixing), whose, Schedule(local_steps=1))
    state = em.init()._replace(
        params=networks(whose), peers=Peers.of_components(K, G), moments={"Y": SHARES, **moments}
    )
    seats = {n: normal(*value.shape, seed=50 + place) for place, (n, value) in enumerate(state.components.items())}
    return em, state._replace(components=seats)


def trained(params: dict[str, Tensor]) -> Trained:
    """As if training had added one to every number, of all clients but the last."""
    moved = torch.tensor([True, True, True, False])
    after = {name: value + moved.view(-1, *(1,) * (value.dim() - 1)) for name, value in params.items()}
    return Trained(after, {}, torch.zeros(K), moved)


@pytest.mark.parametrize("samples", [None, torch.tensor([1.0, 2.0, 5.0, 7.0])])
def test_a_component_is_the_mean_of_what_its_users_made_of_it(samples: Tensor | None) -> None:
    mixing = ServeComponents(samples)
    em, state = seated(mixing, {})
    start = em.round_start(state)
    begin = mixing.during(start).begin
    assert begin is not None
    for name, value in begin.items():
        for i in range(K):
            close(value[i], sum(SHARES[i, c] * state.components[name][c] for c in range(G)), 1e-12)
    after = mixing.components(start, trained(begin))
    weight = torch.ones(K) if samples is None else samples
    for name, value in after.items():
        mean = sum(weight[i] * (begin[name][i] + 1) for i in (0, 2)) / (weight[0] + weight[2])
        close(value[0], mean, 1e-12)
        close(value[1], begin[name][1] + 1, 1e-12)  # the last client has not trained
        close(value[2], state.components[name][2], 0)


def test_who_was_away_begins_where_its_component_is_now() -> None:
    em, state = seated(ServeComponents(), {})
    state, _ = em.step(state, absent=["client 1"])
    start = em.round_start(state)
    assert start.peers is not None
    assert start.weights is not None
    assert start.peers.shares(start.weights)[1].tolist() == [0, 1, 0], "its last choice rests"
    begin = em.model.mixing.during(start).begin
    assert begin is not None
    for name, value in begin.items():
        close(value[1], state.components[name][1], 0)
        assert not torch.equal(state.params[name][1], value[1]), "its network is of before it was away"


def test_a_client_that_relies_on_no_component_goes_on_with_its_own_network() -> None:
    em, state = seated(ServeComponents(), {"Y": SHARES.index_fill(0, torch.tensor([0]), 0.0)})
    start = em.round_start(state)
    begin = em.model.mixing.during(start).begin
    assert begin is not None
    after = em.model.mixing.components(start, trained(begin))
    for name, value in begin.items():
        close(value[0], state.params[name][0], 0)
        close(after[name][0], begin[name][2] + 1, 1e-12)


def test_copies_of_all_components_are_trained_by_all_who_are_there() -> None:
    """Two clients without the third's images, by n_i; images count as the site says, of each component its own."""
    samples, source = torch.tensor([6.0, 7.0, 8.0, 9.0]), torch.rand(9, K, G).double()
    em, state = seated(CopyComponents(samples=samples), {"source": source})
    mixing = em.model.mixing
    start = em.round_start(state, absent=["client 2"])
    asked = []

    def train(params: dict[str, Tensor], *_: object, importance: Tensor | None = None, **others: object) -> Trained:
        asked.append(importance)
        return trained(params)

    watched = type("Watched", (), {"__getattr__": lambda _, name: train if name == "train" else getattr(start, name)})()
    terms = mixing.during(start)
    assert terms.begin is not None
    assert terms.importance is not None
    favourite = [0, 1, 0, 1]
    for i, c in enumerate(favourite):
        close(terms.importance[i], source[:, i, c], 0)
        assert all(torch.equal(value[i], state.components[name][c]) for name, value in terms.begin.items())
    after = mixing.components(watched, trained(terms.begin))
    assert len(asked) == G - 1
    for i in range(K):
        every = torch.stack([terms.importance[i], *(each[i] for each in asked if each is not None)])
        close(every.sort(0).values, source[:, i].T.sort(0).values, 0)
    for name, value in after.items():  # three of those there have moved by one
        close(value, state.components[name] + (6 + 7) / (6 + 7 + 9), 1e-12)


class ByLoss(GraphPrior):
    """Y_i = softmax_j(-L(D_i; theta_j)) over clients and components together."""

    includes_self = True
    kind = "rows"
    needs = ("loss_received",)

    def model(self, evidence: Evidence) -> Tensor:
        losses = evidence.loss_received.double().masked_fill(~evidence.peers.mask, torch.inf)
        rows = torch.softmax(-losses, 1).nan_to_num(0.0)  # who is away has no candidates
        with self.edges:
            return pyro.sample("Y", dist.Delta(rows), obs=rows)


def over_seats(state: EMState) -> Tensor:
    """Rows over clients and then components, (K, K + G)."""
    assert state.peers is not None
    weights = torch.where(state.peers.mask, state.moments["Y"], 0.0)
    return torch.zeros(len(weights), len(weights) + G, dtype=weights.dtype).scatter_add(
        1, state.peers.columns(), weights
    )


def test_a_client_learns_from_clients_and_components_at_once() -> None:
    def build(federation: Federation) -> CooperationModel:
        peers = Components(Top(keep=1, after=1))
        return CooperationModel(ByLoss(federation.num_clients), Ignored(), ServeComponents(), peers, components=G)

    whose = clients(K)
    em = EM(build(whose.federation), whose, Schedule(local_steps=1))
    state = em.init()
    for absent in ([], ["client 1"], []):
        before = state
        state, info = em.step(before, absent)
        rows, there = over_seats(state), [name not in absent for name in whose.names]
        close(rows[there].sum(1), torch.ones(sum(there)), 1e-12)
        assert bool((rows[there][:, K:] > 0).all())
        for name, value in state.params.items():
            seats = torch.cat([info.trained[name], state.components[name]])
            close(value[there], torch.einsum("ij,j...->i...", rows, seats)[there], 1e-12)
        if before.round > 0:
            begin = em.round_start(before)
            assert begin.weights is not None
            used = over_seats(before._replace(peers=begin.peers, moments={"Y": begin.weights}))
            close(used.sum(1), torch.ones(K), 1e-12)  # also of who was away when its candidates became fewer
            used[:, :K] *= torch.tensor(there)
            used /= used.sum(1, keepdim=True)
            shares = used[:, K:] * torch.tensor(there)[:, None]
            for name, value in state.components.items():
                mean = torch.einsum("ic,i...->c...", shares / shares.sum(0), info.trained[name])
                close(value, mean, 1e-12)
    assert int((over_seats(state)[:, :K] > 0).sum(1).max()) <= 2, "itself and one other"
    graph = em.graph(state)
    shares = over_seats(state)[:, K:]
    close(graph.components, shares, 1e-12)
    through = over_seats(state)[:, :K] + shares @ (shares / shares.sum(0)).T
    close(graph.dense().double(), through, 1e-6)
    fewer, left = em.leave(state, ["client 2"], build)
    close(over_seats(left)[:, K - 1 :], shares[[0, 1, 3]], 1e-12)
    more, joined = fewer.join(left, whose.federation.select([2]), build)
    after, _ = more.step(joined)
    close(over_seats(after).sum(1), torch.ones(K), 1e-12)


def test_components_are_refused_where_nothing_is_known_of_them() -> None:
    whose = clients(K)
    with pytest.raises(InputError, match=r"needs 'loss'.* of 2 components.*no data"):
        started(ServeComponents(), CrossLoss(), whose)
    nothing = Dirac(torch.zeros(K, K))
    for model in (
        CooperationModel(nothing, Ignored(), ServeComponents()),
        CooperationModel(nothing, Ignored(), Alone(), Components()),
    ):
        em = EM(model, whose)
        with pytest.raises(InputError, match="the model has none; say how many, components="):
            em.step(em.init())
    with pytest.raises(InputError, match="the state has networks of \\[0\\] components, expected 3"):
        EM(load_model("ifca", K, components=3), whose).step(EM(alone(K), whose).init())
    with pytest.raises(InputError, match=f"samples has 2 entries for {K} clients, expected one for each"):
        started(ServeComponents(torch.ones(2)), Ignored(), whose)
    private = clients(K, private=["3.*"])
    with pytest.raises(InputError, match=r"several networks on .*, and a client has one private part; declare nothing"):
        EM(load_model("fedem", K), private)


def started(mixing: Any, likelihood: Any, whose: Clients) -> EMState:
    model = load_model("ifca", K)._replace(likelihood=likelihood, mixing=mixing, components=2)
    em = EM(model, whose)
    return em.step(em.init())[0]

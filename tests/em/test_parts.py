"""Rounds of networks with private and frozen parts, against what their definition comes to by plain loops in float64."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scool_ppl import EM, Evidence, Schedule, load_model
from scool_ppl.em.model import CooperationModel
from scool_ppl.graph.candidates import Peers
from scool_ppl.infer.priors import Dirac
from scool_ppl.look.evidence import Distance, RoundEvidence
from scool_ppl.look.likelihoods import Ignored
from scool_ppl.mix import MixModels, MixUpdates, Pull
from scool_ppl.train import Clients, HostileClients, Plan, Privacy
from scool_ppl.train.questions import ImageLoss, Params
from scool_ppl.zoo.load import model_names
from tests.helpers import small

BODY, HEAD = ("1.weight", "1.bias"), ("3.weight", "3.bias")
either = pytest.mark.parametrize("executor", ["stacked", "loop"])
EXACT = 1e-12


def clients(executor: str = "stacked", private: tuple[str, ...] = ("3.*",), **options: object) -> Clients:
    return small.clients(executor=executor, private=private, **options)


def worn(params: Params, network: int, owner: int) -> small.Network:
    """(u_network, v_owner)"""
    return {name: value[owner if name in HEAD else network] for name, value in params.items()}


def stepped(params: Params, whose: Clients, client: int) -> small.Network:
    """One step of SGD on a client's own images."""
    own = small.one(params, client)
    slope = small.gradient(own, whose, client)
    return {name: value - small.RATE * slope[name] for name, value in own.items()}


SHARES = torch.tensor([6.0, 7.0, 8.0, 9.0], dtype=torch.float64).expand(4, -1) / 30
RING = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]], dtype=torch.float64) / 3


@either
@pytest.mark.parametrize(
    ("model", "private", "sent", "weights"),
    [
        pytest.param("fedavg", "head", 4 * 3 + 3, SHARES, id="FedPer"),
        pytest.param("fedavg", "body", 3 * 3 + 3, SHARES, id="LG-FedAvg"),
        pytest.param("dpsgd", "head", 4 * 3 + 3, RING, id="SPDB"),
    ],
)
def test_one_part_is_averaged_and_the_other_stays_at_home(
    model: str, private: str, sent: int, weights: Tensor, executor: str
) -> None:
    whose = clients(executor, (private,))
    em, state = small.driver(load_model(model, 4, federation=whose.federation), whose)
    trained = [stepped(state.params, whose, i) for i in range(4)]
    state, info = em.step(state)
    common = BODY if private == "head" else HEAD
    for i in range(4):
        mixed = {name: sum(weights[i, j] * trained[j][name] for j in range(4)) for name in common}
        small.close_networks(state.params, i, {**trained[i], **mixed}, EXACT)
    assert whose.bytes_per_model == 8 * sent
    assert info.bytes_received.tolist() == [8.0 * sent * int((row > 0).sum() - 1) for row in weights]


@either
def test_spdb_mixes_bodies_at_every_step(executor: str) -> None:
    whose = clients(executor)
    built = load_model("dpsgd", 4, mix="before", clients_rate=small.RATE)
    em, state = small.driver(built, whose, Schedule(local_steps=2))
    networks = [small.one(state.params, i) for i in range(4)]
    for _ in range(2):
        slopes = [small.gradient(networks[i], whose, i) for i in range(4)]
        mixed = [{name: sum(RING[i, j] * networks[j][name] for j in range(4)) for name in BODY} for i in range(4)]
        networks = [
            {name: {**networks[i], **mixed[i]}[name] - small.RATE * slope for name, slope in slopes[i].items()}
            for i in range(4)
        ]
    state, _ = em.step(state)
    for i in range(4):
        small.close_networks(state.params, i, networks[i], EXACT)


@either
@pytest.mark.parametrize("table", [False, True])
def test_whoevers_images_they_are_its_own_private_part_sees_them(executor: str, table: bool) -> None:
    whose = clients(executor, probe_size=100)
    em, state = small.driver(load_model("fedavg", 4), whose)
    start, params = em.round_start(state), small.networks(whose, seed=50)
    senders = torch.tensor([[1, 2], [0, 3], [3, 0], [2, 1]])
    peers = Peers(torch.ones(4, 2, dtype=torch.bool), senders) if table else Peers.everybody(4)
    needs = ("loss", "loss_received", "own_loss", "validation_before", "validation_received", "alignment", "updates")
    start = start._replace(initial=start.params)
    found = RoundEvidence(start, params, peers, (*needs, Distance(trained=True), Distance(), "mixed_validation"))
    for i in range(4):
        small.close(found.own_loss[i], small.loss(worn(params, i, i), whose, i), EXACT)
        small.close(found.validation_before[i], small.loss(worn(state.params, i, i), whose, i, "validation"), EXACT)
        for column in peers.mask[i].nonzero().flatten().tolist():
            j = int(peers.columns().expand_as(peers.mask)[i, column])
            small.close(found.loss[i, column], small.loss(worn(params, i, j), whose, j), EXACT)
            small.close(found.loss_received[i, column], small.loss(worn(params, j, i), whose, i), EXACT)
            told = small.loss(worn(params, j, i), whose, i, "validation")
            small.close(found.validation_received[i, column], told, EXACT)
            small.close(found.alignment[i, column], _alignment(params, whose, i, j), EXACT)
            one, other = ({name: params[name][k] for name in BODY} for k in (i, j))
            small.close(found.distance(trained=True)[i, column], small.distance(one, other), EXACT)
            before = {name: state.params[name][i] for name in BODY}
            small.close(found.distance()[i, column], small.distance(before, other), EXACT)
    assert found.updates.keys() == set(BODY)
    weights = torch.rand(peers.mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = weights * peers.mask
    _check_mixed(found, state.params, params, whose, weights)


def _alignment(params: Params, whose: Clients, i: int, j: int) -> Tensor:
    """<grad_u f_i, grad_u f_j> half way between the bodies, each with its own head."""
    slopes = []
    for k in (i, j):
        middle = {name: (params[name][i] + params[name][j]) / 2 for name in BODY}
        slope = small.gradient({**middle, **{name: params[name][k] for name in HEAD}}, whose, k)
        slopes.append(torch.cat([slope[name].flatten() for name in BODY]))
    return slopes[0] @ slopes[1]


def _check_mixed(found: Evidence, before: Params, trained: Params, whose: Clients, weights: Tensor) -> None:
    """V_i(u_i^t + sum_j w_ij (u_j - u_i^t), v_i), as mixing would make it."""
    peers, told = found.peers, found.mixed_validation(weights)
    for i in range(4):
        senders = peers.columns().expand_as(peers.mask)[i]
        body = {
            name: before[name][i]
            + sum(weights[i, c] * (trained[name][j] - before[name][j]) for c, j in _used(peers, senders, i))
            for name in BODY
        }
        network = {**body, **{name: trained[name][i] for name in HEAD}}
        small.close(told[i], small.loss(network, whose, i, "validation"), EXACT)


def _used(peers: Peers, senders: Tensor, i: int) -> list[tuple[int, int]]:
    return [(c, int(senders[c])) for c in peers.mask[i].nonzero().flatten().tolist()]


@either
def test_a_pull_between_clients_pulls_what_cooperates(executor: str) -> None:
    whose, weights = clients(executor), small.uniform(4, 4).fill_diagonal_(0)
    em, state = small.driver(CooperationModel(Dirac(weights), Ignored(), Pull(strength=0.3)), whose)
    after, _ = em.step(state)
    for i in range(4):
        expected = stepped(state.params, whose, i)
        for name in BODY:
            pulls = [weights[i, j] * (state.params[name][i] - state.params[name][j]) for j in range(4)]
            expected[name] = expected[name] - small.RATE * 0.3 * sum(pulls)
        small.close_networks(after.params, i, expected, EXACT)


@either
def test_dittos_global_network_is_what_cooperates(executor: str) -> None:
    whose = clients(executor)
    em, state = small.driver(load_model("ditto", 4, strength=0.5), whose)
    trained = [stepped(state.params, whose, i) for i in range(4)]
    state, _ = em.step(state)
    assert {name for name in state.memory if name.startswith("global/")} == {f"global/{name}" for name in BODY}
    for i in range(4):  # the global network of the first round is the first client's, with everybody's own head
        first = state_of_first = {name: small.networks(whose)[name][0] for name in BODY}
        own = {
            name: value - small.RATE * 0.5 * (small.networks(whose)[name][i] - first[name]) if name in BODY else value
            for name, value in trained[i].items()
        }
        small.close_networks(state.params, i, own, EXACT)
    start = {
        **{name: v.expand(4, *v.shape) for name, v in state_of_first.items()},
        **{n: small.networks(whose)[n] for n in HEAD},
    }
    steps = [stepped(start, whose, i) for i in range(4)]
    for name in BODY:
        small.close(state.memory[f"global/{name}"].value, sum(step[name] for step in steps) / 4, EXACT)


@either
def test_mixtures_predict_with_the_clients_own_private_part(executor: str) -> None:
    whose, weights = clients(executor), small.uniform(4, 4)
    params = small.networks(whose)
    outputs, mask = whose.predict(params, "test", (weights, Peers.everybody(4, True)))
    for i in range(4):
        x, _ = small.data(whose, i, "test")
        share = weights[i] / weights[i].sum()
        p = sum(share[j] * small.outputs(worn(params, j, i), x).softmax(1) for j in range(4))
        small.close(outputs[i][mask[i]].softmax(1), p, EXACT)


def test_losses_image_by_image_are_with_the_owners_private_part() -> None:
    whose, params = clients(), small.networks(clients())
    peers = Peers.everybody(4)
    found = whose.answer({"image": ImageLoss(params, peers)}, seed=0, round=0)["image"]
    for i in range(4):
        for j in peers.mask[i].nonzero().flatten().tolist():
            small.close(found[i, j, :, 0].nanmean(), small.loss(worn(params, j, i), whose, i), EXACT)


@either
def test_ifca_averages_bodies_of_those_who_chose_them_with_their_own_heads(executor: str) -> None:
    whose = clients(executor, probe_size=100)
    em = EM(load_model("ifca", 4, components=2), whose, Schedule(local_steps=1), seed=3)
    state = em.init()
    assert state.components.keys() == set(BODY)
    apart = {name: small.normal(2, *value.shape[1:], seed=1) for name, value in state.components.items()}
    state = state._replace(params=small.networks(whose), components=apart)
    heads = [{name: state.params[name][i] for name in HEAD} for i in range(4)]
    bodies, seen = [{name: apart[name][c] for name in BODY} for c in range(2)], set()

    def chosen() -> list[int]:
        losses = [[small.loss({**body, **heads[i]}, whose, i) for body in bodies] for i in range(4)]
        return [int(torch.stack(each).argmin()) for each in losses]

    choice = chosen()
    for _ in range(3):
        seen.add(tuple(choice))
        trained = []
        for i in range(4):
            here = {**bodies[choice[i]], **heads[i]}
            slope = small.gradient(here, whose, i)
            trained.append({name: value - small.RATE * slope[name] for name, value in here.items()})
        heads = [{name: network[name] for name in HEAD} for network in trained]
        for c in set(choice):
            users = [i for i in range(4) if choice[i] == c]
            bodies[c] = {name: sum(trained[i][name] for i in users) / len(users) for name in BODY}
        choice = chosen()
        state, info = em.step(state)
        assert em.graph(state).components.argmax(1).tolist() == choice
        for i in range(4):
            small.close_networks(info.trained, i, trained[i], EXACT)
            small.close_networks(state.params, i, {**bodies[choice[i]], **heads[i]}, EXACT)
    assert len({c for each in seen for c in each}) == 2, "both are used"


@pytest.mark.parametrize("model", [name for name in model_names() if name != "fedem"])
def test_no_model_mixes_a_private_part_or_moves_a_frozen_one(model: str) -> None:
    """Of any model: after mixing what is private is where training took it, and both executors agree."""
    ends = []
    for executor in ("stacked", "loop"):
        whose = small.clients(executor=executor, private=("3.*",), frozen=("1.bias",), common_start=False)
        frozen = {name: value.clone() for name, value in whose.frozen.items()}
        told = {"truth": torch.ones(4, 4)} if model == "oracle" else {}
        built = small.brief(load_model(model, 4, federation=whose.federation, **told))
        em = EM(built, whose, small.ONE_STEP, seed=1)
        state = em.init()
        for _ in range(2):
            state, info = em.step(state)
            assert all(state.params[name].equal(info.trained[name]) for name in HEAD)
        assert state.params.keys() == {"1.weight", *HEAD}
        assert not state.params["3.weight"][0].equal(state.params["3.weight"][1])
        assert all(value.equal(whose.frozen[name]) for name, value in frozen.items())
        ends.append(state)
    for name, value in ends[0].params.items():
        small.close(value, ends[1].params[name], EXACT)


def test_a_hostile_client_sends_what_cooperates() -> None:
    params = small.networks(clients())
    plain = clients().train(params, None, Plan(steps=1)).params
    hostile = HostileClients(clients(), "sign-flip", hostile=("client 1",))
    sent = hostile.train(params, None, Plan(steps=1)).params
    for name in HEAD:
        assert sent[name].equal(plain[name])
    for name in BODY:
        small.close(sent[name][1] - params[name][1], params[name][1] - plain[name][1], EXACT)


def test_a_frozen_part_is_held_once_and_is_in_no_checkpoint(tmp_path: Path) -> None:
    wide = {"hidden": 4000, "frozen": ("1.*",)}  # 16000 of 28003 parameters
    whose = small.clients(executor="auto", **wide)
    size = 8 * 4 * (4000 * 3 + 3)
    em = EM(load_model("fedavg", 4), whose, small.ONE_STEP)
    assert sum(value.numel() * value.element_size() for value in em.init().params.values()) == size
    modules = [whose._executors.stacked.module]
    for pool in (whose._executors.stacked._workers, whose._executors.loop._pool):
        modules += [pool._modules.get() for _ in range(pool.count)]
    assert len({module.get_parameter("1.weight").data_ptr() for module in modules}) == 1
    assert len({module.get_parameter("3.weight").data_ptr() for module in modules}) == len(modules)
    em = EM(load_model("fedavg", 4), small.clients(**wide), small.ONE_STEP)
    em.fit(2, run=tmp_path / "run", progress=False)
    written = (tmp_path / "run/checkpoints/round-000002/tensors.safetensors").stat().st_size
    assert size < written < size + 8 * 16000, "networks once, the frozen part not even once"
    (delivered,) = (tmp_path / "run/deployed").glob("*.safetensors")
    assert size + 8 * 16000 + 8 * 4000 <= delivered.stat().st_size < size + 2 * 8 * 20000, "there it is, once"


def test_a_run_with_parts_goes_on_bit_for_bit_and_only_with_the_same_parts(tmp_path: Path) -> None:
    def em(**parts: tuple[str, ...]) -> EM:
        return EM(load_model("scool_sbm", 4), small.clients(**parts), small.ONE_STEP)

    parts = {"private": ("3.*",), "frozen": ("1.bias",)}
    whole = em(**parts).fit(4, progress=False)
    em(**parts).fit(2, run=tmp_path / "run", progress=False)
    again = em(**parts).fit(4, run=tmp_path / "run", resume=True, progress=False)
    assert all(value.equal(again.state.params[name]) for name, value in whole.state.params.items())
    for other in ({"private": ("3.weight",), "frozen": ("1.bias",)}, {"frozen": ("1.bias",)}):
        with pytest.raises(ValueError, match="has the private parameter 3"):
            em(**other).fit(5, run=tmp_path / "run", resume=True, progress=False)


def test_newcomers_begin_with_the_others_body_and_a_private_part_of_their_own() -> None:
    whole = small.federation(5)
    first = Clients(whole.select(range(4)), small.partial(small.MLP, 4, 3, (3,)), private=("3.*",), common_start=False)
    build = lambda federation: load_model("fedavg", federation.num_clients)  # noqa: E731
    em = EM(build(first.federation), first, small.ONE_STEP)
    state, _ = em.step(em.init())
    moved, joined = em.join(state, whole.select([4]), build, "mean")
    fresh = moved.clients.init(0)
    for name in HEAD:
        assert joined.params[name][4].equal(fresh[name][4])
    for name in BODY:
        small.close(joined.params[name][4], state.params[name].mean(0), 1e-6)
    left, rest = moved.leave(joined, ["client 0"], build)
    assert rest.params["3.bias"].equal(joined.params["3.bias"][1:])
    left.step(rest)


def test_updates_that_are_mixed_are_those_of_what_cooperates() -> None:
    """Clipping looks at no private part: what cooperates ends as it does where heads are frozen where they are."""
    for mixing in (MixUpdates(clip=0.01), MixModels()):
        whose, weights = clients(), small.uniform(4, 4).fill_diagonal_(0)
        em, state = small.driver(CooperationModel(Dirac(weights), Ignored(), mixing), whose)
        after, info = em.step(state)
        body = [{name: of[name] for name in BODY} for of in (state.params, info.trained)]
        expected = mixing(*body, weights, Peers.everybody(4))
        for name in BODY:
            small.close(after.params[name], expected[name], EXACT)


def test_private_training_clips_and_noises_all_that_is_trained_and_nothing_else() -> None:
    """DP-SGD of both executors, and without noise or clipping the bits of plain training on the same batches."""
    pytest.importorskip("opacus", reason="opacus is not installed")
    ends = []
    for executor in ("stacked", "loop"):
        whose = clients(executor, frozen=("1.bias",), privacy=Privacy(noise=1.0, clip=0.5))
        ends.append(whose.train(small.networks(whose), None, Plan(steps=2)).params)
        assert ends[-1].keys() == {"1.weight", *HEAD}
    for name, value in ends[0].items():
        small.close(value, ends[1][name], EXACT)
    for executor in ("stacked", "loop"):
        plain, free = (
            clients(executor, frozen=("1.bias",), privacy=privacy)
            for privacy in (None, Privacy(noise=0.0, clip=math.inf, poisson=False))
        )
        one, other = (each.train(small.networks(plain), None, Plan(steps=2)).params for each in (plain, free))
        for name, value in one.items():
            small.close(value, other[name], EXACT)


def test_in_bf16_what_is_frozen_is_there_once_too() -> None:
    whose = Clients(
        small.federation(), small.partial(small.MLP, 4, 3, (3,)), dtype=torch.float32, precision="bf16", frozen=("1.*",)
    )
    before = {name: value.clone() for name, value in whose.frozen.items()}
    trained = whose.train(whose.init(0), None, Plan(epochs=1))
    assert trained.params.keys() == set(HEAD)
    assert all(value.equal(whose.frozen[name]) for name, value in before.items())
    assert not trained.params["3.weight"].equal(whose.init(0)["3.weight"])

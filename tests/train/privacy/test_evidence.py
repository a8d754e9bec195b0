"""Noised losses: the variance and the bound that are stated, every image in turn; and plain losses without noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.graph.candidates import Peers
from scool_ppl.train.clients import Clients
from scool_ppl.train.privacy.evidence import REFUSED, bounded, check_question, releases
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import (
    Alignment,
    ImageLoss,
    LabelEntropy,
    OwnLoss,
    PairLoss,
    Params,
    PredictionLoss,
    Predictor,
    Question,
)
from tests.helpers.small import clients as small
from tests.helpers.small import close, data, networks, one, outputs

K, CLIP = 4, 1.5
EVERYBODY = Peers.everybody(K, True)
TABLE = Peers(torch.tensor([[True, True]] * 3 + [[True, False]]), torch.tensor([[1, 2], [0, 3], [3, 0], [2, 2]]))


def private(noise: float = 0.0, clip: float = CLIP, **options: Any) -> Clients:
    if noise > 0:
        pytest.importorskip("opacus", reason="opacus is not installed")
    return small(K, privacy=Privacy(0.0, math.inf, evidence_noise=noise, evidence_clip=clip), **options)


def asked(whose: Clients, question: Question, round: int = 0, seed: int = 0) -> Tensor:
    return whose.answer({"it": question}, seed=seed, round=round)["it"]


def image_losses(params: Params, whose: Clients, network: int, owner: int, split: str = "train") -> Tensor:
    """-log p of the owner's images by another's network, written out."""
    x, y = data(whose, owner, split)
    logits = outputs(one(params, network), x)
    return logits.exp().sum(1).log() - logits[torch.arange(len(y)), y]


@pytest.mark.parametrize("peers", [EVERYBODY, TABLE], ids=["everybody", "table"])
@pytest.mark.parametrize("whose", ["receiver", "sender"])
def test_every_image_is_clipped_before_the_mean(peers: Peers, whose: Any) -> None:
    clients = private()
    params = networks(clients, scale=2.0)
    found = asked(clients, PairLoss(params, peers, whose))
    cut = False
    for i, m, j in zip(*(each.tolist() for each in peers.pairs()), strict=True):
        network, owner = (i, j) if whose == "receiver" else (j, i)
        each = image_losses(params, clients, network, owner)
        cut = cut or bool((each > CLIP).any())
        close(found[i, m], each.clamp(max=CLIP).mean())
    assert cut, "some are beyond the clip"
    own = asked(clients, OwnLoss(params, "validation"))
    each = [image_losses(params, clients, i, i, "validation").clamp(max=CLIP).mean() for i in range(K)]
    close(own, torch.stack(each))


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf])
def test_a_network_that_says_nothing_moves_no_loss_beyond_the_clip(junk: float) -> None:
    assert bounded(torch.tensor([junk, 9.0, -9.0, 0.5]), 2.0).abs().max() <= 2.0
    clients = private()
    params = {name: value.clone() for name, value in networks(clients).items()}
    params["1.weight"][1] = junk
    found = asked(clients, PairLoss(params, EVERYBODY, "receiver"))
    assert found.isfinite().all()
    assert float(found.max()) <= CLIP


def test_one_image_moves_what_a_client_releases_by_no_more_than_the_stated_bound() -> None:
    """Every image of a client in turn is replaced by many others, or left out with the number as it was known."""
    clients, owner = private(), 1
    params = networks(clients, scale=3.0)
    whole, rows = clients.federation, clients.federation.train[owner]
    size, question = len(rows), PairLoss(params, EVERYBODY, "receiver")
    row = asked(clients, question)[:, owner]
    bound, largest = math.sqrt(K) * CLIP / size, 0.0
    random = torch.Generator().manual_seed(0)
    for place, image in enumerate(rows.tolist()):
        for _ in range(12):
            inputs, targets = whole.inputs.clone(), whole.targets.clone()
            inputs[image] = 30 * torch.randn(inputs.shape[1:], generator=random).to(inputs)
            targets[image] = torch.randint(3, (), generator=random)
            moved = asked(clients.for_federation(replace(whole, inputs=inputs, targets=targets)), question)[:, owner]
            largest = max(largest, float((moved - row).norm()))
        left = torch.cat([rows[:place], rows[place + 1 :]])
        train = tuple(left if i == owner else each for i, each in enumerate(whole.train))
        fewer = asked(clients.for_federation(replace(whole, train=train)), question)[:, owner]
        largest = max(largest, float((fewer * (size - 1) / size - row).norm()))
    assert largest <= bound * (1 + 1e-9)
    assert largest > 0.8 * bound, "some image comes near it: the bound is not a loose one"
    assert asked(small(K), question)[:, owner].max() > CLIP, "without the clip the losses are larger"


def test_the_noise_has_the_stated_variance_and_is_independent() -> None:
    """Chi-square of all entries, each over its own stated deviation: sigma sqrt(M) C / n of the owner's M losses."""
    sigma, rounds = 1.5, 400
    clients, plain = private(sigma), private(0.0)
    params = networks(clients)
    sizes = clients.federation.sizes("train").double()
    for question, deviation in (
        (PairLoss(params, EVERYBODY, "receiver"), (sigma * math.sqrt(K) * CLIP / sizes).expand(K, K)),
        (PairLoss(params, EVERYBODY, "sender"), (sigma * math.sqrt(K) * CLIP / sizes)[:, None].expand(K, K)),
        (OwnLoss(params), sigma * CLIP / sizes),
    ):
        exact = asked(plain, question)
        drawn = torch.stack([asked(clients, question, round) - exact for round in range(rounds)]) / deviation
        count = drawn.numel()
        low, high = chi2.ppf([1e-6, 1 - 1e-6], count)
        assert low < float(drawn.square().sum()) < high
        assert abs(float(drawn.mean())) < 5 / math.sqrt(count)
        each = drawn.flatten(1).square().sum(0)
        low, high = chi2.ppf([1e-6, 1 - 1e-6], rounds)
        assert low < float(each.min()) <= float(each.max()) < high
        correlation = torch.corrcoef(drawn.flatten(1).T) - torch.eye(drawn[0].numel())
        assert float(correlation.abs().max()) < 5 / math.sqrt(rounds)


def test_a_table_of_candidates_is_noised_by_how_many_networks_the_owner_looks_at() -> None:
    clients, plain, rounds = private(1.0), private(0.0), 300
    question = PairLoss(networks(clients), TABLE, "receiver")
    exact = asked(plain, question)
    drawn = torch.stack([asked(clients, question, round) - exact for round in range(rounds)])
    looks = torch.tensor([2, 1, 2, 2]).double()  # 0 is heard by 1 and 2, 1 by 0, 2 by 0 and 3, 3 by 1 and 2
    sizes = clients.federation.sizes("train").double()
    for i, m, j in zip(*(each.tolist() for each in TABLE.pairs()), strict=True):
        expected = float(looks[j].sqrt() * CLIP / sizes[j])
        assert float(drawn[:, i, m].std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * rounds))
    assert (drawn[:, 3, 1] == 0).all(), "nothing is added where nobody looks"


def test_every_release_has_noise_of_its_own() -> None:
    clients, plain = private(1.0), private(0.0)
    params = networks(clients)
    first = asked(clients, PairLoss(params, EVERYBODY, "sender"))
    assert torch.equal(asked(clients, PairLoss(params, EVERYBODY, "sender")), first)

    def noise(release: Tensor | None = None, **when: int) -> Tensor:
        question = PairLoss(params, EVERYBODY, "sender", release=release)
        return asked(clients, question, **when) - asked(plain, question, **when)

    second = torch.ones(K, dtype=torch.long)
    told = [noise(), noise(second), noise(2 * second), noise(second, round=1), noise(second, seed=1)]
    for place, one_noise in enumerate(told):
        for another in told[:place]:
            assert float((one_noise - another).abs().min()) > 1e-9
    own = asked(clients, OwnLoss(params, release=second)) - asked(plain, OwnLoss(params))
    assert not torch.equal(own, asked(clients, OwnLoss(params)) - asked(plain, OwnLoss(params)))


def test_without_noise_and_clip_losses_are_plain() -> None:
    clients, plain = private(0.0, math.inf), small(K)
    params = networks(plain)
    for question in (PairLoss(params, EVERYBODY), PairLoss(params, TABLE, "sender"), OwnLoss(params, "validation")):
        close(asked(clients, question), asked(plain, question), 1e-10)


def test_who_looks_at_its_images_has_made_a_release() -> None:
    params = networks(small(K))
    assert releases(PairLoss(params, TABLE, "receiver"), K).tolist() == [1, 1, 1, 1]
    only = Peers(torch.tensor([[True]] + [[False]] * 3), torch.tensor([[2]] * 4))
    assert releases(PairLoss(params, only, "receiver"), K).tolist() == [0, 0, 1, 0]
    assert releases(PairLoss(params, only, "sender"), K).tolist() == [1, 0, 0, 0]
    assert releases(OwnLoss(params), K).tolist() == [1] * 4
    assert releases(OwnLoss(params, present=torch.tensor([True, False, True, True])), K).tolist() == [1, 0, 1, 1]


def test_what_cannot_be_noised_is_refused_in_one_line() -> None:
    clients = private(1.0)
    params = networks(clients)
    moving = {name: value.requires_grad_() for name, value in networks(clients).items()}
    exact: list[Question] = [
        Alignment(params, EVERYBODY),
        LabelEntropy(),
        ImageLoss(params, EVERYBODY),
        PredictionLoss(Predictor(params)),
    ]
    assert {type(question) for question in exact} == set(REFUSED)
    for question in (*exact, OwnLoss(moving)):
        with pytest.raises(
            InputError, match=r"asked for .*, expected mean losses .*--dp-evidence-noise\) out$"
        ) as found:
            asked(clients, question)
        assert "\n" not in str(found.value)
        check_question(question, Privacy(0.0, 1.0))
        asked(small(K, privacy=Privacy(0.0, math.inf)), question)  # as it is, where only training is private

"""The questions of a round: what clients can be asked about networks, as data that could be sent to them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from scool_ppl.errors import unknown
from scool_ppl.graph.candidates import Peers

Params = dict[str, Tensor]
"""Parameters of K networks: name -> (K, *shape)."""


def joined(networks: Params, others: Params) -> Params:
    """The networks with the others behind them, e.g. those of components behind the clients'; what stays at home the
    others do not have.
    """
    return {n: torch.cat([value, others[n]]) if n in others else value for n, value in networks.items()}


Whose = Literal["receiver", "sender"]

Mixture = tuple[Tensor, Peers]
"""Weights (K, M) of candidates, and who these are."""


class Predictor(NamedTuple):
    """What each client predicts with: its network of a stack, or with a mixture sum_j w_ij p(y | h_theta_j(x))."""

    networks: Params
    mixture: Mixture | None = None


class Ensemble(NamedTuple):
    """Several predictors a client, combined: client i predicts with sum_c weights_ic p_c(y | x).

    weights: (K, C), rows that sum to one. offsets: (K, width) added to the outputs of every predictor of a client before
    they are probabilities, e.g. log-odds of classes; None for none.
    """

    predictors: tuple[Predictor, ...]
    weights: Tensor
    offsets: Tensor | None = None


class PairLoss(NamedTuple):
    """Mean losses of pairs, (K, M), 0 where masked. With j = senders[i, m] and loss[a, b] of network a on b's probe:

    whose="receiver": entry [i, m] = loss[i, j]; whose="sender": entry [i, m] = loss[j, i]. release: (K,) how many releases
    of losses each client has made before, which is in the key of a private one's noise.
    """

    networks: Params
    peers: Peers
    whose: Whose = "receiver"
    split: str = "train"
    release: Tensor | None = None


class OwnLoss(NamedTuple):
    """Mean loss of each client's network on its own probe, (K,), differentiable in the networks.

    present: (K,) bool, who is asked, None for all; the others' entries are 0. release: as of a `PairLoss`.
    """

    networks: Params
    split: str = "train"
    present: Tensor | None = None
    release: Tensor | None = None


class Alignment(NamedTuple):
    """<grad f_i(m_ij), grad f_j(m_ij)> at m_ij = (theta_i + theta_j) / 2, (K, M), 0 where masked.

    f_i is the loss on client i's probe.
    """

    networks: Params
    peers: Peers
    split: str = "train"


class LabelEntropy(NamedTuple):
    """The loss of knowing only how a client's own training targets are distributed, (K,): for labels their entropy.

    present: (K,) bool, who is asked, None for all; the others' entries are 0.
    """

    present: Tensor | None = None


class ImageLoss(NamedTuple):
    """Losses image by image, (K, M, n, T): entry [i, m, n, t] is -log p of the n-th image of client i's probe at its t-th
    position (T = 1 but for sequences) by the network of j = senders[i, m]; nan where the pair is masked and where there
    is no image, infinite where the network says nothing that can be computed.

    The probe is that of the first round in all rounds: what networks say of an image can be compared.

    whole: all images of the split instead of a probe, in the order of the client's rows.

    calibrated: every network's outputs are divided by a temperature of its own, found by the client who trained it on
    its validation images: sum_n -log p(y_n | x_n; T) + (log T)^2 / 2 is lowest, T >= 1, so that nobody is overconfident.
    """

    networks: Params
    peers: Peers
    split: str = "train"
    calibrated: bool = False
    whole: bool = False


class PredictionLoss(NamedTuple):
    """-log p of each client's own images by what it predicts with, (K, n, T), all images of a split at all positions (T = 1
    but for sequences); nan where there is none.

    offsets: (K, width) added to the outputs, None for none.
    """

    predictor: Predictor
    split: str = "validation"
    offsets: Tensor | None = None


Question = PairLoss | OwnLoss | Alignment | LabelEntropy | ImageLoss | PredictionLoss


def check_whose(whose: str) -> None:
    """Raises InputError unless it says whose network a pair's loss is of."""
    if whose not in ("receiver", "sender"):
        raise unknown("whose", whose, ("receiver", "sender"))

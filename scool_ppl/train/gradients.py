"""Gradients of many networks at once, compared pair by pair."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl.graph.candidates import Peers
from scool_ppl.train.batches import Probe
from scool_ppl.train.forward import Forward
from scool_ppl.train.questions import Params

PAIRS_AT_ONCE = 256
_ELEMENTS_AT_ONCE = 2**22  # parameters of the networks half way between pairs, of which there are two gradients, too


def midpoint_alignment(forward: Forward, networks: Params, peers: Peers, probe: Probe) -> Tensor:
    """a_ij = <grad f_i(m_ij), grad f_j(m_ij)> at m_ij = (theta_i + theta_j) / 2, (K, M); 0 where masked. Of networks with
    private parts f_i is the loss with client i's own, and the gradient that in what cooperates.

    Symmetric, so every unordered pair is computed once; pairs go in chunks, so memory does not grow with their number.
    """
    receivers, columns, senders = peers.pairs()
    low, high = torch.minimum(receivers, senders), torch.maximum(receivers, senders)
    pairs, where = torch.stack([low, high], 1).unique(dim=0, return_inverse=True)
    size = sum(value[0].numel() for value in networks.values())
    at_once = max(1, min(PAIRS_AT_ONCE, _ELEMENTS_AT_ONCE // size))
    values = [_aligned(forward, networks, chunk, probe) for chunk in pairs.split(at_once) if len(chunk)]
    table = torch.zeros(peers.mask.shape, dtype=torch.float64)
    if values:
        table[receivers, columns] = torch.cat(values).double().cpu()[where]
    return table


def _aligned(forward: Forward, networks: Params, pairs: Tensor, probe: Probe) -> Tensor:
    """a of some pairs (P, 2) -> (P,)."""
    first, second = pairs.T
    shared, own = forward.parts.cooperating(networks), forward.parts.at_home(networks)
    middle = {name: ((value[first] + value[second]) / 2).detach().requires_grad_() for name, value in shared.items()}
    leaves = list(middle.values())
    gradients = []
    for owner in (first, second):
        completed = {**middle, **{name: value[owner].detach() for name, value in own.items()}}
        rows = Probe(probe.index[owner], probe.targets[owner], probe.mask[owner])
        with torch.enable_grad():
            loss = forward.own_loss(completed, rows).sum()
        gradients.append(torch.autograd.grad(loss, leaves))
    products = [(one * other).flatten(1).sum(1) for one, other in zip(*gradients, strict=True)]
    return torch.stack(products).sum(0)

"""Marginal: the joint program with the graph summed out, for samplers and guides of continuous latents alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from pyro.distributions import Bernoulli, Delta, Independent, MaskedDistribution
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor

from scool_ppl.errors import InputError
from scool_ppl.infer.distributions import BlockBernoulli, OneHot
from scool_ppl.infer.priors.base import Joint
from scool_ppl.look.evidence import Evidence


@dataclass(frozen=True)
class Marginal:
    """log P(Z, D) = log sum_Y P(Y, Z) P(D | Y), exactly, as a Pyro program without arguments.

    Given Z, edges are independent of one another (kind "edges"), or rows are ("rows"); with the evidence's log-odds l:

        edges: sum_ij log((1 - p_ij) + p_ij exp l_ij)        rows: sum_i log sum_j p_ij exp l_ij

    The site "Y" of this program is E[Y | Z, D] (K, M), 0 where masked. A graph that is given or continuous is not summed
    out: the program is then the joint itself.
    """

    joint: Joint
    evidence: Evidence

    def __call__(self) -> Tensor:
        summing = _SumOut(self.joint, self.evidence)
        with summing, self.joint.prior.opened(self.evidence):
            graph = self.joint.prior(self.evidence)
            if summing.expected is None:
                self.joint.score(graph, self.evidence)
        if summing.expected is not None and not torch.equal(graph, summing.expected):
            raise summing.refused("returns something else than its site 'Y'; return that")
        return graph


class _SumOut(Messenger):
    """Scores the site "Y" by the logarithm of the sum over its values, and goes on with their mean given the evidence."""

    def __init__(self, joint: Joint, evidence: Evidence) -> None:
        super().__init__()
        self.joint, self.evidence = joint, evidence
        self.expected: Tensor | None = None

    def refused(self, why: str) -> InputError:
        return InputError(f"{type(self.joint.prior).__name__}: the graph cannot be summed out: the program {why}")

    def _pyro_sample(self, msg: Any) -> None:
        if self.expected is not None and not site_is_subsample(msg) and not msg["infer"].get("_deterministic"):
            raise self.refused(f"goes on after 'Y' with the site '{msg['name']}'; use marginal=False")
        if msg["name"] != "Y" or msg["is_observed"] or not msg["fn"].support.is_discrete:
            return
        log_lik = self.joint.table
        if log_lik is None:
            raise self.refused("is scored by a function of the whole graph; use marginal=False")
        mask = self.evidence.peers.mask
        odds = torch.where(mask, log_lik.double(), 0.0)
        scale = msg["scale"]
        fn = msg["fn"]
        while isinstance(fn, MaskedDistribution | Independent):
            fn = fn.base_dist
        if isinstance(fn, Bernoulli | BlockBernoulli):
            one, zero = (scale * fn.log_prob(torch.full(mask.shape, value).to(odds)) for value in (1.0, 0.0))
            total, mean, depth = torch.logaddexp(one + odds, zero), (one + odds - zero).sigmoid(), 0
        elif isinstance(fn, OneHot):
            each = scale * fn.log_probs + odds
            total, mean, depth = each.logsumexp(-1), each.softmax(-1), 1
        else:
            raise self.refused(f"samples 'Y' from {type(fn).__name__}; use Bernoulli, BlockBernoulli or OneHot")
        self.expected = torch.where(mask, mean, 0.0)
        msg["fn"], msg["scale"] = Delta(self.expected, log_density=total, event_dim=depth), 1.0
        msg["value"], msg["is_observed"], msg["infer"] = self.expected, True, {}

"""Covariate SBM: a block model in which something known of the clients, such as a region, hints at their block.

    c_i the known covariate of client i,  z_i ~ Categorical(softmax_g(hint [g = c_i] + bias_g)),  bias is learned
    Y_ij ~ Bernoulli(B[z_i, z_j]);  likelihood and mixing as in scool_sbm

No paper has it: an example of a prior that knows something. The hint is soft: evidence overrules a covariate that misleads.
"""

import pyro
import torch

from scool_ppl import CooperationModel, Evidence, InputError, OneHot
from scool_ppl.infer.priors import SBM
from scool_ppl.look import CrossLoss, Reference
from scool_ppl.mix import MixUpdates


class CovariateSBM(SBM):
    """The SBM with z_i drawn around a known covariate instead of from a Dirichlet."""

    def __init__(self, num_clients: int, num_blocks: int, covariate: torch.Tensor, hint: float) -> None:
        super().__init__(num_clients, num_blocks, learn_alpha=False)
        self.register_buffer("hint", hint * torch.nn.functional.one_hot(covariate, num_blocks).double())
        self.bias = torch.nn.Parameter(torch.zeros(num_blocks))

    def model(self, evidence: Evidence) -> torch.Tensor:
        with self.clients:
            z = pyro.sample("z", OneHot(logits=self.hint + self.bias))
        with self.edges:
            return self.sample_edges(self.receiver(z), self.sender(z))

    def starts(
        self, evidence: Evidence, log_lik: torch.Tensor, generator: torch.Generator
    ) -> list[dict[str, torch.Tensor]]:
        """The covariate itself, besides the spectral starts."""
        return [{"z": self.hint.softmax(-1)}, *super().starts(evidence, log_lik, generator)]


def build(
    num_clients: int,
    blocks: int = 8,
    covariate: str | None = None,
    client_regions: torch.Tensor | None = None,
    hint: float = 2.0,
    n_eff: float = 5.0,
    reference: Reference = "midpoint",
) -> CooperationModel:
    """`covariate`: whole numbers below `blocks`, one per client, e.g. 0.0.1.1 (points between); none: `client_regions`,
    where the federation has them, else the list in runs. `hint`: log-odds of its block. The others as in scool_sbm.
    """
    words = None if covariate is None else covariate.split(".")
    if words is not None and not all(word.isdecimal() for word in words):
        raise InputError(f"covariate is '{covariate}', expected whole numbers with points between, e.g. 0.0.1.1")
    known = torch.arange(num_clients) * blocks // num_clients if client_regions is None else client_regions
    known = known if words is None else torch.tensor([int(word) for word in words])
    if len(known) != num_clients or not 0 <= int(known.min()) <= int(known.max()) < blocks:
        raise InputError(f"covariate has {len(known)} entries, expected {num_clients} numbers from 0 to {blocks - 1}")
    prior = CovariateSBM(num_clients, blocks, known, hint)
    return CooperationModel(prior, CrossLoss(n_eff, reference=reference), MixUpdates())

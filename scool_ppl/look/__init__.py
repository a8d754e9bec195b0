"""Look: who is a candidate, what the clients show, and how that scores the graph."""

from scool_ppl.look.evidence import Distance, Evidence, Need, RoundEvidence
from scool_ppl.look.images import BlockMixture
from scool_ppl.look.likelihoods import (
    CrossLoss,
    GradientAlignment,
    Ignored,
    Likelihood,
    MixedValidation,
    ModelDistance,
    ModelMixture,
    Reference,
    UpdateCosine,
)
from scool_ppl.look.peers import All, Components, EpsilonGreedy, Near, PeerPolicy, RandomPairs, Top

__all__ = [
    "All",
    "BlockMixture",
    "Components",
    "CrossLoss",
    "Distance",
    "EpsilonGreedy",
    "Evidence",
    "GradientAlignment",
    "Ignored",
    "Likelihood",
    "MixedValidation",
    "ModelDistance",
    "ModelMixture",
    "Near",
    "Need",
    "PeerPolicy",
    "RandomPairs",
    "Reference",
    "RoundEvidence",
    "Top",
    "UpdateCosine",
]

"""Look: who is a candidate, what the clients show, and how that scores the graph."""

from scool_ppl.look.evidence import Evidence
from scool_ppl.look.likelihoods import (
    CrossLoss,
    GradientAlignment,
    Ignored,
    Likelihood,
    MixedValidation,
    ModelDistance,
    ModelMixture,
    Reference,
)
from scool_ppl.look.peers import All, EpsilonGreedy, PeerPolicy, RandomPairs, Top

__all__ = [
    "All",
    "CrossLoss",
    "EpsilonGreedy",
    "Evidence",
    "GradientAlignment",
    "Ignored",
    "Likelihood",
    "MixedValidation",
    "ModelDistance",
    "ModelMixture",
    "PeerPolicy",
    "RandomPairs",
    "Reference",
    "Top",
]

"""Infer: the graph's posterior, by Pyro, for any prior."""

from scool_ppl.infer.bound import MomentELBO
from scool_ppl.infer.distributions import BlockBernoulli, OneHot
from scool_ppl.infer.estep import EStep, ModeSearch, NaturalGradient, Posterior, ProjectedGradient, SVIStep
from scool_ppl.infer.guide import AutoMeanField
from scool_ppl.infer.indices import AsIndex
from scool_ppl.infer.intervals import Intervals, intervals
from scool_ppl.infer.marginal import Marginal
from scool_ppl.infer.priors import GraphPrior, Joint
from scool_ppl.infer.program import Program

__all__ = [
    "AsIndex",
    "AutoMeanField",
    "BlockBernoulli",
    "EStep",
    "GraphPrior",
    "Intervals",
    "Joint",
    "Marginal",
    "ModeSearch",
    "MomentELBO",
    "NaturalGradient",
    "OneHot",
    "Posterior",
    "Program",
    "ProjectedGradient",
    "SVIStep",
    "intervals",
]

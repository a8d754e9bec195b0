"""Priors over cooperation graphs, each a Pyro program."""

from scool_ppl.infer.priors.attention import Attention, FilterEncoder
from scool_ppl.infer.priors.base import GraphPrior, Joint
from scool_ppl.infer.priors.box import Box
from scool_ppl.infer.priors.dirac import Dirac
from scool_ppl.infer.priors.mixture import ModelMixture
from scool_ppl.infer.priors.mmsbm import MMSBM
from scool_ppl.infer.priors.partition import Partition
from scool_ppl.infer.priors.sbm import SBM

__all__ = [
    "MMSBM",
    "SBM",
    "Attention",
    "Box",
    "Dirac",
    "FilterEncoder",
    "GraphPrior",
    "Joint",
    "ModelMixture",
    "Partition",
]

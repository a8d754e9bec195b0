"""Priors over cooperation graphs, each a Pyro program."""

from scool_ppl.priors.attention import Attention
from scool_ppl.priors.base import GraphPrior, Joint
from scool_ppl.priors.box import Box
from scool_ppl.priors.dirac import Dirac
from scool_ppl.priors.mixture import ModelMixture
from scool_ppl.priors.mmsbm import MMSBM
from scool_ppl.priors.sbm import SBM

__all__ = ["MMSBM", "SBM", "Attention", "Box", "Dirac", "GraphPrior", "Joint", "ModelMixture"]

"""Priors over cooperation graphs, each a Pyro program."""

from scool_ppl.priors.base import GraphPrior, Joint
from scool_ppl.priors.dirac import Dirac
from scool_ppl.priors.sbm import SBM

__all__ = ["SBM", "Dirac", "GraphPrior", "Joint"]

"""E-steps: how q(Y, Z) is fitted to the evidence of a round. All start from the round before and report the bound."""

from scool_ppl.infer.estep.base import EStep, Posterior
from scool_ppl.infer.estep.modes import ModeSearch
from scool_ppl.infer.estep.natural import NaturalGradient
from scool_ppl.infer.estep.projected import ProjectedGradient
from scool_ppl.infer.estep.svi import SVIStep

__all__ = ["EStep", "ModeSearch", "NaturalGradient", "Posterior", "ProjectedGradient", "SVIStep"]

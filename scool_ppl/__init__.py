"""Cooperation graphs between learning clients as Pyro programs, inferred while the clients train."""

from importlib.metadata import PackageNotFoundError, version

from scool_ppl import likelihoods, mixing, peers, priors
from scool_ppl.clients import Clients
from scool_ppl.distributions import BlockBernoulli, OneHot
from scool_ppl.elbo import AutoMeanField, MomentELBO
from scool_ppl.em import EM, CooperationModel, Schedule
from scool_ppl.errors import InputError
from scool_ppl.estep import NaturalGradient, ProjectedGradient, SVIStep
from scool_ppl.evidence import Evidence
from scool_ppl.federation import Federation
from scool_ppl.graph import CooperationGraph
from scool_ppl.priors import GraphPrior
from scool_ppl.specs import load_federation
from scool_ppl.zoo import load_model

try:
    __version__ = version("scool_ppl")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "EM",
    "AutoMeanField",
    "BlockBernoulli",
    "Clients",
    "CooperationGraph",
    "CooperationModel",
    "Evidence",
    "Federation",
    "GraphPrior",
    "InputError",
    "MomentELBO",
    "NaturalGradient",
    "OneHot",
    "ProjectedGradient",
    "SVIStep",
    "Schedule",
    "likelihoods",
    "load_federation",
    "load_model",
    "mixing",
    "peers",
    "priors",
]

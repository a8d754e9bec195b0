from scool_ppl import mix as mixing
from scool_ppl.data import Federation, load_federation
from scool_ppl.em import EM, CooperationModel, Schedule
from scool_ppl.errors import InputError
from scool_ppl.graph import CooperationGraph
from scool_ppl.infer import (
    AutoMeanField,
    BlockBernoulli,
    GraphPrior,
    MomentELBO,
    NaturalGradient,
    OneHot,
    ProjectedGradient,
    SVIStep,
    priors,
)
from scool_ppl.look import Evidence, likelihoods, peers
from scool_ppl.train import Clients
from scool_ppl.zoo import load_model

__version__: str

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

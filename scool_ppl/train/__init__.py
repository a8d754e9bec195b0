"""Train: the contract of clients, and clients in this process."""

from scool_ppl.train.batches import Batches, Probe
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients, Coupling, Evaluation, Facts, Plan, Pull, Shares, Trained, Wrapper
from scool_ppl.train.hostile import Attack, HostileClients
from scool_ppl.train.networks import NETWORKS, NetworkSpec, network_for, network_of
from scool_ppl.train.privacy import Account, Privacy
from scool_ppl.train.questions import (
    Alignment,
    Ensemble,
    ImageLoss,
    LabelEntropy,
    Mixture,
    OwnLoss,
    PairLoss,
    Params,
    PredictionLoss,
    Predictor,
    Question,
)
from scool_ppl.train.round_start import Memory, Remembered, RoundStart

__all__ = [
    "NETWORKS",
    "Account",
    "Alignment",
    "AnyClients",
    "Attack",
    "Batches",
    "Clients",
    "Coupling",
    "Ensemble",
    "Evaluation",
    "Facts",
    "HostileClients",
    "ImageLoss",
    "LabelEntropy",
    "Memory",
    "Mixture",
    "NetworkSpec",
    "OwnLoss",
    "PairLoss",
    "Params",
    "Plan",
    "PredictionLoss",
    "Predictor",
    "Privacy",
    "Probe",
    "Pull",
    "Question",
    "Remembered",
    "RoundStart",
    "Shares",
    "Trained",
    "Wrapper",
    "network_for",
    "network_of",
]

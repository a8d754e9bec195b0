"""Train: the contract of clients, and clients in this process."""

from scool_ppl.train.batches import Batches, Probe
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Evaluation, Mixture, Params, Pull, Trained
from scool_ppl.train.hostile import HostileClients
from scool_ppl.train.networks import NETWORKS, network_for, network_of
from scool_ppl.train.start import Turn

__all__ = [
    "NETWORKS",
    "Batches",
    "Clients",
    "Evaluation",
    "HostileClients",
    "Mixture",
    "Params",
    "Probe",
    "Pull",
    "Trained",
    "Turn",
    "network_for",
    "network_of",
]

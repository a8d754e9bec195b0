"""Far: clients whose data and training are elsewhere, and what carries requests to them and answers back."""

from scool_ppl.far.host import Host
from scool_ppl.far.local import LocalFabric
from scool_ppl.far.ranks import RankFabric, Ranks, ranks
from scool_ppl.far.remote import RemoteClients
from scool_ppl.far.sharded import ShardedClients
from scool_ppl.far.wire import Answers, Description, Fabric, Job, Networks, Reply, Request

__all__ = [
    "Answers",
    "Description",
    "Fabric",
    "Host",
    "Job",
    "LocalFabric",
    "Networks",
    "RankFabric",
    "Ranks",
    "RemoteClients",
    "Reply",
    "Request",
    "ShardedClients",
    "ranks",
]

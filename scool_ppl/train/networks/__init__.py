"""Networks of the clients: by name or from a file, whether they can be trained, how exactly, and whose their parts are."""

from scool_ppl.train.networks.named import (
    CNN,
    MLP,
    NETWORKS,
    Chars,
    NetworkSpec,
    ResNet9,
    network_for,
    network_of,
    network_path,
)

__all__ = [
    "CNN",
    "MLP",
    "NETWORKS",
    "Chars",
    "NetworkSpec",
    "ResNet9",
    "network_for",
    "network_of",
    "network_path",
]

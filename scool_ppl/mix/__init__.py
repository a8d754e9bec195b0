"""Mix: how E_q[Y] and the trained networks become the next networks."""

from scool_ppl.mix.after import MixModels, MixUpdates
from scool_ppl.mix.base import Alone, Mixing, Terms
from scool_ppl.mix.components import CopyComponents, ServeComponents
from scool_ppl.mix.during import Pull, ServeUsers, ShareData

__all__ = [
    "Alone",
    "CopyComponents",
    "MixModels",
    "MixUpdates",
    "Mixing",
    "Pull",
    "ServeComponents",
    "ServeUsers",
    "ShareData",
    "Terms",
]

"""Base: what any program needs, and nothing of clients or graphs."""

from scool_ppl.base.arguments import check_hint, check_kind, check_names, check_whole, finite, positive, whole
from scool_ppl.base.arrays import ArrayLike, float_tensor, long_tensor
from scool_ppl.base.codec import Row, decode, encode
from scool_ppl.base.describe import versions
from scool_ppl.base.files import file_sha256, replacing, write_npz
from scool_ppl.base.machine import keep_memory, threads
from scool_ppl.base.options import parse_options
from scool_ppl.base.plugins import load_python, user_code
from scool_ppl.base.progress import counted, tracked
from scool_ppl.base.randomness import generator, key, seeded
from scool_ppl.base.signals import Interrupted, pause, stoppable
from scool_ppl.base.statistics import Spread, mean_of_worst, over_clients, over_seeds

__all__ = [
    "ArrayLike",
    "Interrupted",
    "Row",
    "Spread",
    "check_hint",
    "check_kind",
    "check_names",
    "check_whole",
    "counted",
    "decode",
    "encode",
    "file_sha256",
    "finite",
    "float_tensor",
    "generator",
    "keep_memory",
    "key",
    "load_python",
    "long_tensor",
    "mean_of_worst",
    "over_clients",
    "over_seeds",
    "parse_options",
    "pause",
    "positive",
    "replacing",
    "seeded",
    "stoppable",
    "threads",
    "tracked",
    "user_code",
    "versions",
    "whole",
    "write_npz",
]

"""Data: who has which rows of what, by hand, by name and by recipe."""

from scool_ppl.data.datasets import DATASETS, load_dataset
from scool_ppl.data.federation import Federation
from scool_ppl.data.generated import GENERATED
from scool_ppl.data.own import READERS, Arrays
from scool_ppl.data.preparation import Preparation
from scool_ppl.data.reading import SPLITS
from scool_ppl.data.roster import Roster
from scool_ppl.data.specs import DEFAULT_FEDERATION, load_federation, parse

__all__ = [
    "DATASETS",
    "DEFAULT_FEDERATION",
    "GENERATED",
    "READERS",
    "SPLITS",
    "Arrays",
    "Federation",
    "Preparation",
    "Roster",
    "load_dataset",
    "load_federation",
    "parse",
]

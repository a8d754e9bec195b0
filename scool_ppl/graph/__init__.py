"""Graph: candidates, the cooperation graph, its blocks, its scores and its files."""

from scool_ppl.graph.blocks import by_appearance
from scool_ppl.graph.candidates import Entries, Peers
from scool_ppl.graph.cooperation import CooperationGraph, Kind
from scool_ppl.graph.scores import Scores, same_group

__all__ = ["CooperationGraph", "Entries", "Kind", "Peers", "Scores", "by_appearance", "same_group"]

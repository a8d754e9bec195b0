"""Deploy: what each client ships of all that training has come to, decided on held-out data."""

from scool_ppl.deploy.blueprint import Blueprint, client_network
from scool_ppl.deploy.deployment import RULES, Rule, Single, Stack, candidates, deploy
from scool_ppl.deploy.exporting import FORMATS, export
from scool_ppl.deploy.gains import Gains, gains
from scool_ppl.deploy.measures import measures
from scool_ppl.deploy.network import ClientNetwork
from scool_ppl.deploy.portfolio import Portfolio, Tracks, alone
from scool_ppl.deploy.single import single
from scool_ppl.deploy.stacking import Stacked, stack
from scool_ppl.deploy.unseen import unseen_log_odds

__all__ = [
    "FORMATS",
    "RULES",
    "Blueprint",
    "ClientNetwork",
    "Gains",
    "Portfolio",
    "Rule",
    "Single",
    "Stack",
    "Stacked",
    "Tracks",
    "alone",
    "candidates",
    "client_network",
    "deploy",
    "export",
    "gains",
    "measures",
    "single",
    "stack",
    "unseen_log_odds",
]

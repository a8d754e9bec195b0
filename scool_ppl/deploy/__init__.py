"""Deploy: how much each client relies on each of its candidate networks, decided on held-out data."""

from scool_ppl.deploy.single import single
from scool_ppl.deploy.stacking import Stacked, stack
from scool_ppl.deploy.unseen import unseen_log_odds

__all__ = ["Stacked", "single", "stack", "unseen_log_odds"]

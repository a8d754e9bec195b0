"""EM: a round is train, look, infer, mix; its model, its state, and clients who are absent, come and go."""

from scool_ppl.em.em import EM, Look, Train
from scool_ppl.em.model import CooperationModel, Schedule
from scool_ppl.em.state import EMInfo, EMState, Fit
from scool_ppl.em.transfer import Learned

__all__ = ["EM", "CooperationModel", "EMInfo", "EMState", "Fit", "Learned", "Look", "Schedule", "Train"]

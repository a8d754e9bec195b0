"""Any model of models/ at work on four clients: what tests that run over all models begin with."""

from __future__ import annotations

import torch

from scool_ppl import EM, Clients, Federation, Schedule, load_federation, load_model
from scool_ppl.em.state import EMState
from scool_ppl.look.evidence import Evidence
from tests.helpers.small import brief

K = 4
SCHEDULE = Schedule(local_epochs=1, warmup_epochs=3)
FEDERATION = load_federation(f"permuted:digits:clients={K},groups=2,train=20,test=20,order=listed", seed=3)


def made(model: str, federation: Federation = FEDERATION, **choices: object) -> EM:
    """An EM of this model with short E-steps, in float64."""
    clients = Clients(federation, executor="stacked", dtype=torch.float64)
    built = load_model(model, federation.num_clients, federation=federation, **choices)
    return EM(brief(built), clients, SCHEDULE, seed=1)


def looked(em: EM, state: EMState | None = None) -> Evidence:
    """The evidence of a round."""
    state = em.init() if state is None else state
    start = em.round_start(state)
    return em.look(start, em.train(state, start).trained.params).evidence

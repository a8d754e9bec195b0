"""Any model of models/ at work on four clients: what tests that run over all models begin with."""

from __future__ import annotations

import torch
from torch import Tensor

from scool_ppl import EM, Clients, Federation, Schedule, load_federation, load_model
from scool_ppl.em.state import EMState
from scool_ppl.look.evidence import Evidence

K = 4
SCHEDULE = Schedule(local_epochs=1, warmup_epochs=3)
FEDERATION = load_federation(f"permuted:digits:clients={K},groups=2,train=20,test=20", seed=3)


def made(model: str, federation: Federation = FEDERATION, **choices: object) -> EM:
    """An EM of this model, in float64."""
    clients = Clients(federation, executor="stacked", dtype=torch.float64)
    built = load_model(model, federation.num_clients, federation=federation, **choices)
    return EM(built, clients, SCHEDULE, seed=1)


def looked(em: EM, state: EMState | None = None) -> Evidence:
    """The evidence of a round."""
    turn = em.turn(em.init() if state is None else state)
    return em.look(turn, em.train(em.init() if state is None else state, turn).params)[0]


def flattened(state: EMState) -> dict[str, Tensor]:
    """All tensors of a state, by path."""
    found = {}
    for field, value in state._asdict().items():
        entries = value if isinstance(value, dict) else {"": value}
        if field == "peers" and value is not None:
            entries = {"mask": value.mask, "senders": value.senders, "looked": value.looked}
        found.update({f"{field}/{name}": entry for name, entry in entries.items() if isinstance(entry, Tensor)})
    return found

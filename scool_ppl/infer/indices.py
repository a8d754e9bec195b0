"""AsIndex: one-hot sites as the index of what is chosen, for what Pyro does with indices alone."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import Categorical, Delta
from pyro.infer.reparam.reparam import Reparam
from pyro.primitives import sample


class AsIndex(Reparam):
    """z ~ OneHot(p) as z_index ~ Categorical(p), z = one_hot(z_index).

    `infer_discrete` draws indices, no vectors: ``poutine.reparam(program, {"z": AsIndex()})`` is the same program with
    the site "z_index" in place of "z", which becomes a deterministic one.
    """

    def apply(self, msg: Any) -> Any:
        fn = msg["fn"]
        if msg["value"] is not None:
            sample(f"{msg['name']}_index", Categorical(logits=fn.logits), obs=msg["value"].argmax(-1))
            return {"fn": Delta(msg["value"], event_dim=1), "value": msg["value"], "is_observed": True}
        index = sample(f"{msg['name']}_index", Categorical(logits=fn.logits))
        value = torch.nn.functional.one_hot(index, fn.event_shape[-1]).to(fn.logits)
        value = value.expand(*torch.broadcast_shapes(index.shape, fn.batch_shape), -1)  # an enumerated one is narrow
        return {"fn": Delta(value, event_dim=1), "value": value, "is_observed": True}

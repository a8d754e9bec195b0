"""Golden runs: what models give on the default federation, as digests and numbers that a later version must repeat.

`python -m tests.helpers.golden` writes the runs of the models anew, which is right only where a result is meant to change.
The kept checkpoints, one run of the command among them, are of format 1: no later version writes such again.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import scipy
import sklearn
import torch
from torch import Tensor

from scool_ppl import EM, Clients, CooperationModel, Federation, Schedule, load_federation, load_model
from scool_ppl.data.specs import DEFAULT_FEDERATION

FOLDER = Path(__file__).parents[1] / "contracts" / "golden"
RUNS = FOLDER / "runs.json"
ROUNDS = 3
MODELS: dict[str, dict[str, Any]] = {
    "scool_sbm": {"executor": "stacked"},
    "scool_attention": {"executor": "stacked"},
    "federico": {"executor": "stacked"},
    "fedfomo": {"executor": "loop"},
    "cobo": {"executor": "stacked"},
    "l2c": {"executor": "stacked"},
    "ditto": {"executor": "stacked"},
    "dada": {"executor": "loop"},
}
"""The model -> how its clients are run."""

SMALL = "permuted:digits:clients=4,groups=2,train=20,test=20,order=listed"
"""The federation of the kept checkpoints, of two rounds each."""
KEPT = ("federico", "scool_sbm")


def driver(model: str, federation: Federation, **options: Any) -> EM:
    """A short schedule, momentum, so that there are buffers to keep."""
    clients = Clients(federation, optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.5), **options)
    return EM(built(model, federation), clients, Schedule(local_epochs=1, warmup_epochs=5), seed=3)


def built(model: str, federation: Federation) -> CooperationModel:
    return load_model(model, federation.num_clients, federation=federation)


def golden(model: str, **options: Any) -> dict[str, Any]:
    """Three rounds, the first client absent from the second: digests of all bits, and numbers for other machines."""
    em = driver(model, load_federation(f"{DEFAULT_FEDERATION},order=listed", seed=3), **MODELS[model], **options)
    state, rounds = em.init(), []
    for number in range(ROUNDS):
        state, info = em.step(state, absent=["client 0"] if number == 1 else [])
        graph = em.graph(state)
        rounds.append(
            {
                "elbo": info.elbo,
                "loss": info.loss,
                "accuracy": float(em.evaluate(state).score.mean()),
                "accuracy_trained": float(em.clients.evaluate(info.trained).score.mean()),
                "scores": [value for value in graph.score(em.clients.federation.truth) if value is not None],
                "received": float(info.bytes_received.sum()),
                "teachers": graph.dense().double().sum(1).tolist(),
            }
        )
    bits = {
        "networks": digest(state.params),
        "optimizer": digest(state.optimizer),
        "q": digest(state.q),
        "moments": digest(state.moments),
        "prior": digest(state.prior),
        "graph": digest({"graph": em.graph(state).dense()}),
        "history": hashlib.sha256(json.dumps(rounds).encode()).hexdigest()[:16],
    }
    return {"bits": bits, "rounds": rounds}


def history(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a history without their times."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def digest(tensors: dict[str, Tensor]) -> str:
    """Of names, shapes, dtypes and bits, in the order of the names."""
    found = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def machine() -> dict[str, str]:
    """On what the last bits depend: versions, and how this processor rounds."""
    random = torch.Generator().manual_seed(0)
    one, other = (torch.randn(65, 65, generator=random) for _ in range(2))
    wide = (one @ one.T).double()
    return {
        "torch": torch.__version__,
        "pyro": pyro.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "sklearn": sklearn.__version__,
        "arithmetic": digest(
            {
                "matrices": one @ other,
                "long": wide @ wide,
                "batches": torch.bmm(one.expand(3, 65, 65), other.expand(3, 65, 65)),
                "softmax": (one @ other).log_softmax(-1),
                "special": other.double().exp().digamma() + other.double().sigmoid(),
                "eigenvalues": torch.linalg.eigvalsh(wide),
            }
        ),
    }


def numbers(record: Any) -> list[float]:
    """All numbers of a record, in order."""
    if isinstance(record, dict):
        return [number for value in record.values() for number in numbers(value)]
    if isinstance(record, list):
        return [number for value in record for number in numbers(value)]
    return [float(record)] if isinstance(record, int | float) and math.isfinite(record) else []


def small_network() -> torch.nn.Module:
    return torch.nn.Linear(64, 10)


def write() -> None:
    """The models' runs, as the present code gives them; the kept checkpoints stay those of the version that wrote them."""
    torch.set_num_threads(1)
    known = json.loads(RUNS.read_text())
    known |= {"machine": machine(), "models": {model: golden(model) for model in MODELS}}
    RUNS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    write()

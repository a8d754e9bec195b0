"""What belongs to the user is as it was: after a fit, a resume, a plot; and memory does not grow with the rounds."""

from __future__ import annotations

import gc
import random
import resource
import signal
import tempfile
import threading
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot
import numpy as np
import pyro
import pytest
import sklearn.cluster  # noqa: F401  # imported late by the library, and sets warnings filters of its own
import torch

from scool_ppl import EM, CooperationModel, Federation, load_model
from scool_ppl.errors import RunError
from scool_ppl.workbench import sample_posterior
from tests.helpers.command import TINY, scool
from tests.helpers.faulty import Fault, FaultyClients
from tests.helpers.runs import driver
from tests.helpers.small import ONE_STEP, brief, clients, federation


def belongings() -> dict[str, Any]:
    """All that a library might touch behind the user's back."""
    return {
        "torch generator": torch.get_rng_state().tolist(),
        "numpy generator": np.random.get_state()[1].tolist(),  # type: ignore[index]  # noqa: NPY002
        "python generator": hash(random.getstate()),
        "param store": {name: value.tolist() for name, value in pyro.get_param_store().items()},
        "pyro settings": dict(pyro.settings.get()),
        "checks of distributions": torch.distributions.Distribution._validate_args,
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "running threads": {thread.name for thread in threading.enumerate()},
        "default dtype": torch.get_default_dtype(),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic),
        "benchmark": torch.backends.cudnn.benchmark,
        "matmul": torch.get_float32_matmul_precision(),
        "backend": matplotlib.get_backend(),
        "rcParams": dict(matplotlib.rcParams),
        "figures": matplotlib.pyplot.get_fignums(),
        "warnings": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }


def test_no_device_is_seeded_that_is_not_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.manual_seed seeds all of them, also those of which no state is kept."""
    monkeypatch.setattr(torch, "manual_seed", lambda *_: pytest.fail("torch.manual_seed"))
    em = driver("latent_space", num_clients=4)
    state = em.fit(1, progress=False).state
    assert em.intervals(state) is not None
    sample_posterior(em, state, 10)
    em.leave(state, ["client 0"], lambda federation: load_model("latent_space", federation.num_clients))


@pytest.fixture
def particular() -> Any:
    """A user with settings of their own, none of them the default."""
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # imports what torch imports late, which adds warnings filters of its own
    matplotlib.rcParams["lines.linewidth"] = 3.25
    torch.set_default_dtype(torch.float64)
    pyro.get_param_store().setdefault("mine", torch.tensor(1.0))
    pyro.get_param_store().setdefault("Y_logits", torch.tensor([1.0, 2.0]))  # a name that the guide has too
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(5)
        yield
    torch.set_num_threads(threads)
    signal.signal(signal.SIGTERM, before)
    pyro.get_param_store().clear()
    torch.set_default_dtype(torch.float32)
    matplotlib.rcParams["lines.linewidth"] = matplotlib.rcParamsDefault["lines.linewidth"]


def command(*arguments: object) -> None:
    answer = scool(*arguments)
    assert answer.code == 0, answer.err


def come_fail_and_go() -> None:
    def build(federation: Federation) -> CooperationModel:
        return brief(load_model("scool_sbm", federation.num_clients))

    whole = federation(5)
    whose = FaultyClients(clients(5).for_federation(whole.select(range(4))), Fault("vanish", 1, 0))
    em = EM(build(whose.federation), whose, ONE_STEP)
    state, info = em.step(em.init())
    assert info.quarantined
    more, state = em.join(state, whole.select([4]), build, "warm-up")
    fewer, state = more.leave(more.step(state)[0], [whole.names[0]], build)
    fewer.step(state)


def refused_fit() -> None:
    """All clients fail, in a run that listens for signals."""
    whose = FaultyClients(clients(), *[Fault("nan loss", client, 1) for client in range(4)])
    em = EM(load_model("ring", 4), whose, ONE_STEP)
    with tempfile.TemporaryDirectory() as folder, pytest.raises(RunError, match="all clients failed"):
        em.fit(2, run=f"{folder}/run", progress=False)


def test_nothing_of_the_users_is_touched(particular: None, tmp_path: Path) -> None:
    run = tmp_path / "run"
    deeds: dict[str, Callable[[], object]] = {
        "fit": lambda: driver().fit(2, progress=False),
        "fit with blocks": lambda: driver("scool_sbm").fit(2, progress=False),
        "fit into a folder": lambda: driver().fit(1, run=tmp_path / "folder", progress=False),
        "resume": lambda: driver().fit(2, run=tmp_path / "folder", resume=True, progress=False),
        "svi": lambda: driver("latent_space").fit(1, progress=False),
        "loop": lambda: driver(executor="loop").fit(1, progress=False),
        "clients come, fail and go": come_fail_and_go,
        "a fit that is refused": refused_fit,
        "scool fit": lambda: command("fit", "scool_sbm", "blocks=2", *TINY, "--warmup-epochs=1", "--out", run),
        "scool resume": lambda: command("resume", run, "--rounds=3", "--quiet"),
        "scool plot": lambda: command("plot", run, "--gexf"),
    }
    for name, deed in deeds.items():
        before = belongings()
        deed()
        after = belongings()
        assert {key for key in before if before[key] != after[key]} == set(), f"changed by {name}"


def test_what_is_watched_can_change() -> None:
    """Otherwise the test above could not fail."""
    with torch.random.fork_rng():
        before = belongings()
        torch.manual_seed(1234)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            after = belongings()
    assert {key for key in before if before[key] != after[key]} == {"torch generator", "warnings"}


@pytest.mark.slow
@pytest.mark.nightly
def test_memory_does_not_grow_with_the_rounds(tmp_path: Path) -> None:
    """Of 60 rounds with checkpoints the last 40 leave their rows of history, and little else, behind."""
    python: dict[int, int] = {}
    resident: dict[int, int] = {}
    objects: dict[int, int] = {}

    def measured(state: Any, info: Any, row: Any) -> None:
        if state.round in (20, 60):
            gc.collect()
            python[state.round] = tracemalloc.get_traced_memory()[0]
            resident[state.round] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            objects[state.round] = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    tracemalloc.start()
    try:
        driver("ring").fit(60, run=tmp_path / "run", checkpoint_every=10, progress=False, callbacks=[measured])
    finally:
        tracemalloc.stop()
    assert objects[60] <= objects[20] + 5  # a milestone graph or two
    assert python[60] - python[20] < 40 * 5_000, "a row of history is some 3 kB"
    assert resident[60] - resident[20] < 30_000, "kB; the copy of one state is far less than one"

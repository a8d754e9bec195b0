"""Every method runs on regression and on text, and a client alone is no error."""

from __future__ import annotations

import math

import pytest

from scool_ppl.data.federation import Federation
from scool_ppl.em.em import EM
from scool_ppl.em.model import Schedule
from scool_ppl.train.clients import Clients
from scool_ppl.zoo.load import load_model, model_names
from tests.helpers.small import brief
from tests.helpers.tasks import federation


@pytest.mark.parametrize("name", ["sine", "text"])
@pytest.mark.parametrize("model", model_names())
def test_every_method_runs_on_every_task(name: str, model: str) -> None:
    data = federation(name)
    if data.groups is None:
        data = Federation(**{**vars(data), "groups": (0, 0, 1, 1)})
    built = brief(load_model(model, 4, federation=data))
    em = EM(built, Clients(data, executor="stacked"), Schedule(local_steps=2))
    fit = em.fit(2, progress=False)
    assert fit.evaluation.loss.isfinite().all()
    assert all(value.isfinite().all() for value in fit.state.params.values())
    assert math.isfinite(fit.history[-1]["elbo"])


@pytest.mark.parametrize("name", ["sine", "text"])
@pytest.mark.parametrize("model", ["local", "scool_sbm", "federico"])
def test_one_client_alone(name: str, model: str) -> None:
    data = federation(name, clients=1, **({"groups": 1} if name == "text" else {}))
    fit = EM(load_model(model, 1), Clients(data), Schedule(local_epochs=1, warmup_epochs=2)).fit(2, progress=False)
    assert fit.evaluation.loss.shape == (1,)
    assert fit.evaluation.loss.isfinite().all()
    assert fit.graph.weights.shape[0] == 1

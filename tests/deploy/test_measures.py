"""Measures of what clients deploy: each client's own rows, by its own names of the classes."""

from __future__ import annotations

import pytest

from scool_ppl import Clients, load_federation
from scool_ppl.deploy.measures import measures


def test_each_client_is_measured_on_its_own_rows() -> None:
    federation = load_federation("permuted:digits:clients=4,groups=2,train=20,test=30,order=listed")
    clients = Clients(federation)
    params = clients.init(3)
    found = measures(clients, params)
    outputs, _ = clients.predict(params)
    for client in (0, 3):
        y = federation.labels(client, federation.test[client])
        own = outputs[client, : len(y)].softmax(-1)
        expected = federation.task.measures(own, y)
        assert {name: float(values[client]) for name, values in found.items()} == pytest.approx(expected, rel=1e-6)
    assert len(set(found["auc"].tolist())) > 1


def test_regression_has_measures_of_its_own() -> None:
    clients = Clients(load_federation("sine:clients=3,order=listed"))
    found = measures(clients, clients.init(0))
    assert set(found) == {"rmse", "mae"}
    assert bool((found["rmse"] >= found["mae"]).all())

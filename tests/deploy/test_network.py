"""A client's network knows how the user's inputs become its own, and what its outputs are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.data.own import Arrays, with_scaling
from scool_ppl.data.preparation import Category, Numeric, Preparation, Scaling, with_labels
from scool_ppl.tasks.regression import Regression
from scool_ppl.train.clients import Clients
from scool_ppl.train.networks import network_for
from tests.helpers.deployed import one
from tests.helpers.refusals import Case, refused, refuses
from tests.helpers.small import normal
from tests.helpers.tasks import clients as of_task
from tests.helpers.tasks import federation

OWN = Preparation(
    (Numeric("age", (50.0, 60.0), (10.0, 5.0)), Category("sex", ("f", "m")), Numeric("beds")),
    Numeric("days", (4.0, 6.0), (2.0, 1.0)),
    ("client 0", "client 1"),
)


def of_tables() -> Clients:
    """Two clients of a regression, each with its own scale."""
    data = Federation.from_arrays(
        normal(40, 4), normal(40), torch.arange(40) % 2, task=Regression(variance=1.0), preparation=OWN
    )
    return Clients(data, executor="stacked")


@pytest.mark.parametrize("place", [0, 1])
def test_a_table_is_prepared_and_means_are_in_its_unit(place: int, tmp_path: Path) -> None:
    network, _ = one(of_tables(), place)
    table = pd.DataFrame(
        {"sex": ["f", "m", "m"], "age": [40, 70, 65], "beds": [1.5, 2.0, 3.0], "other": ["a", "b", "c"]}
    )
    table.to_csv(tmp_path / "new.csv", index=False)
    mean, std = ((50, 10), (60, 5))[place]
    prepared = torch.tensor(
        [[(age - mean) / std, sex == "f", sex == "m", beds] for sex, age, beds, _ in table.to_numpy()]
    )
    inside = network.candidates[0](prepared)[:, 0]
    expected = inside * (2, 1)[place] + (4, 6)[place]
    raw = [[40, 1, 0, 1.5], [70, 0, 1, 2.0], [65, 0, 1, 3.0]]
    for given in (table, tmp_path / "new.csv", str(tmp_path / "new.csv"), raw, np.array(raw), torch.tensor(raw)):
        np.testing.assert_allclose(network.predict(given), expected.detach().numpy(), rtol=1e-5)
    assert network.feature_names == ("age", "sex=f", "sex=m", "beds")
    assert network.preparation == OWN.of(f"client {place}")


def test_no_client_ships_the_scale_of_another() -> None:
    network, _ = one(of_tables(), 0)
    assert network.preparation is not None
    assert "60.0" not in network.preparation.to_json()
    assert torch.equal(network.state_dict()["prepare.mean"], torch.tensor([50.0, 0.0, 0.0, 0.0]))


def of_images(labels: tuple[str, ...] = ()) -> tuple[Clients, Tensor]:
    """Clients of standardised images, and the same images as bytes."""
    raw = torch.randint(256, (24, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    scaling = Scaling((10.0, 100.0, 128.0), (20.0, 50.0, 30.0), of_bytes=True)
    shape = (1, 3, 1, 1)
    inputs = (raw.float() - torch.tensor(scaling.mean).view(shape)) / torch.tensor(scaling.std).view(shape)
    data = Federation.from_arrays(
        inputs,
        torch.arange(24) % 2,
        torch.arange(24) % 3,
        preparation=with_labels(labels, scaling=scaling),
    )
    return Clients(data, network_for((3, 8, 8), 2, "cnn", width=0.1), executor="stacked"), raw


def test_bytes_are_standardised_and_numbers_have_been() -> None:
    whose, raw = of_images(("cat", "dog"))
    network, _ = one(whose)
    expected = network.from_prepared(whose.federation.inputs)
    torch.testing.assert_close(network(raw), expected)
    torch.testing.assert_close(network(whose.federation.inputs), expected)
    last = raw.permute(0, 2, 3, 1).numpy()
    torch.testing.assert_close(network.predictive(last), expected.detach())
    assert network.predict(raw).tolist() == [("cat", "dog")[place] for place in expected.argmax(-1)]


def test_the_scaling_of_a_file_is_that_of_its_network() -> None:
    """From the reader of images to the module, against the reader's own arithmetic."""
    raw = torch.randint(256, (12, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    arrays = with_scaling(Arrays(raw, torch.arange(12) % 2, raw[:2], torch.tensor([0, 1]), 2))
    data = Federation.from_arrays(
        arrays.ready(arrays.inputs_train),
        arrays.targets_train,
        torch.zeros(12).long(),
        preparation=with_labels(scaling=arrays.scaling),
    )
    network, _ = one(Clients(data, executor="stacked"))
    torch.testing.assert_close(network.prepare(raw), arrays.ready(raw))


def _tables_of_arrays() -> object:
    return one(of_task(federation("classes")))[0].predict(pd.DataFrame({"a": [1]}))


REFUSED: list[Case] = [
    (lambda: one(of_task(federation("classes")))[0].predict(torch.zeros(2, 6)), "shape (2, 6), expected (N, 5)"),
    (lambda: one(of_task(federation("classes")))[0].predict(torch.zeros(0, 5)), "at least one row"),
    (
        lambda: one(of_task(federation("classes")))[0].predict([["a"]]),
        "the inputs of client 0 cannot be read as one array",
    ),
    (lambda: one(of_task(federation("classes")))[0].predict("new.csv"), "'new.csv' was given as a table, client 0 has"),
    (_tables_of_arrays, "a DataFrame was given as a table, client 0 has learned from arrays"),
    (lambda: one(of_tables())[0].predict({"age": [3], "sex": ["f"]}), "no column 'beds'"),
]


@refused(REFUSED)
def test_what_cannot_be_predicted_is_one_line(call: object, words: str) -> None:
    refuses(call, words)  # type: ignore[arg-type]

"""A client's network predicts what all clients' stacked networks do, and knows how the user's inputs become its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from scool_ppl.data.federation import Federation
from scool_ppl.data.own import Arrays, standardised
from scool_ppl.data.preparation import Category, Numeric, Preparation, Scaling, with_labels
from scool_ppl.deploy.network import NEGLIGIBLE, Blueprint, ClientNetwork, Mixed, client_network
from scool_ppl.em.state import Deployment
from scool_ppl.graph.candidates import Peers
from scool_ppl.tasks.categorical import Classification
from scool_ppl.tasks.regression import Regression
from scool_ppl.tasks.weighted import balanced
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Wrapper
from scool_ppl.train.networks import MLP, network_for
from scool_ppl.train.questions import Ensemble, Params, Predictor
from tests.helpers.refusals import Case, refused, refuses
from tests.helpers.small import CLASSES, FEATURES, clients, close, networks, normal
from tests.helpers.tasks import clients as of_task
from tests.helpers.tasks import federation, shifted

K = 4
TABLE = Peers(torch.ones(K, 2, dtype=torch.bool), torch.tensor([[1, 2], [0, 3], [3, 0], [2, 1]]))
OPEN = Peers(~torch.eye(K, dtype=torch.bool))
BUILT = partial(MLP, FEATURES, CLASSES, (3,))
WEIGHTS = torch.tensor([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.0, 0.4, 0.6], [0.0, 0.0, 1.0]], dtype=torch.float64)


def several(whose: Clients) -> Deployment:
    """Networks, mixtures over a table and over everybody, one client in each who mixes nobody, and offsets."""
    one, two = networks(whose), networks(whose, 5)
    nobody = normal(K, K).exp().index_fill(0, torch.tensor([2]), 0.0)
    predictors = (Predictor(one), Predictor(two, (normal(K, 2).softmax(1), TABLE)), Predictor(one, (nobody, OPEN)))
    return Deployment(("local", "mine", "a/b"), Ensemble(predictors, WEIGHTS, normal(K, CLASSES).clamp(max=0)))


def alone(params: Params) -> Deployment:
    """Each client its own network."""
    count = len(next(iter(params.values())))
    return Deployment(("mixed",), Ensemble((Predictor(params),), torch.ones(count, 1)))


def one(whose: Clients, place: int = 0, params: Params | None = None) -> tuple[ClientNetwork, Params]:
    """What a client deploys who deploys its network alone."""
    if params is None:
        start = whose.init(0)
        params = {name: value.to(start[name]) for name, value in shifted(start).items()}
    return client_network(alone(params), Blueprint.of(whose), whose.names[place]), params


def test_each_client_predicts_alone_as_all_do_together() -> None:
    whose = clients(K)
    deployment, blueprint = several(whose), Blueprint.of(whose)
    outputs, mask = whose.predict(deployment.ensemble)
    for place, name in enumerate(whose.names):
        network = client_network(deployment, blueprint, name, network=BUILT)
        assert not network.training
        x = whose.federation.inputs[whose.federation.test[place]]
        close(network(x), outputs[place][mask[place]].softmax(-1), 1e-12)
        assert network.relies_on == {
            candidate: weight
            for candidate, weight in zip(deployment.candidates, WEIGHTS[place].tolist(), strict=True)
            if weight
        }
        assert network.predict(x).tolist() == outputs[place][mask[place]].argmax(-1).tolist()


@pytest.mark.parametrize("name", ["vectors", "sine", "text"])
def test_other_tasks_predict_means_and_tokens(name: str) -> None:
    whose = of_task(federation(name))
    params = shifted(whose.init(0))
    x = whose.federation.inputs[whose.federation.test[1]]
    outputs, mask = whose.predict(params)
    network, _ = one(whose, 1, params)
    expected = whose.federation.task.predictive(outputs)[1][mask[1]]
    close(network(x), expected, 1e-6)  # the variance of targets does not matter here
    np.testing.assert_allclose(network.predict(x), expected.squeeze(-1) if name == "sine" else expected, atol=1e-6)


def test_a_state_dict_loads_into_another_clients_network() -> None:
    whose = clients(K)
    deployment, blueprint = several(whose), Blueprint.of(whose)._replace(network=network_for((FEATURES,), CLASSES))
    wide = of_task(federation("classes"))
    first, params = one(wide, 0)
    second, _ = one(wide, 1, params)
    x = wide.federation.inputs[:5]
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    refuses(
        lambda: client_network(deployment, blueprint, whose.names[0]), "the network has a parameter '1.bias' of shape"
    )


def test_what_is_negligible_is_not_shipped_and_a_user_may_train_on() -> None:
    whose = clients(K)
    shares = torch.tensor([0.4, 0.6, NEGLIGIBLE / 3, NEGLIGIBLE / 3], dtype=torch.float64).expand(K, K)
    everybody = Peers.everybody(K, includes_self=True)
    mixture = Deployment(("mixed",), Ensemble((Predictor(networks(whose), (shares, everybody)),), torch.ones(K, 1)))
    network = client_network(mixture, Blueprint.of(whose), whose.names[3], network=BUILT)
    (inside,) = network.candidates
    assert isinstance(inside, Mixed)
    assert len(inside.networks) == 2
    x = whose.federation.inputs[:3].double()
    network(x).log().sum().backward()
    assert all(leaf.grad is not None for leaf in network.parameters())


def test_the_users_random_numbers_are_left_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one(of_task(federation("classes")))
    assert torch.equal(torch.get_rng_state(), before)


def test_clients_inside_of_others_are_found() -> None:
    whose = of_task(federation("classes"))
    assert Blueprint.of(Wrapper(Wrapper(whose))) == Blueprint.of(whose)
    assert Blueprint.of(whose).network == network_for((5,), 3, "mlp")
    assert Blueprint.of(clients(K)).network is None


class Doubled(nn.Sequential):
    """A user's own."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


@dataclass(frozen=True)
class Sharper(Classification):
    """A user's own, which predicts otherwise."""

    name: ClassVar[str] = "sharper"

    def predictive(self, outputs: Tensor) -> Tensor:
        return (3 * outputs).softmax(-1)


def test_what_is_the_users_own_is_passed() -> None:
    data = replace(federation("classes"), task=Sharper(3))
    whose = Clients(data, Doubled, executor="stacked")
    params = whose.init(0)
    blueprint = Blueprint.of(whose)
    name, x = whose.names[0], data.inputs[:4]
    refuses(lambda: client_network(alone(params), blueprint, name), "built by a function of your own")
    refuses(lambda: client_network(alone(params), blueprint, name, network=Doubled), "a class of your own")
    network = client_network(alone(params), blueprint, name, network=Doubled, task=data.task)
    linear = x @ params["0.weight"][0].T + params["0.bias"][0]
    torch.testing.assert_close(network(x), (6 * linear).softmax(-1))


def test_a_task_that_changes_the_loss_only_predicts_as_the_one_it_changes() -> None:
    data = federation("classes")
    weighed = replace(data, task=balanced(data.task, data.label_counts().sum(0)))
    assert Blueprint.of(of_task(weighed)).task == Blueprint.of(of_task(data)).task == "classification:num_classes=3"


def test_a_file_of_the_users_own_is_imported_if_it_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\ndef build(shape, outputs):\n    return nn.Sequential(nn.Linear(shape[0], outputs))\n"
    )
    data = federation("classes")
    whose = Clients(data, network_for((5,), 3, str(path)), executor="stacked")
    network, params = one(whose)
    expected = (data.inputs @ params["0.weight"][0].T + params["0.bias"][0]).softmax(-1)
    torch.testing.assert_close(network(data.inputs), expected)
    path.write_text(path.read_text() + "# changed\n")
    refuses(lambda: one(whose, 0, params), "is not what it was when the run ended")


# Preparation.

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
    arrays = standardised(Arrays(raw, torch.arange(12) % 2, raw[:2], torch.tensor([0, 1]), 2))
    data = Federation.from_arrays(
        arrays.inputs_train,
        arrays.targets_train,
        torch.zeros(12).long(),
        preparation=with_labels(scaling=arrays.scaling),
    )
    network, _ = one(Clients(data, executor="stacked"))
    torch.testing.assert_close(network.prepare(raw), arrays.inputs_train)


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
    (lambda: client_network(several(clients(K)), Blueprint.of(clients(K)), "client 7"), "unknown client 'client 7'"),
]


@refused(REFUSED)
def test_what_cannot_be_predicted_is_one_line(call: object, words: str) -> None:
    refuses(call, words)  # type: ignore[arg-type]

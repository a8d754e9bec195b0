"""From a description and parameters, each client gets a network that predicts alone as all clients do together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scool_ppl.deploy.blueprint import UNSHIPPED, Blueprint, client_network
from scool_ppl.deploy.network import Mixed
from scool_ppl.em.state import Deployment
from scool_ppl.graph.candidates import Peers
from scool_ppl.tasks.categorical import Classification
from scool_ppl.tasks.weighted import balanced
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Wrapper
from scool_ppl.train.networks import MLP, network_for
from scool_ppl.train.questions import Ensemble, Predictor
from tests.helpers.deployed import alone, one
from tests.helpers.refusals import refuses
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
    shares = torch.tensor([0.4, 0.6, UNSHIPPED / 3, UNSHIPPED / 3], dtype=torch.float64).expand(K, K)
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

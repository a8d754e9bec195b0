"""FlowerFabric over a grid with Flower's own records: every model against one process; who fails; who does not fit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.em.em import EM
from scool_ppl.em.state import Fit
from scool_ppl.errors import InputError, RunError
from scool_ppl.far import Answers, Host, LocalFabric, RemoteClients
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import AnyClients
from scool_ppl.zoo.load import load_model, model_names
from tests.helpers.far import Faulty, hosts
from tests.helpers.flower import FIRST, FakeGrid, flower, flwr, grid_of
from tests.helpers.models import FEDERATION, SCHEDULE, K
from tests.helpers.refusals import refuses
from tests.helpers.small import brief
from tests.helpers.states import same_bits

records = pytest.importorskip("scool_ppl.far.flower.records")
OPTIONS: dict[str, Any] = {"executor": "loop"}
NAMES = FEDERATION.names


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for longer than it takes."""
    monkeypatch.setattr(flower, "POLL", 0.001)
    monkeypatch.setattr(flower, "AGAIN", 0.01)


class Near(flower.FlowerFabric):  # type: ignore[misc,name-defined]
    """As if messages were quick: models that take every step together do so."""

    near = True


def grid() -> FakeGrid:
    return grid_of(hosts(Clients(FEDERATION, **OPTIONS)))


def fabric(where: FakeGrid, timeout: float = 60.0) -> Any:
    return flower.FlowerFabric(where, K, timeout, 5.0)


def driver(clients: AnyClients, model: str = "scool_sbm") -> EM:
    whose = FEDERATION if isinstance(clients, Clients) else None
    facts = {"truth": FEDERATION.truth} if model == "oracle" and whose is None else {}
    return EM(brief(load_model(model, K, federation=whose or clients.roster, **facts)), clients, SCHEDULE, seed=1)


def fitted(clients: AnyClients, model: str) -> Fit:
    return driver(clients, model).fit(2, progress=False)


@pytest.mark.parametrize("model", model_names())
def test_every_model_comes_to_what_one_process_comes_to(model: str) -> None:
    """float32, one client after another; a rounding apart where sums are made in another order."""
    there, here = fitted(RemoteClients(Near(grid(), K)), model), fitted(Clients(FEDERATION, **OPTIONS), model)
    for name, value in here.state.params.items():
        torch.testing.assert_close(there.state.params[name], value, rtol=0, atol=1e-6)
    torch.testing.assert_close(there.graph.weights, here.graph.weights, rtol=0, atol=1e-5)
    torch.testing.assert_close(there.deployed.loss, here.deployed.loss, rtol=0, atol=1e-5)


def test_records_change_no_bit() -> None:
    """Whatever carries requests, the numbers are the same."""
    for model, parts in (("scool_sbm", None), ("hedge", None), ("cobo", None), ("scool_sbm", [[0, 2], [1, 3]])):
        direct = RemoteClients(Faulty(LocalFabric(*hosts(Clients(FEDERATION, **OPTIONS))), near=False))
        nodes = grid_of(hosts(Clients(FEDERATION, **OPTIONS), parts))
        there, here = fitted(RemoteClients(fabric(nodes)), model), fitted(direct, model)
        same_bits(there.state, here.state)
        assert torch.equal(there.deployed.loss, here.deployed.loss)


def test_steps_that_all_take_together_are_refused_in_one_line() -> None:
    refuses(lambda: fitted(RemoteClients(fabric(grid())), "federico"), "takes two messages a step")


def of(verb: str, node: int, message: Any) -> bool:
    """Is this a message to that node in which this is asked?"""
    if message.metadata.message_type != flower.ANSWER or message.metadata.dst_node_id != node:
        return False
    return any(job.verb == verb for request in records.requests_in(message.content).values() for job in request)


def raised(asked: Any, reply: Any) -> Any:
    return flwr.Message(flwr.Error(code=2, reason="<class 'OSError'>:<'the scanner\nis on fire'>"), reply_to=asked)


def shifted(asked: Any, reply: Any) -> Any:
    """Tensors of another shape."""
    answers = records.answers_in(reply.content)
    replies = {
        name: tuple({key: value[None] for key, value in told.items()} for told in each)
        for name, each in answers.replies.items()
    }
    return flwr.Message(records.answered(Answers(replies, {})), reply_to=asked)


def renamed(asked: Any, reply: Any) -> Any:
    """An answer for another client."""
    (told,) = records.answers_in(reply.content).replies.values()
    return flwr.Message(records.answered(Answers({NAMES[0]: told}, {})), reply_to=asked)


def garbled(asked: Any, reply: Any) -> Any:
    return flwr.Message(flwr.RecordDict(), reply_to=asked)


FAULTS = {
    "raises": (raised, "the scanner is on fire"),
    "is silent": (lambda asked, reply: None, "no answer within 0.05 seconds"),
    "sends another shape": (shifted, "of shape (1, "),
    "answers for another": (renamed, f"its node answered for '{NAMES[0]}', who is not there"),
    "sends what is no answer": (garbled, "it sent what cannot be read"),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("verb", ["train", "losses"])
def test_a_silo_that_fails_is_left_out_of_the_round(verb: str, kind: str) -> None:
    """The others end with the bits of a round in which it was absent, and train once."""
    where, (spoil, words) = grid(), FAULTS[kind]
    em = driver(RemoteClients(fabric(where, 0.05 if kind == "is silent" else 5.0)))
    state = em.init()
    where.spoil = lambda node, asked, reply: spoil(asked, reply) if of(verb, FIRST + 1, asked) else reply
    after, info = em.step(state)
    assert set(info.quarantined) == {NAMES[1]}
    assert words in info.quarantined[NAMES[1]]
    expected = driver(RemoteClients(fabric(grid())))
    same_bits(after, expected.step(expected.init(), [NAMES[1]])[0])
    assert sum(of("train", node, message) for message in where.sent for node in where.contexts) == K


def test_a_silo_whose_work_fails_says_why() -> None:
    each = hosts(Clients(FEDERATION, **OPTIONS))
    em = driver(RemoteClients(fabric(grid_of(each))))
    state = em.init()
    del each[2].verbs["train"]
    info = em.step(state)[1]
    assert info.quarantined == {NAMES[2]: info.quarantined[NAMES[2]]}
    assert "InputError: unknown verb 'train'" in info.quarantined[NAMES[2]]


def test_a_silo_that_is_gone_sits_rounds_out_and_comes_back() -> None:
    where, seen = grid(), list[Any]()
    clients = RemoteClients(fabric(where))

    def after(state: Any, info: Any, row: Any) -> None:
        seen.append((row["quarantined"], set(clients.silent)))
        where.gone = {FIRST + 3} if state.round == 1 else set()

    fit = driver(clients).fit(3, progress=False, callbacks=[after])
    gone = ({NAMES[3]: "its node is not connected"}, {NAMES[3]})
    assert seen == [({}, set()), gone, ({}, set())]
    em = driver(RemoteClients(fabric(grid())))
    state = em.step(em.step(em.init())[0], [NAMES[3]])[0]
    same_bits(fit.state, em.step(state)[0])


def test_all_are_gone_is_a_line_and_the_run_goes_on(tmp_path: Path) -> None:
    """The driver ends, and another goes on from its folder, bit for bit."""
    whole = fitted(RemoteClients(fabric(grid())), "scool_sbm")
    where = grid()

    def after(state: Any, info: Any, row: Any) -> None:
        where.gone = set(where.contexts)

    with pytest.raises(RunError, match="its node is not connected"):
        driver(RemoteClients(fabric(where))).fit(2, run=tmp_path / "run", progress=False, callbacks=[after])
    rest = driver(RemoteClients(fabric(grid()))).fit(2, run=tmp_path / "run", resume=True, progress=False)
    same_bits(rest.state, whole.state)


def silos(names: tuple[str, ...] = (), said: tuple[str, ...] = NAMES, federation: Federation = FEDERATION) -> FakeGrid:
    """Nodes that say they are these, registered as those."""
    each = [Host(Clients(federation.select([i]), **OPTIONS)) for i in range(len(said))]
    for host, name in zip(each, said, strict=True):
        told = host.describe()
        host.describe = lambda told=told, name=name: {name: next(iter(told.values()))}  # type: ignore[method-assign]
    return grid_of(each, names)


UNTIL_TIME_IS_UP = pytest.mark.filterwarnings("ignore:a node cannot take part yet")


@UNTIL_TIME_IS_UP
def test_a_silo_is_called_what_its_key_is_registered_as() -> None:
    assert list(fabric(silos(NAMES)).describe()) == list(NAMES)
    told = refused(flower.FlowerFabric(silos(NAMES, (*NAMES[:3], "somebody")), K, 60.0, 0.05))
    assert f"the node registered as '{NAMES[3]}' says that it is somebody" in told
    told = refused(flower.FlowerFabric(silos((), (*NAMES[:3], NAMES[0])), K, 60.0, 0.05))
    assert f"two nodes say that they are '{NAMES[0]}'" in told


def test_clients_are_waited_for_in_their_natural_order() -> None:
    said = ("hospital 10", "hospital 9", "hospital 1", "hospital 2")
    assert list(fabric(silos((), said)).describe()) == ["hospital 1", "hospital 2", "hospital 9", "hospital 10"]
    begin = time.monotonic()
    told = refused(flower.FlowerFabric(silos((), said), 5, 60.0, 0.05))
    assert "4 clients have come" in told
    assert "within 0.05 s, expected 5; start the others' nodes" in told
    assert time.monotonic() - begin < 5
    assert "4 clients have come" in refused(flower.FlowerFabric(silos((), said), 3, 60.0, 0.05))
    assert "no client has come" in refused(flower.FlowerFabric(grid_of([]), 3, 60.0, 0.05))


def refused(fabric: Any) -> str:
    with pytest.raises(InputError) as caught:
        fabric.describe()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_silo_that_cannot_describe_itself_is_asked_again() -> None:
    where, broken = grid(), [1]

    def spoil(node: int, message: Any, reply: Any) -> Any:
        if node == FIRST + 1 and broken:
            broken.pop()
            return flwr.Message(records.words(fault="InputError: no file at 'mine.npz'"), reply_to=message)
        return reply

    where.spoil = spoil
    with pytest.warns(UserWarning, match="a node cannot take part yet, .* InputError: no file at 'mine.npz'") as caught:
        assert len(fabric(where).describe()) == K
    assert len(caught) == 1


@UNTIL_TIME_IS_UP
def test_who_never_describes_itself_is_told_in_the_end() -> None:
    """By what the node has said, though it is silent since."""
    where, said = grid(), list[Any]()

    def spoil(node: int, message: Any, reply: Any) -> Any:
        if node != FIRST + 1:
            return reply
        said.append(records.words(fault="InputError: no file at 'mine.npz'"))
        return flwr.Message(said[0], reply_to=message) if len(said) == 1 else None

    where.spoil = spoil
    assert "one of the nodes says: InputError: no file at 'mine.npz'" in refused(
        flower.FlowerFabric(where, K, 60.0, 0.05)
    )


def test_silos_with_another_network_are_refused() -> None:
    other = Clients(FEDERATION, dtype=torch.float64, **OPTIONS)
    each = [*hosts(Clients(FEDERATION, **OPTIONS))[:3], hosts(other)[3]]
    refuses(lambda: RemoteClients(fabric(grid_of(each))), "expected the same; give all of them the same dtype")

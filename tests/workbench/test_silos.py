"""Silos: what a run config says; a silo's file; a run over Flower's records, what it leaves where, and how it goes on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.far import Job, LocalFabric
from scool_ppl.runs.folder import Run
from scool_ppl.workbench import Settings, Workbench
from scool_ppl.workbench.silos import LEARNS_FROM, Order, check_silo, drive, run_config, silo
from tests.helpers.command import bits
from tests.helpers.models import FEDERATION, K
from tests.helpers.refusals import refuses

QUICK = {"rounds": 2, "warmup-epochs": 3, "local-epochs": 1, "network": "linear"}
LETTERS = "abcd"


@pytest.fixture
def nodes(tmp_path: Path) -> list[dict[str, Any]]:
    """What four silos were told, with a file each."""
    found = list[dict[str, Any]]()
    for place, letter in enumerate(LETTERS):
        FEDERATION.select([place]).save_npz(tmp_path / f"{letter}.npz")
        found.append({"data": str(tmp_path / f"{letter}.npz"), "keep": str(tmp_path / f"kept-{letter}")})
    return found


def config(folder: Path, **also: Any) -> dict[str, Any]:
    return {"model": "scool_sbm blocks=2", "clients": K, "out": str(folder), **QUICK, **also}


class Connected(LocalFabric):
    """Silos in this process, as they are called; they are never near."""

    near = False


def local(nodes: list[dict[str, Any]], run: dict[str, Any]) -> Any:
    hosts = [silo(node, run, f"hospital {letter}") for node, letter in zip(nodes, LETTERS, strict=False)]
    return lambda *_: Connected(*hosts)


def test_a_run_config_is_the_settings_and_what_a_run_over_silos_needs() -> None:
    order = Order.read(run_config())
    assert asdict(order.settings) == asdict(Settings())
    assert (order.model, order.choices, order.task, order.federation) == ("hedge", {}, None, None)
    told = {"model": "scool_sbm blocks=3", "learning-rate": 1, "local-steps": 4, "task": "regression", "clients": 3}
    order = Order.read({**run_config(), **told})
    assert (order.model, order.choices, order.task) == ("scool_sbm", {"blocks": 3}, "regression")
    assert (order.settings.learning_rate, order.settings.local_steps) == (1, 4)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"round": 3}, "unknown key of the run config 'round'"),
        ({"rounds": "three"}, "rounds of the run config is 'three', expected a whole number"),
        ({"executor": "fast"}, "unknown executor of the run config value 'fast'"),
        ({"clients": "all"}, "clients of the run config is 'all'"),
        ({"model": "scool_sbm block=2"}, "did you mean 'blocks'?"),
        ({"model": "scool_sbm 'blocks"}, "No closing quotation"),
        ({"timeout": -1.0}, "expected positive numbers of seconds"),
        ({"clients": 0, "out": "/tmp/run"}, "add clients=4 to the run config"),
        ({"clients": 3, "out": "run"}, "expected the run's folder as an absolute path"),
    ],
)
def test_what_a_run_config_cannot_say_is_one_line(told: dict[str, Any], words: str) -> None:
    refuses(lambda: Order.read(told).check(), words)


def test_a_run_over_silos_comes_to_what_one_process_does(nodes: list[dict[str, Any]], tmp_path: Path) -> None:
    told = config(tmp_path / "run", executor="stacked")
    found = drive(local(nodes, told), told)
    settings = Settings(rounds=2, warmup_epochs=3, local_epochs=1, network="linear", executor="stacked")
    names = tuple(f"hospital {letter}" for letter in LETTERS)
    here = Federation(**{**vars_of(FEDERATION), "names": names})
    expected = Workbench(here, settings, progress=False).fit("scool_sbm", {"blocks": 2})
    for name, value in expected.fit.state.params.items():
        torch.testing.assert_close(found.fit.state.params[name], value, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.fit.graph.weights, expected.fit.graph.weights, rtol=0, atol=1e-4)
    assert found.summary["accuracy"]["mean"] == pytest.approx(expected.summary["accuracy"]["mean"], abs=1e-6)
    assert [row["client"] for row in found.clients] == list(names)


def vars_of(federation: Federation) -> dict[str, Any]:
    known = ("inputs", "targets", "train", "validation", "test", "names", "task", "relabel")
    return {name: getattr(federation, name) for name in known}


def test_every_silo_keeps_what_it_deploys(nodes: list[dict[str, Any]], tmp_path: Path) -> None:
    """A mixture of its own and others' networks, which predicts there what it predicts in the run's folder."""
    told = config(tmp_path / "run", model="hedge")
    del nodes[3]["keep"]
    drive(local(nodes, told), told)
    run = Run.open(tmp_path / "run")
    run.check_finished()
    assert (tmp_path / "run" / "graph.png").is_file()
    graph = run.graph.dense()
    for place, letter in enumerate("abc"):
        name, kept = f"hospital {letter}", Run.open(tmp_path / f"kept-{letter}")
        assert kept.clients() == (name,)
        inputs = FEDERATION.inputs[FEDERATION.test[place]]
        mine, theirs = kept.network(name).predictive(inputs), run.network(name).predictive(inputs)
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
        row = json.loads((kept.path / LEARNS_FROM).read_text())
        known = {other: float(graph[place, j]) for j, other in enumerate(run.graph.names) if graph[place, j] > 0}
        assert row == pytest.approx(known, abs=1e-6)
    assert not (tmp_path / "kept-d").exists()


def test_a_run_that_is_begun_again_goes_on_bit_for_bit(
    nodes: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parts = config(tmp_path / "whole", rounds=3), config(tmp_path / "parts", rounds=3)
    drive(local(nodes, whole), whole)
    first = {**parts, "rounds": 1}
    drive(local(nodes, first), first)
    drive(local(nodes, parts), parts)
    assert bits(tmp_path / "parts") == bits(tmp_path / "whole")
    capsys.readouterr()
    drive(local(nodes, parts), parts)
    assert "round" not in capsys.readouterr().out.replace("graph, history", "").split("\n")[1][:12], "nothing was left"
    assert bits(tmp_path / "parts") == bits(tmp_path / "whole")
    other = {**parts, "rounds": 4, "momentum": 0.9}
    refuses(lambda: drive(local(nodes, other), other), "resume with what the run began with")


def test_a_silo_that_cannot_keep_its_network_is_told_of(
    nodes: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("mine")
    told = config(tmp_path / "run", rounds=1)
    refuses(lambda: silo({**nodes[1], "keep": str(tmp_path / "letters")}, told, ""), "exists and is not empty")
    connect = local(nodes, told)
    (tmp_path / "kept-b" / "deployed").write_text("in the way")
    drive(connect, told)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "has not got its network" in line]
    assert "hospital b" in line


def test_private_parts_stay_in_a_silos_folder(nodes: list[dict[str, Any]], tmp_path: Path) -> None:
    """Every message may be answered by another process; what each deploys is whole at the silo, and nowhere else."""
    told = config(tmp_path / "run", network="mlp", private="3.*", model="ring")
    connected = local(nodes, told)

    def another(*arguments: Any) -> Any:
        fabric = connected(*arguments)
        ask = fabric.ask

        def fresh(*asked: Any) -> Any:
            again = local(nodes, {**told, "timeout": 600.0 + fabric.trips})()  # another config, another host
            fabric.hosts, fabric.where = again.hosts, again.where
            return ask(*asked)

        fabric.ask = fresh
        return fabric

    drive(another, told)
    kept = Run.open(tmp_path / "kept-a").network("hospital a")
    assert kept.predictive(FEDERATION.inputs[:3]).shape == (3, 10)
    refuses(lambda: Run.open(tmp_path / "run").network("hospital a"), "stayed at the clients' hosts")
    refuses(lambda: silo({"data": nodes[0]["data"]}, told, "a"), "which stay at a silo, expected a folder for them")


def test_what_a_silo_cannot_do_is_one_line(nodes: list[dict[str, Any]], tmp_path: Path) -> None:
    told = config(tmp_path / "run")
    refuses(lambda: silo({**nodes[0], "name": "clinic"}, told, "hospital a"), "this silo 'hospital a', it calls itself")
    assert silo({**nodes[0], "name": "clinic"}, told, "").clients.names == ("clinic",)
    assert silo(nodes[0], told, "").clients.names == ("a",)
    refuses(lambda: silo(nodes[0], {**told, "federation": "iid:digits"}, ""), "leave federation out")
    refuses(lambda: silo({}, told, ""), "the node's config names no file")
    refuses(lambda: silo({**nodes[0], "kept": "/out"}, told, ""), "unknown key of the node's config 'kept'")
    refuses(lambda: silo({"data": str(tmp_path / "no.npz")}, told, ""), "no file")
    simulated = {**told, "federation": "iid:digits:clients=3,train=20,order=listed"}
    part = silo({"partition-id": 1, "num-partitions": 2}, simulated, "")
    assert part.clients.names == ("client 1", "client 2")
    refuses(lambda: silo({"partition-id": 0, "num-partitions": 9}, simulated, ""), "a client at least for each")
    reply = part.handle({name: (Job("deliver", {}, {}),) for name in part.place})
    assert set(reply.replies) == set(part.place), "a simulation keeps nothing, and nobody fails"


def test_a_simulation_knows_the_truth(tmp_path: Path) -> None:
    told = config(tmp_path / "run", federation="permuted:digits:clients=4,groups=2,train=20", rounds=1)
    hosts = [silo({"partition-id": part, "num-partitions": 2}, told, "") for part in range(2)]
    found = drive(lambda clients, timeout, wait: Connected(*hosts), told)
    assert found.summary["graph"]["l1"] is not None
    assert found.summary["measures"]


def test_a_silos_file_is_checked_where_it_is(nodes: list[dict[str, Any]], tmp_path: Path) -> None:
    found = check_silo(nodes[0]["data"], Settings(network="mlp"), "classification:num_classes=12")
    assert "of 12 classes" in found["task"]
    assert found["data"].startswith(f"{int(FEDERATION.sizes()[0])} train")
    refuses(lambda: check_silo(nodes[0]["data"], Settings(network="cnn")), "use network 'mlp'")
    huge = Federation(**{**vars_of(FEDERATION.select([0])), "inputs": FEDERATION.select([0]).inputs * 1e38})
    huge.save_npz(tmp_path / "huge.npz")
    with pytest.warns(UserWarning, match="scale them"), pytest.raises(InputError, match="scale its inputs"):
        check_silo(tmp_path / "huge.npz", Settings(network="mlp"))

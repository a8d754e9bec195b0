"""A run's folder: what is kept of each round, that it is read back as written, and that nothing else is touched."""

from __future__ import annotations

import itertools
import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from scool_ppl import EM, Clients, Schedule, load_model
from scool_ppl.deploy.network import ClientNetwork
from scool_ppl.errors import InputError, RunError
from scool_ppl.runs.folder import Run, free_name
from scool_ppl.train.networks import MLP
from tests.helpers.refusals import refuses
from tests.helpers.runs import driver, finished, graph, row
from tests.helpers.small import federation


def test_a_table_of_clients_that_cannot_be_written_ends_a_run_that_can_go_on(tmp_path: Path) -> None:
    (tmp_path / "run" / "clients.csv").mkdir(parents=True)
    run = Run(tmp_path / "run")
    run.record(row(1), graph(1))
    with pytest.raises(RunError, match=r"clients\.csv.*resume the run"):
        run.finish(row(1), clients="client")


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    truth = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    finished(tmp_path / "run", 3, truth=truth)
    run = Run.open(tmp_path / "run")
    assert run.settings == {"model": "mine"}
    assert run.history == [row(1), row(2), row(3)]
    assert run.read_json("summary.json")["gain_over_local"] == 0.2
    assert torch.equal(run.graph.dense(), graph(3).weights)
    assert list(run.graph.to_networkx(0).edges(data="weight")) == [("b", "a", 0.03)]  # a learns from b
    with np.load(run.path / "weights.npz") as arrays:
        assert np.array_equal(arrays["truth"], truth.numpy())


def test_history_grows_round_by_round(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    for round in (1, 2):
        run.record(row(round), graph(round))
        lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
        assert [json.loads(line)["round"] for line in lines] == list(range(1, round + 1))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    run.write_json("summary.json", {"old": True})
    with pytest.raises(TypeError, match="serializable"):
        run.write_json("summary.json", {"new": 1, "bad": object()})
    assert run.read_json("summary.json") == {"old": True}
    assert sorted(path.name for path in run.path.iterdir()) == ["run.json", "summary.json"]


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert Run.create(tmp_path / "empty").path.name == "empty"
    assert Run.vacant(tmp_path / "new" / "deep").is_dir()
    with pytest.raises(InputError, match=r"not empty.*--overwrite"):
        Run.create(tmp_path / "empty")
    with pytest.raises(InputError, match=r"not empty.*--overwrite"):
        Run.vacant(tmp_path / "empty")
    (tmp_path / "file").write_text("in the way")
    for folder in ("file", "file/below"):
        with pytest.raises(InputError, match="choose another --out"):
            Run.create(tmp_path / folder, overwrite=True)
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("there", ["before", "not before"])
@pytest.mark.parametrize("written", ["something", "nothing"])
def test_a_folder_is_reserved_for_what_comes_of_long_work(there: str, written: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if there == "before":
        out.mkdir()

    def failing() -> None:
        with Run.reserved(out) as folder:
            if written == "something":
                (folder / "half").touch()
            raise InputError("it failed")

    refuses(failing, "it failed")
    assert out.exists() == (there == "before" or written == "something")
    with Run.reserved(tmp_path / "other") as folder:
        assert folder.is_dir()
    assert folder.is_dir()


def test_overwriting_leaves_nothing_of_the_old_run(tmp_path: Path) -> None:
    finished(tmp_path / "run", 3)
    run = Run.create(tmp_path / "run", {"model": "other"}, overwrite=True)
    assert [path.name for path in run.path.iterdir()] == ["run.json"]
    assert run.settings == {"model": "other"}


def test_a_run_replaces_no_comparison_and_a_comparison_no_run(tmp_path: Path) -> None:
    kinds = [{"model": "ring"}, {"comparison": ["ring", "local"]}, {"choice": ["ring"]}]
    for there, new in itertools.permutations(kinds, 2):
        kept = Run.create(tmp_path / "out", there)
        with pytest.raises(InputError, match="not empty, expected a new folder"):
            Run.create(tmp_path / "out", new, overwrite=True)
        assert kept.settings == there
        assert Run.create(tmp_path / "out", there, overwrite=True).settings == there
        shutil.rmtree(tmp_path / "out")
    (Run.create(tmp_path / "out", kinds[1]).path / "run.json").write_text("{")
    assert Run.create(tmp_path / "out", kinds[0], overwrite=True).settings == kinds[0]


def test_a_run_without_rounds_cannot_finish(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    with pytest.raises(InputError, match="no round to finish with"):
        run.finish({})
    with pytest.raises(InputError, match=r"history\.jsonl"):
        _ = run.history
    with pytest.raises(InputError, match=r"summary\.json: its run has not ended.*round 0.*EM\.fit"):
        Run.open(run.path).draw()
    scool = Run.create(tmp_path / "scool", {"model": "local"})
    with pytest.raises(InputError, match=r"summary\.json.*`scool resume .*scool`"):
        scool.draw()


@pytest.mark.parametrize("several", ["comparison", "choice"])
def test_the_folder_of_several_fits_is_none_of_a_run(several: str, tmp_path: Path) -> None:
    folder = Run.create(tmp_path / several, {several: ["local"]})
    for use in (folder.draw, folder.networks):
        with pytest.raises(InputError, match=f"folder of a {several}, expected that of a fit"):
            use()
    with pytest.raises(InputError, match=r"choose another --out$"):
        Run.vacant(folder.path)


def test_free_names_count_up(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        names.append(free_name(tmp_path, "fit"))
        names[-1].mkdir()
    assert [path.name for path in names] == ["fit", "fit-2", "fit-3"]


def test_a_run_of_em_fit_has_its_clients_networks(tmp_path: Path) -> None:
    """As modules, and as predictions; those of a function of the user's own where that is passed."""
    whose = Clients(federation(4), executor="stacked")
    fit = EM(load_model("local", 4), whose, Schedule(local_steps=2)).fit(1, run=tmp_path / "run", progress=False)
    run = Run.open(tmp_path / "run")
    assert run.clients() == whose.names
    x = whose.federation.inputs[whose.federation.test[2]]
    outputs, mask = whose.predict(fit.deployment.ensemble)
    network = run.network("client 2")
    assert (type(network), network.client, network.training) == (ClientNetwork, "client 2", False)
    torch.testing.assert_close(network(x), outputs[2][mask[2]].softmax(-1))
    assert run.predict("client 2", x).tolist() == outputs[2][mask[2]].argmax(-1).tolist()
    assert [each.client for each in run.networks()] == list(whose.names)
    assert [each.client for each in run.networks(["client 3", "client 0"])] == ["client 3", "client 0"]
    refuses(lambda: run.network("client 4"), "unknown client 'client 4'")
    refuses(lambda: run.networks("client 3"), "expected a list of names")


def test_what_no_folder_holds_is_passed(tmp_path: Path) -> None:
    driver("local", num_clients=4).fit(1, run=tmp_path / "run", progress=False)
    run = Run.open(tmp_path / "run")
    refuses(lambda: run.network("client 0"), "built by a function of your own")
    assert run.network("client 0", network=partial(MLP, 4, 3, (3,))).dtype == torch.float64
    refuses(lambda: run.network("client 0", network=partial(MLP, 4, 3, (5,))), "has a parameter '1.bias' of shape (5,)")


def test_a_run_that_has_not_ended_deploys_nothing(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"model": "mine"})
    for ask in (run.clients, lambda: run.network("a"), lambda: run.predict("a", [[1.0]])):
        refuses(ask, f"by `scool resume {tmp_path / 'run'}`")

"""The command line: what it writes, what it says, and that bad input is one line, exit code 2 and nothing changed."""

from __future__ import annotations

import inspect
import json
import math
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import networkx as nx
import numpy as np
import pytest
from typer.models import ArgumentInfo, Context

from scool_ppl.cli.federations import federations
from scool_ppl.cli.main import COMMANDS
from scool_ppl.errors import RunError
from scool_ppl.runs.folder import Run
from scool_ppl.zoo import load as zoo
from tests.helpers.command import FILES, TINY, bits, contents, fit, refused, rows, scool

ENTRIES = {*FILES, "checkpoints", "deployed"}

# The prior of this model is one constant graph, so that what reached `build` can be read off the run's weights.
CONSTANT = """
import torch
from scool_ppl import CooperationModel, likelihoods, mixing, priors

def build(num_clients: int, weight: float = 0.5, flag: bool = False) -> CooperationModel:
    graph = torch.full((num_clients, num_clients), weight / 2 if flag else weight).fill_diagonal_(0)
    return CooperationModel(priors.Dirac(graph), likelihoods.Ignored(), mixing.MixUpdates())
"""


def function_of(command: str) -> Any:
    return federations if command == "federations" else getattr(sys.modules["scool_ppl.cli.commands"], command)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are not drawn, which takes longer than a tiny fit."""
    monkeypatch.setattr("scool_ppl.runs.folder.Run.draw", lambda run: [])


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of scool_sbm against local-only training, and what the command printed."""
    folder = tmp_path_factory.mktemp("learned") / "deep" / "run"
    return folder, fit(folder, "scool_sbm", "blocks=3", "--baseline").out


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of local-only training on the same clients."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    fit(folder, "local")
    return folder


def test_fit_writes_exactly_the_runs_files(learned: tuple[Path, str]) -> None:
    folder, printed = learned
    assert {path.name for path in folder.iterdir()} == ENTRIES
    for name in FILES:
        content = (folder / name).read_bytes()
        assert content.startswith(b"\x89PNG") if name.endswith(".png") else content
    assert {path.name for path in (folder / "deployed").iterdir()} == {"networks.safetensors", "deployment.json"}
    assert "accuracy" in printed
    assert "gain over local" in printed
    assert printed.endswith(f"graph, history and pictures in {folder}\n")


def test_a_row_of_the_history_has_the_promised_keys(learned: tuple[Path, str]) -> None:
    history = rows(learned[0])
    assert [row["round"] for row in history] == [1, 2]
    spread = ["mean", "std", "worst10"]
    for row in history:
        nested = {key: list(value) for key, value in row.items() if isinstance(value, dict)}
        assert list(row) == ["round", "elbo", "loss", "score", *nested]
        assert row["score"] == "accuracy"
        assert nested == {
            "accuracy": spread,
            "accuracy_trained": spread,
            "task_accuracy": spread,
            "graph": ["l1", "auc", "ari"],
            "bytes": ["received", "sent"],
            "seconds": ["train", "look", "infer", "mix"],
            "quarantined": [],
        }
        numbers = [row["elbo"], row["loss"], *(number for key in nested for number in row[key].values())]
        assert all(math.isfinite(number) for number in numbers)


def test_the_summary_is_the_last_row_and_what_was_run(learned: tuple[Path, str], alone: Path) -> None:
    summary, last = json.loads((learned[0] / "summary.json").read_text()), rows(learned[0])[-1]
    last.pop("round")
    assert {key: summary[key] for key in last} == last
    about = {"model", "hyperparameters", "federation", "seed", "rounds", "measures", "versions", "total_seconds"}
    assert set(summary) == {*last, *about, "gain_over_local", "below_local", "harmed"}
    assert (summary["model"], summary["seed"], summary["rounds"]) == ("scool_sbm", 0, 2)
    assert summary["federation"] == "permuted:digits:clients=4,groups=2,train=20,test=20"
    assert {"scool_ppl", "torch", "pyro", "torchvision"} <= set(summary["versions"])
    assert summary["total_seconds"]["train"] == pytest.approx(sum(row["seconds"]["train"] for row in rows(learned[0])))
    assert set(json.loads((alone / "summary.json").read_text())) == {*last, *about}


def test_gain_and_harm_are_against_the_same_clients_alone(learned: tuple[Path, str], alone: Path) -> None:
    graphs = [nx.read_graphml(run / "graph.graphml") for run in (learned[0], alone)]
    mixed, local = (np.array([data["accuracy"] for _, data in graph.nodes(data=True)]) for graph in graphs)
    summary = json.loads((learned[0] / "summary.json").read_text())
    assert summary["gain_over_local"] == pytest.approx(np.mean(mixed - local), abs=1e-6)
    assert summary["below_local"] == pytest.approx(np.mean(mixed < local))
    assert 0 <= summary["harmed"] <= summary["below_local"]
    assert not np.array_equal(mixed, local)


def test_the_graph_file_says_who_is_who(learned: tuple[Path, str]) -> None:
    graph = nx.read_graphml(learned[0] / "graph.graphml")
    assert graph.is_directed()
    for _, data in graph.nodes(data=True):
        assert set(data) == {"group", "block", "accuracy", "samples"}
    with np.load(learned[0] / "weights.npz") as arrays:
        last, names = arrays["weights"][-1], arrays["names"].tolist()
    for u, v, weight in graph.edges(data="weight"):
        assert weight == pytest.approx(last[names.index(v), names.index(u)])  # u -> v: v learns from u


def test_run_json_is_enough_to_repeat_the_run(learned: tuple[Path, str]) -> None:
    request = json.loads((learned[0] / "run.json").read_text())
    assert (request["model"], request["hyperparameters"], request["baseline"]) == ("scool_sbm", {"blocks": 3}, True)
    assert request["settings"]["rounds"] == 2
    assert request["federation"].startswith("permuted:digits:")


@pytest.mark.usefixtures("no_pictures")
def test_a_name_and_a_path_are_the_same_bits_and_a_seed_is_not(learned: tuple[Path, str], tmp_path: Path) -> None:
    fit(tmp_path / "path", zoo.models_folder() / "scool_sbm.py", "blocks=3")
    assert bits(tmp_path / "path") == bits(learned[0])
    fit(tmp_path / "seed", "scool_sbm", "blocks=3", "--seed=1")
    assert bits(tmp_path / "seed")[0] != bits(learned[0])[0]
    assert bits(tmp_path / "seed")[1] != bits(learned[0])[1]


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("pairs", "weight"), [((), 0.5), (("weight=0.25",), 0.25), (("weight=1", "flag=true"), 0.5)], ids=str
)
def test_hyperparameters_reach_build(tmp_path: Path, pairs: tuple[str, ...], weight: float) -> None:
    (tmp_path / "constant.py").write_text(CONSTANT)
    fit(tmp_path / "run", tmp_path / "constant.py", *pairs)
    with np.load(tmp_path / "run" / "weights.npz") as arrays:
        assert np.allclose(arrays["weights"], weight * (1 - np.eye(4)))


@pytest.mark.usefixtures("no_pictures")
def test_hyperparameters_without_a_model_go_to_the_default(tmp_path: Path) -> None:
    fit(tmp_path / "default", "reliance=3")
    fit(tmp_path / "named", zoo.DEFAULT_MODEL, "reliance=3")
    fit(tmp_path / "other", zoo.DEFAULT_MODEL)
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("default", "named", "other")]
    assert bits(tmp_path / "default") == bits(tmp_path / "named")
    assert summaries[0]["relies_on"] == summaries[1]["relies_on"] != summaries[2]["relies_on"]
    assert summaries[0]["hyperparameters"] == {"reliance": 3.0}


@pytest.mark.usefixtures("no_pictures")
def test_the_e_step_can_be_svi(tmp_path: Path) -> None:
    for e_step in ("natural", "svi"):
        command = ("fit", "ring", *TINY, "--federation=permuted:digits:clients=8,groups=2,train=40,test=20")
        assert scool(*command, f"--e-step={e_step}", "--out", tmp_path / e_step).code == 0
    natural, svi = (rows(tmp_path / e_step)[-1]["elbo"] for e_step in ("natural", "svi"))
    assert natural != svi, "the same bits would mean that the option had no effect"
    assert svi == pytest.approx(natural, rel=0.05)


@pytest.mark.usefixtures("no_pictures")
def test_svi_leaves_given_graphs_and_the_baseline_alone(tmp_path: Path) -> None:
    answer = scool("fit", "fedavg", *TINY, "--rounds=1", "--e-step=svi", "--baseline", "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    assert rows(tmp_path / "run")[-1]["elbo"] == 0


@pytest.mark.usefixtures("no_pictures")
def test_runs_without_a_name_get_free_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/local", "runs/local-2"):
        assert scool("fit", "local", *TINY).out.endswith(f"in {folder}\n")
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"local", "local-2"}


def test_plot_draws_the_same_pictures_again(learned: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(learned[0], run)
    before = contents(run)
    for path in run.glob("*.png"):
        path.write_bytes(b"spoilt")
    answer = scool("plot", run)
    assert answer.code == 0
    assert answer.out.split() == [str(run / name) for name in ("graph.png", "weights.png", "history.png")]
    assert contents(run) == before  # bit for bit, the line of local-only training included
    assert scool("plot", run, "--gexf").code == 0
    graph, file = Run.open(run).graph, nx.read_gexf(run / "graph.gexf")
    assert sorted(file.nodes) == sorted(graph.names)
    assert file.number_of_edges() == int(graph.believed.sum()) < 12
    believed = (run / "graph.png").read_bytes()
    assert scool("plot", run, "--gexf", "--all-edges").code == 0
    assert nx.read_gexf(run / "graph.gexf").number_of_edges() == int((graph.weights != 0).sum()) == 12
    assert (run / "graph.png").read_bytes() != believed
    assert {path.name for path in run.iterdir()} == {*ENTRIES, "graph.gexf"}


def test_check_passes_or_ends_with_2(tmp_path: Path) -> None:
    good = scool("check", "ring")
    assert good.code == 0, good.out
    assert all(line.startswith(("pass  ", "skip  ")) for line in good.out.splitlines())
    ring = (zoo.models_folder() / "ring.py").read_text()
    (tmp_path / "broken.py").write_text(ring.replace('return pyro.sample("Y"', 'return pyro.sample("graph"'))
    broken = scool("check", tmp_path / "broken.py")
    assert broken.code == 2
    assert "FAIL  samples a site 'Y' and returns it: sites ['graph'] are sampled, expected one named 'Y'" in broken.out


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command != "flower"]
)  # which has commands of its own
def test_help_names_every_option(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    answer = scool(command, "--help")
    assert answer.code == 0
    for name, parameter in inspect.signature(function_of(command), eval_str=True).parameters.items():
        is_argument = any(isinstance(about, ArgumentInfo) for about in get_args(parameter.annotation))
        if parameter.annotation is not Context and not is_argument:
            assert f"--{name.replace('_', '-')} " in answer.out
    assert (function_of(command).__doc__ or "").split(".")[0] in " ".join(answer.out.split())


def test_help_names_every_command() -> None:
    answer = scool("--help")
    assert answer.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in answer.out
    assert "..." not in answer.out.split("Commands:")[1], "a description was cut"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["scool_sbn"], ["unknown model 'scool_sbn'", "did you mean 'scool_sbm'?"]),
        (["nowhere/mine.py"], ["no model file at 'nowhere/mine.py'"]),
        (["local", "fedavg"], ["2 models", "scool compare"]),
        (["scool_sbm", "block=4"], ["unknown hyperparameter of scool_sbm 'block'", "did you mean 'blocks'?"]),
        (["scool_sbm", "blocks=few"], ["blocks is 'few', expected a whole number"]),
        (["scool_sbm", "blocks=0"], ["at least one block"]),
        (["reliances=4"], ["unknown hyperparameter of hedge 'reliances'", "did you mean 'reliance'?"]),
        (["reliance=0"], ["Stack has alpha=0", "expected a number of at least 1"]),
        (["alpha=nan"], ["alpha is 'nan', expected a number"]),
        (["scool_sbm", "reference=midpiont"], ["'midpiont'", "did you mean 'midpoint'?"]),
        (["fedavg", "samples=3"], ["unknown hyperparameter of fedavg 'samples'"]),
        (["--federation=permuted:digits:groups=9", "--clients=4"], ["groups=9, expected 1 to 4"]),
        (["--federation=permuted:digits:clients=4,groups=2,train=9999"], ["9999"]),
        (["--federation=permutde:digits"], ["'permutde'", "did you mean 'permuted'?"]),
        (["--federation=mnits"], ["'mnits'", "did you mean 'mnist'?"]),
        (["--federation=absent.npz"], ["no file absent.npz"]),
        (
            ["--federation=permuted:mnist", "--data-root=empty", "--no-download"],
            ["no mnist in empty/MNIST/raw", "--download"],
        ),
        (["oracle", "--federation=dirichlet:digits:clients=4"], ["'oracle' needs truth"]),
        (["--clients=0"], ["clients is 0, expected a whole number of at least 1"]),
        (["--clients=many"], ["'--clients'", "valid integer"]),
        (["--rounds=0"], ["rounds=0"]),
        (["--learning-rate=nan"], ["learning_rate=nan"]),
        (["--batch-size=0"], ["batch_size=0"]),
        (["--local-steps=0"], ["local_steps=0"]),
        (["--network=mpl"], ["unknown network 'mpl'", "did you mean 'mlp'?"]),
        (["--executor=stack"], ["unknown executor 'stack'", "did you mean 'stacked'?"]),
        (["--device=gpu"], ["unknown device 'gpu'"]),
        (["--e-step=sv"], ["unknown e-step 'sv'", "did you mean 'svi'?"]),
        (["--deploy=stak"], ["unknown deploy 'stak'", "did you mean 'stack'?"]),
        (["--round=3"], ["--round", "--rounds"]),
        (["--out=file/run"], ["cannot write to 'file/run'"]),
        (["--out=file"], ["'file' exists"]),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else None,
)
def test_bad_input_to_fit_is_one_line_and_writes_nothing(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCOOL_DATA", raising=False)
    (tmp_path / "file").write_text("in the way")
    before = contents(tmp_path)
    line = refused("fit", *arguments, "--quiet")
    for word in words:
        assert word in line
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "local", "fedavgg"], "did you mean 'fedavg'?"),
        (["compare", "local", "local"], "local was given twice"),
        (["compare", "local", "--seeds=0"], "seeds is 0"),
        (["compare", "local", "--out=file/x"], "cannot write to 'file/x'"),
        (["compare", "local", "oracle", "--federation=dirichlet:digits:clients=4"], "'oracle' needs truth"),
        (["compare"], "MODEL"),
        (["plot", "nowhere"], "'nowhere' is not a run's folder"),
        (["plot"], "RUN"),
        (["resume", "nowhere"], "'nowhere' is not a run's folder"),
        (["check", "rnig"], "did you mean 'ring'?"),
        (["check", "file"], "unknown model 'file'"),
        (["models", "extra"], "extra"),
        (["fti"], "fti"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_to_other_commands(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    folders = {"runs", "runs/compare"}  # compare makes sure of its folder before it trains; it stays, empty
    before = contents(tmp_path)
    assert words in refused(*arguments)
    assert {name: content for name, content in contents(tmp_path).items() if name not in folders} == before


def test_a_run_is_replaced_only_when_told_to(alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(alone, run)
    (run / "old.txt").write_text("of the old run")
    before = contents(run)
    assert "--overwrite" in refused("fit", "local", *TINY, "--out", run)
    assert contents(run) == before
    assert "unknown model" in refused("fit", "lokal", *TINY, "--out", run, "--overwrite")
    assert contents(run) == before, "bad input must not cost the old run"
    fit(run, "local", "--overwrite", "--seed=1")
    assert {path.name for path in run.iterdir()} == ENTRIES
    assert bits(run) != bits(alone)


def test_overwrite_never_replaces_what_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    before = contents(tmp_path)
    line = refused("fit", "local", *TINY, "--out", tmp_path / "thesis", "--overwrite")
    assert "not empty" in line
    assert "or replace" not in line
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise", "list"])
@pytest.mark.parametrize("name", ["run.json", "history.jsonl", "weights.npz", "graph.graphml", "summary.json"])
def test_plot_of_a_damaged_run_is_one_line(learned: tuple[Path, str], tmp_path: Path, name: str, damage: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(learned[0], run)
    whole = (run / name).read_bytes()
    (run / name).unlink()
    if damage != "missing":
        noise = bytes(np.random.default_rng(0).integers(0, 256, 300, dtype=np.uint8))
        (run / name).write_bytes(
            {"empty": b"", "cut": whole[: len(whole) // 3], "noise": noise, "list": b"[1]"}[damage]
        )
    before = contents(tmp_path)
    line = refused("plot", run)
    assert name.split(".")[0] in line
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("error", "code"), [(RunError("the disk is full"), 3), (KeyboardInterrupt(), 130)], ids=["failed", "interrupted"]
)
def test_a_run_that_ends_early_has_its_own_code(
    error: BaseException, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("scool_ppl.em.EM.fit", fail)
    run = tmp_path / "run"
    line = refused("fit", "local", *TINY, "--out", run, code=code)
    assert line == f"scool: {str(error) or 'interrupted'}; go on with `scool resume {run}`\n"


def test_as_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m scool_ppl`, without the seconds of a new process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["scool_ppl", "fit", "local", *TINY, "--out=run"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("scool_ppl", run_name="__main__", alter_sys=True)
    assert (end.value.code, capsys.readouterr().err) == (0, "")
    assert {path.name for path in (tmp_path / "run").iterdir()} == ENTRIES


def test_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scool_ppl", "fit", "locla"]
    failed = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("scool: unknown model 'locla'")
    assert failed.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

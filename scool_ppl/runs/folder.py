"""A run's folder: what it was asked, what happened in each round, the graphs, and their pictures."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from scool_ppl.base.arguments import check_names
from scool_ppl.base.codec import Row
from scool_ppl.base.files import read_json, replacing
from scool_ppl.deploy.blueprint import Blueprint, MakeNetwork, client_network
from scool_ppl.deploy.network import ClientNetwork
from scool_ppl.em.state import Deployment
from scool_ppl.errors import InputError, RunError
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.runs import deployed, weights
from scool_ppl.runs.checkpoints import last_round, tidy
from scool_ppl.runs.weights import Graphs
from scool_ppl.tasks.base import Task

MARK, HISTORY, SUMMARY = "run.json", "history.jsonl", "summary.json"


class Run:
    """The folder of one run; every file is replaced in one step, so a reader never sees half of one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.graphs: Graphs = {}
        """Those of the rounds that are kept."""
        self._last: tuple[int, CooperationGraph] | None = None
        self._held = False

    @classmethod
    def create(cls, path: str | os.PathLike[str], settings: Row | None = None, *, overwrite: bool = False) -> Run:
        """A new folder; one that holds something is refused, or emptied if `overwrite` says so and it holds the same: a
        run gives way to a run, a comparison to a comparison.
        """
        folder = Path(path)
        with _writable(folder):
            if overwrite and (folder / MARK).is_file() and _gives_way(folder, settings or {}):
                with cls(folder).locked():
                    shutil.rmtree(folder)
        run = cls(cls.vacant(folder))
        run.write_json(MARK, settings or {})
        return run

    @staticmethod
    def vacant(path: str | os.PathLike[str]) -> Path:
        """The folder, made where it is missing and still empty: to be asked before long work, not after it."""
        folder = Path(path)
        with _writable(folder):
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                remedy = ""
                if (folder / MARK).is_file() and not _several(Run(folder).settings):
                    remedy = ", or replace it by `scool fit --overwrite`"
                    if not (folder / SUMMARY).exists():
                        remedy = f", go on with `scool resume {folder}`{remedy}"
                raise InputError(
                    f"'{folder}' exists and is not empty, expected a new folder; choose another --out{remedy}"
                )
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    @classmethod
    @contextmanager
    def reserved(cls, path: str | os.PathLike[str]) -> Iterator[Path]:
        """A vacant folder for what long work comes to; where that fails, a folder that was not there before is not left."""
        there = Path(path).exists()
        folder = cls.vacant(path)
        try:
            yield folder
        except BaseException:
            if not there:
                with suppress(OSError):  # something was written
                    folder.rmdir()
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """An existing folder, to read or to go on with."""
        folder = Path(path)
        if not (folder / MARK).is_file():
            raise InputError(f"'{folder}' is not a run's folder: it has no {MARK}; expected the --out of a `scool fit`")
        run = cls(folder)
        run.read_json(MARK)
        return run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes into the folder meanwhile; the system lets go of it even when the process is killed.

        Whoever holds it already may hold it again.
        """
        if self._held:
            yield
            return
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise InputError(f"cannot open '{self.path}': {error.strerror}; expected a run's folder") from error
        try:
            _flock(descriptor, self.path)
            self._held = True
            yield
        finally:
            self._held = False
            os.close(descriptor)

    @property
    def settings(self) -> Row:
        """What the run was asked to do."""
        return self.read_json(MARK)

    @property
    def history(self) -> list[Row]:
        """One row per round."""
        try:
            lines = (self.path / HISTORY).read_text().splitlines()
            return [json.loads(line) for line in lines]
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"cannot read {self.path / HISTORY}: {error}; repeat the run") from error

    @property
    def graph(self) -> CooperationGraph:
        """The last graph."""
        return weights.last(self.path)

    def record(self, row: Row, graph: CooperationGraph) -> None:
        """Append a round; the graphs of rounds 1, 2, 5, 10, 20, 50, ... are kept, and the last."""
        with _going_on(self.path), (self.path / HISTORY).open("a") as file:
            for ended in (SUMMARY, deployed.FILE):  # of a run that had ended with fewer rounds
                (self.path / ended).unlink(missing_ok=True)
            file.write(json.dumps(row) + "\n")
        self.remember(row["round"], graph)

    def remember(self, round: int, graph: CooperationGraph) -> None:
        """The graph of the last round, to finish with."""
        self._last = round, graph
        if milestone(round):
            self.graphs[round] = graph.peers.kept(graph.weights)

    def go_on(self, history: list[Row], graphs: Graphs) -> None:
        """Back to the end of an earlier round: its history and its graphs."""
        with _going_on(self.path):
            tidy(self.path)
        with _going_on(self.path), replacing(self.path / HISTORY) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in history))
        self.graphs = dict(graphs)

    def finish(self, summary: Row, *, truth: Tensor | None = None, clients: str | None = None) -> None:
        """Write summary.json, weights.npz, graph.graphml and the pictures; `clients` is the table clients.csv."""
        if self._last is None:
            raise InputError(f"run '{self.path}' has no round to finish with; call record first")
        last, graph = self._last
        graphs = {**self.graphs, last: graph.peers.kept(graph.weights)}
        with _going_on(self.path):
            weights.save(self.path, graphs, graph, truth)
            if clients is not None:
                self.write_text("clients.csv", clients.rstrip("\n"))
            self.write_json(SUMMARY, summary)
            self.draw()

    def deploy(self, deployment: Deployment, blueprint: Blueprint | None = None) -> None:
        """Write what the clients ship into the folder `deployed`."""
        with _going_on(self.path):
            deployed.save(self.path, deployment, blueprint)

    @property
    def deployment(self) -> Deployment:
        """What the clients ship."""
        return deployed.load(self.path).deployment

    def clients(self) -> tuple[str, ...]:
        """The clients' names."""
        blueprint = deployed.load(self.path).blueprint
        return self.graph.names if blueprint is None else blueprint.clients

    def network(self, client: str, *, network: MakeNetwork | None = None, task: Task | None = None) -> ClientNetwork:
        """All that a client predicts with, as a module of PyTorch in eval mode; the data need not be there.

        network, task: the function that Clients were given, the task of the federation, where these are your own.
        """
        (found,) = self.networks([client], network=network, task=task)
        return found

    def networks(
        self, clients: Sequence[str] = (), *, network: MakeNetwork | None = None, task: Task | None = None
    ) -> Iterator[ClientNetwork]:
        """`network` of several clients, of all if none is named, one after the other."""
        check_names("clients", clients)
        deployment, blueprint = self._shipped()
        for name in clients:
            blueprint.place(name)  # refused before the first is built
        chosen = clients or blueprint.clients
        return (client_network(deployment, blueprint, name, network=network, task=task) for name in chosen)

    def predict(self, client: str, inputs: Any) -> np.ndarray[Any, Any]:
        """What a client predicts for new inputs, see `ClientNetwork.predict`: labels, or means."""
        return self.network(client).predict(inputs)

    def _shipped(self) -> tuple[Deployment, Blueprint]:
        self.check_single()
        _, deployment, blueprint = deployed.load(self.path)
        if blueprint is None:
            raise InputError(
                f"'{self.path}' was written by an earlier version, which did not say how its networks are built; for a "
                f"`scool fit`, `scool resume {self.path}` writes it"
            )
        return deployment, blueprint

    def draw(self, threshold: float | None = None) -> list[Path]:
        """graph.png, weights.png and history.png, from the folder's files; the graph's edges are as in `to_networkx`."""
        from scool_ppl.runs.pictures import draw

        self.check_finished()
        return draw(self, threshold)

    def check_single(self) -> None:
        """Raises InputError where the folder is of several fits, whose networks are not kept."""
        if several := _several(self.settings):
            raise InputError(f"'{self.path}' is the folder of a {several}, expected that of a fit; `scool fit` a model")

    def check_finished(self) -> None:
        """Raises InputError, which says how to go on, unless the run has ended."""
        self.check_single()
        if not (self.path / SUMMARY).is_file():
            raise InputError(self._unfinished())

    def write_text(self, name: str, content: str) -> None:
        """Write a file of the folder in one step."""
        with replacing(self.path / name) as temporary:
            temporary.write_text(content + "\n")

    def write_json(self, name: str, content: Row) -> None:
        """Write a JSON file of the folder in one step."""
        self.write_text(name, json.dumps(content, indent=2))

    def read_json(self, name: str) -> Row:
        """Read a JSON file of the folder."""
        return read_json(self.path / name, "repeat the run")

    def _unfinished(self) -> str:
        settings, done = self.settings, last_round(self.path)
        way = f"`scool resume {self.path}`" if "model" in settings else "EM.fit(..., resume=True), then Run.finish"
        return f"'{self.path}' has no {SUMMARY}: its run has not ended, it stopped after round {done}; go on with {way}"

    def weights(self) -> tuple[Graphs, Tensor | None]:
        """The kept graphs by round, and the truth (K, K) where it is known."""
        return weights.load(self.path)

    def intervals(self) -> tuple[Tensor, Tensor] | None:
        """The ends of the credible intervals of the last graph's weights, (K, K) each; None where there are none."""
        return weights.intervals(self.path)


def free_name(parent: str | os.PathLike[str], name: str) -> Path:
    """parent/name, or parent/name-2, -3, ... whichever does not exist yet."""
    path, number = Path(parent) / name, 1
    while path.exists():
        number += 1
        path = Path(parent) / f"{name}-{number}"
    return path


def milestone(round: int) -> bool:
    """Rounds 1, 2, 5, 10, 20, 50, ...: those whose graphs are kept."""
    digits = str(round)
    return digits[0] in "125" and not digits[1:].strip("0")


def _several(settings: Row) -> str:
    """What a folder is that `scool compare` or `scool choose` wrote; nothing for a run."""
    return next((kind for kind in ("comparison", "choice") if kind in settings), "")


def _gives_way(folder: Path, settings: Row) -> bool:
    """Is the folder of the same kind as what these settings ask for? One whose settings are damaged is of no use."""
    try:
        return _several(Run(folder).settings) == _several(settings)
    except InputError:
        return True


def _flock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(
            f"'{folder}' is being written by another process, expected one at a time; wait for it or stop it"
        ) from error


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write to '{folder}': {reason}; choose another --out") from error


@contextmanager
def _going_on(folder: Path) -> Iterator[None]:
    """What cannot be written now can be written later: the run is not lost."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write to '{folder}': {error.strerror or error}; make room and resume the run"
        ) from error
    except InputError as error:
        if isinstance(error.__cause__, OSError):
            raise RunError(f"{error}; make room and resume the run") from error
        raise

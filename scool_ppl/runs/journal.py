"""What a fit leaves in its run's folder round by round, and how it goes on from there."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from scool_ppl.base.arguments import check_kind, check_whole
from scool_ppl.base.codec import Row
from scool_ppl.base.signals import Interrupted, stoppable
from scool_ppl.em.em import EM
from scool_ppl.em.state import EMState
from scool_ppl.errors import USER_ERRORS, InputError, ScoolError
from scool_ppl.graph.cooperation import CooperationGraph
from scool_ppl.graph.stacks import is_shared
from scool_ppl.runs import checkpoints
from scool_ppl.runs.checkpoints import Checkpoint
from scool_ppl.runs.folder import MARK, Run
from scool_ppl.runs.identity import compare, compare_state, facts
from scool_ppl.train.contract import Evaluation

Folder = str | os.PathLike[str] | Run


class Journal:
    """The state, the history and the evaluation before mixing of the last completed round; saved where there is a run."""

    def __init__(self, em: EM, run: Run | None, state: EMState, every: int, keep: int) -> None:
        self.em, self.run, self.every, self.keep = em, run, every, keep
        self.state = state
        self.trained: Evaluation | None = None
        self.history: list[Row] = []
        self._tried: int | None = None
        self.facts = {} if run is None else facts(em)  # once: what a part keeps to itself while it runs is no setting

    def record(self, row: Row, graph: CooperationGraph, state: EMState, trained: Evaluation, last: bool) -> None:
        """A completed round: a row of the history, and every so often and at the end a checkpoint."""
        self.history.append(row)
        self.state, self.trained = state, trained
        if self.run is not None:
            self.run.record(row, graph)
            if last or state.round % self.every == 0:
                self.save()

    def save(self) -> None:
        """A checkpoint of the last completed round, if that was not tried already."""
        if self.run is None or self._tried == self.state.round:
            return
        self._tried = self.state.round
        content = Checkpoint(
            state=self.state,
            trained=self.trained,
            graphs=self.run.graphs,
            history=self.history,
            facts=self.facts,
            executor=self.em.clients.executor_name,
            threads=torch.get_num_threads(),
        )
        checkpoints.save(self.run.path, content, keep=self.keep)

    def outcome(self) -> tuple[CooperationGraph, Evaluation, Evaluation]:
        """The graph and the evaluations after and before mixing of the last completed round."""
        if self.run is None or self.trained is None:
            raise InputError(
                f"round {self.state.round} was not run here, there is nothing to return; ask for more rounds"
            )
        mixed = self.em.evaluate(self.state)
        graph = self.em.graph(self.state, mixed)
        self.run.remember(self.state.round, graph)
        return graph, mixed, self.trained

    def go_on(self, last: Checkpoint, run: Run) -> None:
        """Take up where the checkpoint was written; history and graphs after it are forgotten."""
        self.state, self.trained, self.history = last.state, last.trained, list(last.history)
        self._tried = last.state.round
        self.em.clients.use_executor(last.executor)
        if last.threads != torch.get_num_threads():
            warnings.warn(
                f"the run used {last.threads} threads, torch has {torch.get_num_threads()} now: the last bits may differ; "
                f"OMP_NUM_THREADS={last.threads} repeats them",
                stacklevel=2,
            )
        run.go_on(self.history, last.graphs)


@contextmanager
def recording(
    em: EM, run: Folder | None, state: EMState | None, *, resume: bool, rounds: int, every: int, keep: int
) -> Iterator[Journal]:
    """A journal for `rounds` rounds in all if it resumes. Where there is a run, signals are heard between two verbs, and
    whatever ends the rounds early, the last completed one is saved.
    """
    check_whole("checkpoint_every", every)
    check_whole("keep", keep)
    if state is not None:
        em.check(state)
    if run is None:
        if resume:
            raise InputError("resume=True was given without a folder; pass run= as well")
        yield Journal(em, None, em.init() if state is None else state, every, keep)
        return
    if resume and state is not None:
        raise InputError("both state= and resume=True were given, expected one; leave state out")
    folder = _opened(run, resume)
    with folder.locked(), stoppable():
        last = _evaluated(em, newest(em, folder), rounds, folder) if resume else None
        journal = Journal(em, folder, em.init() if state is None else state, every, keep)
        if last is not None:
            check_rounds(last.state, rounds, folder)
            journal.go_on(last, folder)
        journal.save()
        try:
            yield journal
        except Interrupted:
            journal.save()
            raise Interrupted(f"interrupted; round {journal.state.round} is saved in '{folder.path}'") from None
        except Exception as error:
            journal.save()
            new = isinstance(error, USER_ERRORS) and not isinstance(error, ScoolError)
            if new and last is not None and journal.state is last.state:
                raise InputError(
                    f"no round can be run from what '{folder.path}' holds of round {last.state.round}: "
                    f"{type(error).__name__}: {error}; repair what the error names, or begin a new run in another folder"
                ) from error
            raise


def check_rounds(state: EMState, rounds: int, run: Run) -> None:
    """Raises InputError if a run has more rounds than were asked for in all."""
    if state.round > rounds:
        raise InputError(
            f"'{run.path}' has {state.round} rounds already, {rounds} in all were asked for; "
            "ask for more, or begin a new run in another folder"
        )


def newest(em: EM, run: str | os.PathLike[str] | Run) -> Checkpoint | None:
    """The newest intact checkpoint of a run, if it is of this EM's model, clients, data and schedule."""
    folder = run if isinstance(run, Run) else Run.open(_path(run))
    own = em.init()
    last = checkpoints.newest(folder.path, like=_shared(own))
    if last is not None:
        what = f"the run in '{folder.path}'"
        compare(last.facts, facts(em), what, last.partial)
        if last.partial and not own.initial:  # format 1 kept theta^0 for every model
            last = last._replace(state=last.state._replace(initial={}))
        compare_state(last.state, own, what)
    return last


def _evaluated(em: EM, last: Checkpoint | None, rounds: int, run: Run) -> Checkpoint | None:
    """Where to go on from: where nothing but the last evaluation is left to do, whose networks nobody has kept, that is the
    checkpoint before.
    """
    if last is None or last.state.round != rounds or last.trained is None:
        return last
    if bool(last.trained.loss.isfinite().any()) or not bool((em.clients.roster.sizes("test") > 0).any()):
        return last
    before = checkpoints.newest(run.path, before=rounds, like=_shared(em.init()))
    if before is None:
        raise InputError(
            f"round {rounds} of '{run.path}' was not evaluated, and there is no checkpoint before it to go on from; ask "
            f"for {rounds + 1} rounds"
        )
    return before


def _shared(state: EMState) -> Tensor | None:
    """A stack that ranks share, where they share the networks."""
    return next((value for value in state.params.values() if is_shared(value)), None)


def _opened(run: Folder, resume: bool) -> Run:
    if isinstance(run, Run):
        return run
    path = _path(run)
    return Run.open(path) if resume and (path / MARK).is_file() else Run.create(path)


def _path(run: str | os.PathLike[str]) -> Path:
    check_kind("run", run, str | os.PathLike, "give the folder's path")
    return Path(run)

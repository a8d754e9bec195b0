"""What a prior learned in one run, used on clients that it has never seen, beside the same model from scratch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from scool_ppl.base.codec import Row
from scool_ppl.data.federation import Federation
from scool_ppl.em.transfer import Learned
from scool_ppl.errors import InputError
from scool_ppl.runs import checkpoints
from scool_ppl.runs.folder import Run
from scool_ppl.workbench.compare import Arm, Outcome, compare
from scool_ppl.workbench.resume import Request


def transfer(
    run: str | os.PathLike[str],
    make_federation: Callable[[int], Federation],
    *,
    choices: Row | None = None,
    rounds: int | None = None,
    seeds: Sequence[int] | None = None,
    networks_seed: int | None = None,
    freeze: bool = False,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> list[list[Outcome]]:
    """A run's model on other clients, for each seed: from scratch, and with what the run has learned.

    The second begins with the parameters of the run's prior that belong to no client, see `em.Learned`; with `freeze` they
    stay as they are. Networks begin untrained: under the run's seed where its own began, which a frozen encoder of updates
    needs; with the run's as `networks_seed` they do so for several federations. Settings, hyperparameters but for
    `choices`, rounds and seed are the run's where nothing else is given. Results and `out` are those of `compare`.
    """
    folder = Run.open(run)
    asked = Request.read(folder)
    asked.check_files(folder)
    last = checkpoints.newest(folder.path)
    if last is None or last.state.round == 0:
        raise InputError(
            f"'{folder.path}' has no round yet, so nothing has been learned; go on with `scool resume` first"
        )

    def others(seed: int) -> Federation:
        federation = make_federation(seed)
        known = last.facts.get("data") == [f"SHA-256 {federation.fingerprint}"]
        if known or (federation.spec, seed) == (asked.federation, asked.settings.seed):
            raise InputError(
                f"{federation.spec} with seed {seed} is what '{folder.path}' has learned from, expected other clients; "
                "name another federation or another seed"
            )
        return federation

    learned = Learned.of(last.state, f"'{folder.path}'", frozen=freeze)
    settings = asked.settings if rounds is None else replace(asked.settings, rounds=rounds)
    hyperparameters = {**asked.hyperparameters, **(choices or {})}
    arms = [Arm(asked.model, hyperparameters), Arm(asked.model, hyperparameters, learned)]
    numbers = [settings.seed] if seeds is None else seeds
    return compare(
        arms, others, settings, numbers, networks_seed=networks_seed, out=out, overwrite=overwrite, progress=progress
    )

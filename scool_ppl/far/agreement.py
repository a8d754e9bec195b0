"""Agreement: what clients say of themselves must fit together, and is the driver's roster."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from scool_ppl.data.roster import Roster
from scool_ppl.errors import InputError
from scool_ppl.far.wire import Description
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.named import task_of

ALIKE = {
    "kind": "give all of them inputs of one shape and one task, e.g. task='classification:num_classes=10'",
    "network": "give all of them the same network",
    "dtype": "give all of them the same dtype",
    "batch_size": "give all of them the same batch_size",
    "probe_size": "give all of them the same probe_size",
    "privacy": "give all of them the same privacy",
    "facts": "give all of them the same network, optimizer and batches",
    "private": "let all hosts keep private parts, or none",
}
"""What must be the same of all clients, and what to do where it is not."""


def roster_of(described: Mapping[str, Description], task: Task | None = None) -> Roster:
    """Who takes part; `task` where it is a class of the user's own."""
    if not described:
        raise InputError("nobody has described itself, expected a client at least; start the hosts first")
    check_alike(described)
    first = next(iter(described.values()))
    return Roster(
        names=tuple(described),
        task=common_task(described) if task is None else task,
        input_shape=first.input_shape,
        tokens=first.tokens,
        rows=torch.tensor([told.rows for told in described.values()]).T,
        counts=torch.tensor([told.counts for told in described.values()], dtype=torch.long).transpose(0, 1),
    )


def check_alike(described: Mapping[str, Description]) -> None:
    """Raises InputError where two clients cannot learn from one another."""
    (name, first), *others = described.items()
    for other, told in others:
        for what, remedy in ALIKE.items():
            one, two = getattr(first, what), getattr(told, what)
            if one != two:
                found = f"{name} has the {what.replace('_', ' ')} {_cut(one)}, {other} {_cut(two)}"
                raise InputError(f"{found}; expected the same; {remedy}")


def common_task(described: Mapping[str, Description]) -> Task:
    """The task of all clients: what it has to know of their targets, such as a variance, is pooled."""
    texts = {told.task for told in described.values()}
    if None in texts:
        who = next(name for name, told in described.items() if told.task is None)
        raise InputError(f"the task of {who} is a class of its own, which cannot be told; pass it: task=...")
    tasks = [task_of(str(text)) for text in sorted(map(str, texts))]
    if len(tasks) == 1:
        return tasks[0]
    statistics = torch.tensor([told.statistics for told in described.values()], dtype=torch.float64)
    pooled = [task.pooled(statistics) for task in tasks]
    if any(task != pooled[0] for task in pooled):
        listing = " and ".join(sorted(map(str, texts))[:2])
        raise InputError(f"clients have the tasks {listing}, expected one; give all of them the same")
    return pooled[0]


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}..."

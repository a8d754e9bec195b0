"""Clients for benchmarks: the embedded digits, dealt to as many clients as asked for; and how long their rounds take."""

from __future__ import annotations

import statistics
import time

import timing
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from scool_ppl import EM, Federation

ROUNDS, VERBS = 4, ("train", "look", "infer", "mix", "round")
GROUPS, TRAIN, HELD_OUT = 4, 50, 10


def digits(size: int = 8) -> tuple[Tensor, Tensor]:
    """1,797 images of size x size and their labels."""
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    if size != 8:
        images = torch.nn.functional.interpolate(images, size=(size, size), mode="bilinear")
    return images, torch.tensor(found.target)


def federation(num_clients: int, size: int = 8, train: int = TRAIN, test: int = TRAIN) -> Federation:
    """Four groups that permute the labels; `train` training, 10 validation and `test` test images a client."""
    images, labels = digits(size)
    random = torch.Generator().manual_seed(num_clients)
    names = torch.stack([torch.randperm(10, generator=random) for _ in range(GROUPS)])
    each = train + HELD_OUT + test
    rows = torch.stack([torch.randperm(len(images), generator=random)[:each] for _ in range(num_clients)])
    group = torch.arange(num_clients) * GROUPS // num_clients
    return Federation.from_arrays(
        images[rows.flatten()],
        names[group[:, None], labels[rows]].flatten(),
        torch.arange(num_clients).repeat_interleave(each),
        split=torch.tensor([0] * train + [1] * HELD_OUT + [2] * test).repeat(num_clients),
        groups=group,
        num_classes=10,
    )


def rounds_of(case: str, em: EM) -> timing.Row:
    """Seconds of the verbs in the first round and in the next ones, the groups that are found, and the largest memory."""
    state, rounds = em.init(), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        state, info = em.step(state)
        rounds.append({**info.seconds, "round": time.perf_counter() - start})
    return {
        "case": case,
        "first": {verb: round(rounds[0][verb], 4) for verb in VERBS},
        "next": {verb: round(statistics.median(each[verb] for each in rounds[1:]), 4) for verb in VERBS},
        "ARI": em.graph(state).score(em.clients.federation.truth).ari,
        "megabytes": timing.peak_megabytes(),
    }

"""Clients for benchmarks: the embedded digits, dealt to as many clients as asked for; and how long their rounds take."""

from __future__ import annotations

import statistics
import time

import timing
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from scool_ppl import EM, Federation, InputError, load_federation

ROUNDS, VERBS = 4, ("train", "look", "infer", "mix", "evaluate", "round")
GROUPS, TRAIN, HELD_OUT = 4, 50, 10
CIFAR = "groups:cifar10:clients={clients},train=500,test=2000"


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


def cifar(num_clients: int) -> Federation:
    """CIFAR-10 in five groups of two classes each; where it is not there, as many images of its shape, made at random."""
    try:
        return load_federation(CIFAR.format(clients=num_clients))
    except InputError:
        return _like_cifar(num_clients)


def _like_cifar(num_clients: int, train: int = 400, validation: int = 100, test: int = 400) -> Federation:
    random = torch.Generator().manual_seed(num_clients)
    group = torch.arange(num_clients) * 5 // num_clients
    own, held_out = (torch.arange(n * size).view(n, size) for n, size in ((num_clients, train + validation), (5, test)))
    labels = [2 * first[:, None] + rows % 2 for first, rows in ((group, own), (torch.arange(5), held_out))]
    lists = own.tensor_split([train], 1)
    return Federation(
        inputs=torch.randn(own.numel() + held_out.numel(), 3, 32, 32, generator=random),
        targets=torch.cat([each.flatten() for each in labels]),
        train=tuple(lists[0]),
        validation=tuple(lists[1]),
        test=tuple((own.numel() + held_out)[group]),
        names=tuple(f"client {client}" for client in range(num_clients)),
        num_classes=10,
        groups=tuple(group.tolist()),
    )


def rounds_of(case: str, em: EM, count: int = ROUNDS) -> timing.Row:
    """Seconds of the verbs and of evaluating in the first round and in the next ones, the groups that are found, and the
    largest memory.
    """
    state, rounds = em.init(), []
    for _ in range(count):
        start = time.perf_counter()
        state, info = em.step(state)
        done, seconds, failed = time.perf_counter(), info.seconds, dict(info.quarantined)
        assert not failed, f"the round was begun again without {failed}: its time is no time of a round"
        del info  # the trained networks
        em.evaluate(state)
        rounds.append({**seconds, "round": done - start, "evaluate": time.perf_counter() - done})
    return {
        "case": case,
        "first": {verb: round(rounds[0][verb], 4) for verb in VERBS},
        "next": {verb: round(statistics.median(each[verb] for each in rounds[1:]), 4) for verb in VERBS},
        "ARI": em.graph(state).score(em.clients.federation.truth).ari,
        "megabytes": timing.peak_megabytes(),
    }

"""Clients with unequal numbers of samples, in float64, on which executors and plain loops are compared."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from scool_ppl.data.federation import Federation
from scool_ppl.train.batches import Batches
from scool_ppl.train.clients import Clients
from scool_ppl.train.contract import Trained
from scool_ppl.train.networks import MLP
from scool_ppl.train.questions import Params

ADAM = partial(torch.optim.Adam, lr=0.01)
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)
SIZES = (13, 1, 7, 30)
EQUAL = (9, 9, 9)


def federation(sizes: tuple[int, ...] = SIZES, *, relabel: bool = True, empty_test: int | None = None) -> Federation:
    """Clients of unequal sizes with 5 features and 3 classes, each client with its own names of the classes."""
    random = torch.Generator().manual_seed(3)
    rows = torch.randperm(sum(sizes) + 6 * len(sizes), generator=random)
    parts = rows.split([*sizes, *[6] * len(sizes)])
    test = [part if i != empty_test else part[:0] for i, part in enumerate(parts[len(sizes) :])]
    return Federation(
        inputs=torch.randn(len(rows), 5, generator=random),
        targets=torch.randint(3, (len(rows),), generator=random),
        train=parts[: len(sizes)],
        validation=tuple(part[:0] for part in test),
        test=tuple(test),
        names=tuple(f"client {i}" for i in range(len(sizes))),
        num_classes=3,
        relabel=torch.stack([torch.randperm(3, generator=random) for _ in sizes]) if relabel else None,
    )


def clients(data: Federation, executor: str = "stacked", **options: object) -> Clients:
    return Clients(data, executor=executor, **{"optimizer": SGD, "dtype": torch.float64, "batch_size": 4, **options})  # type: ignore[arg-type]


def both(data: Federation, **options: object) -> tuple[Clients, Clients]:
    """The same clients with either executor."""
    return clients(data, "stacked", **options), clients(data, "loop", **options)


def module_of(params: Params, client: int) -> nn.Module:
    """One client's network as the module it is."""
    module = MLP(5, 3).double()
    module.load_state_dict({name: value[client] for name, value in params.items()})
    return module


def own(data: Federation, client: int, index: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs of these rows, and their labels as the client calls them."""
    return data.inputs[index].double(), data.labels(client, index)


def resting(batches: Batches, client: int, steps: slice = slice(None)) -> Batches:
    """The same batches, in which a client does not move at some steps."""
    weight = batches.weight.clone()
    weight[client, steps] = 0
    return batches._replace(weight=weight)


def distinct(network: Clients) -> Params:
    """Parameters that differ between clients."""
    return Clients(network.federation, executor="loop", dtype=torch.float64, common_start=False, batch_size=4).init(5)


def assert_same(a: Params, b: Params, tolerance: float = 0.0) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


def assert_agree(a: Trained, b: Trained) -> None:
    """What training came to is the same up to rounding."""
    assert_same(a.params, b.params, 1e-10)
    assert_same(a.optimizer_state, b.optimizer_state, 1e-10)
    torch.testing.assert_close(a.loss, b.loss, rtol=0, atol=1e-10)

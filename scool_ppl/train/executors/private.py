"""Private training (DP-SGD): per-sample gradients, clipped and noised, of batches drawn image by image.

At a step client i draws each of its n images with probability q = B / n, B the batch size, and descends along

    g = (1 / B) (sum_b g_b min(1, C / |g_b|) + sigma C xi),   xi standard normal,

g_b the gradient of one image's loss over the whole network (Abadi et al., 2016). One image more or less moves the sum by
at most C, whatever it shows: entries of g_b, and losses, that are not finite count as 0. What S such steps say of any one
image is for `privacy.account` to find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from scool_ppl.base.randomness import generator, key, seeded
from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError
from scool_ppl.tasks.base import Task
from scool_ppl.train.batches import Batches, labelled
from scool_ppl.train.contract import Plan
from scool_ppl.train.privacy.promise import Privacy
from scool_ppl.train.questions import Params


def private_batches(
    privacy: Privacy, federation: Federation, plain: Batches, batch_size: int, before: Tensor, plan: Plan
) -> Batches:
    """As many steps as `plain` training takes in a round, each with the key of its noise.

    before: (K,) steps that each client has made already. They are in the keys, so that no two steps share noise.
    """
    moves = plain.active
    keys = torch.zeros(moves.shape, dtype=torch.long)
    for client, name in enumerate(federation.names):
        first, count = int(before[client]), int(moves[client].sum())
        numbers = range(first, first + count)
        found = [key(plan.seed, "private noise", plan.round, name, number) for number in numbers]
        keys[client, :count] = torch.tensor(found, dtype=torch.long)
    if not privacy.poisson:
        return plain._replace(lot=(plain.weight != 0).sum(-1), keys=keys)
    lot = federation.sizes("train").clamp(max=batch_size)[:, None] * moves
    drawn = [
        generator(plan.seed, "private batches", plan.round, name, int(before[client]))
        for client, name in enumerate(federation.names)
    ]
    return poisson(federation, lot, drawn)._replace(keys=keys)


def poisson(federation: Federation, lot: Tensor, randoms: Sequence[torch.Generator]) -> Batches:
    """Batches in which every image of client i is there with probability lot / n, also none of them; lot: (K, S) long."""
    rows: list[list[Tensor]] = []
    for client, (members, random) in enumerate(zip(federation.train, randoms, strict=True)):
        drawn = torch.rand(lot.shape[1], len(members), generator=random, dtype=torch.float64)
        there = drawn * len(members) < lot[client][:, None]
        rows.append([members[each] for each in there])
    width = max([1, *(len(row) for each in rows for row in each)])
    index = torch.zeros(*lot.shape, width, dtype=torch.long)
    weight = torch.zeros(*lot.shape, width, dtype=torch.float64)
    for client, each in enumerate(rows):
        index[client] = federation.train[client][0] if len(federation.train[client]) else 0
        for step, row in enumerate(each):
            index[client, step, : len(row)] = row
            weight[client, step, : len(row)] = 1 / lot[client, step]
    return Batches(index, weight, labelled(federation, index), lot)


MOST = 1e6
"""So much an image's loss counts at most where training tells how it went; gradients are clipped by themselves."""
Network = Callable[[Params, Tensor], Tensor]
"""One network: its parameters, inputs (B, ...) -> outputs (B, ...)."""


def clipped(
    task: Task, network: Network, params: Params, inputs: Tensor, targets: Tensor, weight: Tensor, clip: float
) -> tuple[Tensor, Params]:
    """Of one network the loss sum_b weight_b l_b, and sum_b weight_b g_b min(1, C / |g_b|), by vmap of grad."""

    def loss(params: Params, image: Tensor, target: Tensor) -> Tensor:
        return task.losses(network(params, image[None]), target[None]).sum()

    of_each = torch.func.vmap(torch.func.grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
    gradients, losses = of_each(params, inputs, targets)
    # Not finite, a gradient would spoil the sum, and a loss, or a sum of huge ones, get its client left out: either would
    # show this image.
    gradients, losses = (
        {name: value.nan_to_num(0, 0, 0) for name, value in gradients.items()},
        losses.nan_to_num(0, 0, 0).clamp(-MOST, MOST),
    )
    squares = torch.stack([value.flatten(1).square().sum(1) for value in gradients.values()])
    # A gradient of zero has no direction to be clipped in: its factor is 1.
    norm = squares.sum(0).sqrt().clamp(min=torch.finfo(squares.dtype).tiny)
    factor = weight * (clip / norm).clamp(max=1)
    return (losses * weight).sum(), {name: torch.tensordot(factor, value, 1) for name, value in gradients.items()}


def private_step(
    privacy: Privacy, task: Task, module: nn.Module, params: Params, inputs: Tensor, step: Batches
) -> tuple[Tensor, Params]:
    """Loss and noised gradient of one network, or of several if `params` have a dimension for these."""

    def one(params: Params, inputs: Tensor, targets: Tensor, weight: Tensor) -> tuple[Tensor, Params]:
        def network(params: Params, images: Tensor) -> Tensor:
            found: Tensor = torch.func.functional_call(module, params, (images,))
            return found

        return clipped(task, network, params, inputs, targets, weight, privacy.clip)

    several = step.weight.dim() == 2
    work = torch.func.vmap(one, randomness="different") if several else one
    loss, gradients = work(params, inputs, step.targets, step.weight)
    return loss, noised(gradients, step, privacy)


def check_sample_by_sample(module: nn.Module, example: Tensor) -> None:
    """Raises InputError unless torch.func finds the gradients of single samples of this network, and each image's output is
    the same whatever else is in its batch.
    """

    def output(params: Params, image: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(module, params, (image[None],))
        return found.sum()

    params = {name: leaf.detach() for name, leaf in module.named_parameters() if leaf.requires_grad}
    try:
        with seeded(0, example.device):
            torch.func.vmap(torch.func.grad(output), in_dims=(None, 0), randomness="different")(params, example)
    except (RuntimeError, ValueError) as problem:
        raise InputError(
            f"the gradients of single images of this network cannot be found ({str(problem).splitlines()[0]}), expected "
            "layers that treat each image for itself; use GroupNorm in place of batch norm, or train without privacy"
        ) from problem
    if not all(_each_for_itself(module, example, training=training) for training in (False, True)):
        raise InputError(
            "what this network makes of an image depends on the others in its batch, expected layers that treat each image "
            "for itself; use GroupNorm in place of batch norm, or train without privacy"
        )


@torch.no_grad()
def _each_for_itself(module: nn.Module, example: Tensor, *, training: bool) -> bool:
    """Are the outputs of two different images together those of each alone? True where random numbers hide it.

    The second is turned round: it differs from the first where both are alike, and has only values that there are.
    """
    images, before = torch.stack([example[0], example[-1].flip(-1)]), module.training

    def output(batch: Tensor, seed: int) -> Tensor:
        with seeded(seed, example.device):
            found: Tensor = module(batch)
        return found

    module.train(training)
    together, again = output(images, 0), output(images, 1)
    alone = torch.cat([output(image[None], 0) for image in images])
    module.train(before)
    gap, size = (values.nan_to_num(0).abs().max() for values in (together - alone, together))
    return not torch.equal(together, again) or bool(gap <= 0.01 * size)


def noised(gradients: Params, step: Batches, privacy: Privacy) -> Params:
    """With Gaussian noise of standard deviation sigma C / B added, for one client or, with a leading dimension, several."""
    if privacy.noise == 0:
        return gradients
    assert step.keys is not None
    assert step.lot is not None
    leading = step.keys.dim()
    sizes = [value[(0,) * leading].numel() for value in gradients.values()]
    first = next(iter(gradients.values()))
    draws = [
        torch.randn(sum(sizes), generator=torch.Generator().manual_seed(int(each)), dtype=first.dtype)
        for each in step.keys.flatten().tolist()
    ]
    scale = privacy.noise * privacy.clip / step.lot.flatten().to(first.dtype)
    noise = (torch.stack(draws).to(first.device) * scale[:, None]).split(sizes, 1)
    return {
        name: value + part.reshape(value.shape) for (name, value), part in zip(gradients.items(), noise, strict=True)
    }

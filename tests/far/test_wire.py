"""What travels: flat networks, and how large a request is."""

from __future__ import annotations

import torch

from scool_ppl.far.wire import Job, Networks, flat, shaped


def test_networks_travel_as_rows_of_numbers() -> None:
    params = {"weight": torch.randn(3, 2, 4), "bias": torch.randn(3, 2), "scale": torch.randn(3)}
    stack = flat(params | {"scale": params["scale"][:, None]})
    assert stack.shape == (3, 8 + 2 + 1)
    back = shaped(stack, {"weight": torch.Size([2, 4]), "bias": torch.Size([2]), "scale": torch.Size([])})
    assert all(torch.equal(back[name], value) for name, value in params.items())


def test_some_networks_of_a_stack_are_copied_where_they_are_needed() -> None:
    stack = torch.randn(4, 5)
    assert Networks(stack, (0, 1, 2, 3)).picked() is stack
    assert torch.equal(Networks(stack, (2, 0)).picked(), stack[[2, 0]])
    job = Job("losses", {}, {"a": torch.zeros(3, dtype=torch.float64)}, Networks(stack, (2, 0)))
    assert job.bytes == 3 * 8 + 2 * 5 * 4

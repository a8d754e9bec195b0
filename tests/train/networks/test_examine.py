"""What a client's network must be, and what is found out about it by running it once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from scool_ppl.errors import InputError
from scool_ppl.train.networks import MLP
from scool_ppl.train.networks.examine import examine


def test_noise_and_the_widest_layer_are_reported() -> None:
    x = torch.zeros(2, 3)
    quiet = examine(lambda: MLP(3, 2, hidden=(50,)), x, (2,))
    assert quiet[1:] == (False, 50)
    assert examine(lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), x, (2,))[1] is True


def test_the_network_comes_in_its_dtype_and_nobody_elses_noise_moves() -> None:
    before = torch.get_rng_state()
    module, _, _ = examine(lambda: MLP(3, 2), torch.zeros(2, 3, dtype=torch.float64), (2,), torch.float64)
    assert {leaf.dtype for leaf in module.parameters()} == {torch.float64}
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(part._forward_hooks for part in module.modules())


def test_what_cannot_be_a_clients_network_is_refused() -> None:
    x, image = torch.zeros(2, 3), torch.ones(2, 3, 4, 4)
    with pytest.raises(InputError, match=r"'1' is a BatchNorm1d.*GroupNorm"):
        examine(lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), x, (2,))
    tracking = nn.InstanceNorm2d(3, track_running_stats=True)
    with pytest.raises(InputError, match=r"running_mean.*changes in training"):
        examine(lambda: nn.Sequential(tracking, nn.Flatten(), nn.Linear(48, 2)), image, (2,))
    with pytest.raises(InputError, match=r"does not take the federation's inputs of shape \(3,\)"):
        examine(lambda: MLP(4, 2), x, (2,))
    with pytest.raises(InputError, match="one column per class"):
        examine(lambda: MLP(3, 5), x, (2,))
    with pytest.raises(InputError, match="no trainable parameters"):
        examine(nn.Flatten, x, (3,))
    with pytest.raises(InputError, match=r"expected what builds a torch.nn.Module"):
        examine(lambda: torch.relu, x, (2,))  # type: ignore[arg-type,return-value]

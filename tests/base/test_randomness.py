"""Random numbers depend on what they are for, and on nothing that was drawn before."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from scool_ppl.base.randomness import generator, key, seeded
from scool_ppl.errors import InputError

CPU = torch.device("cpu")
PURPOSES = [(), ("a",), ("a", "b"), ("ab",), ("a, b",), ("a", 1), ("a", "1"), ("a1",), (1, "a"), ("a", 1, 1), ("a", 11)]


def test_a_key_is_of_the_seed_and_the_purpose_word_by_word() -> None:
    keys = [key(seed, *purpose) for seed, purpose in itertools.product((0, 1, -1), PURPOSES)]
    assert len(set(keys)) == len(keys)
    assert keys == [key(seed, *purpose) for seed, purpose in itertools.product((0, 1, -1), PURPOSES)]
    assert key(np.int64(3), "a") == key(3, "a")  # type: ignore[arg-type]


def test_keys_are_spread_over_63_bits() -> None:
    keys = np.array([key(seed, "spread") for seed in range(2000)])
    assert keys.min() >= 0
    assert keys.max() < 2**63
    # Every bit is set in half of 2000 keys to within five standard errors.
    bits = (keys[:, None] >> np.arange(63)) & 1
    assert (np.abs(bits.mean(0) - 0.5) < 5 * 0.5 / 2000**0.5).all()


@pytest.mark.parametrize("seed", ["a", 1.5, None])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(InputError, match=r"seed is .*, expected a whole number"):
        key(seed, "a")  # type: ignore[arg-type]


def test_generators_of_one_purpose_draw_the_same_and_leave_the_global_one_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (torch.rand(3, generator=generator(0, *purpose)) for purpose in (("a",), ("a",), ("b",)))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_inside_draws_are_those_of_the_seed_and_outside_as_if_nothing_had_been() -> None:
    before = torch.get_rng_state()
    with seeded(5, CPU):
        found = torch.rand(3)
    assert torch.equal(found, torch.rand(3, generator=torch.Generator().manual_seed(5)))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_error_inside_puts_the_users_generator_back() -> None:
    def draws_and_fails() -> None:
        with seeded(5, CPU):
            torch.rand(3)
            raise ZeroDivisionError

    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        draws_and_fails()
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_the_users_own_generator_goes_on() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        expected = torch.rand(4)
        torch.manual_seed(1)
        with seeded(None, CPU):
            found = torch.rand(2)
        assert torch.equal(torch.cat([found, torch.rand(2)]), expected)

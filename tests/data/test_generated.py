"""Federations that make their own data: the same for the same generator, and what they promise."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch

from scool_ppl.data.federation import Federation
from scool_ppl.data.generated import ALPHABET, GENERATED, sine, text
from scool_ppl.errors import InputError
from scool_ppl.workbench.settings import Settings
from scool_ppl.workbench.workbench import Workbench


def made(name: str, seed: int = 0, **options: Any) -> Federation:
    return GENERATED[name](torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("name", GENERATED)
def test_the_same_generator_makes_the_same_federation(name: str) -> None:
    before = torch.get_rng_state()
    one, same, other = made(name), made(name), made(name, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.inputs, same.inputs)
    assert torch.equal(one.targets, same.targets)
    assert all(torch.equal(a, b) for a, b in zip(one.train, same.train, strict=True))
    assert not torch.equal(one.targets, other.targets)


@pytest.mark.parametrize("name", GENERATED)
def test_sizes_are_what_was_asked_for(name: str) -> None:
    data = made(name, clients=5, train=10, validation=0.3, test=7)
    assert data.num_clients == 5
    assert data.sizes("train").tolist() == [7] * 5
    assert data.sizes("validation").tolist() == [3] * 5
    assert data.sizes("test").tolist() == [7] * 5
    assert made(name, clients=5, train=1, validation=0.9).sizes("train").tolist() == [1] * 5
    single = made(name, clients=1, **({"groups": 1} if name == "text" else {}))
    assert single.num_clients == 1


@pytest.mark.parametrize("name", GENERATED)
def test_options_have_defaults_and_the_first_line_says_what_it_is(name: str) -> None:
    first, *options = inspect.signature(GENERATED[name]).parameters.values()
    assert first.name == "random"
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in options)
    assert (inspect.getdoc(GENERATED[name]) or "").splitlines()[0].endswith(".")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("sine", {"clients": 0}, "clients=0"),
        ("sine", {"train": 0}, "at least 1 each"),
        ("sine", {"test": 0}, "at least 1 each"),
        ("sine", {"validation": 1.0}, r"in \[0, 1\)"),
        ("sine", {"overlap": 1.0}, "an overlap in"),
        ("sine", {"noise": -1.0}, "noise from 0 up"),
        ("sine", {"sigma": 0.0}, "a positive sigma"),
        ("text", {"groups": 13}, "groups=13, expected 1 to 12"),
        ("text", {"groups": 0}, "groups=0, expected 1 to 12"),
        ("text", {"length": 0}, "length=0"),
    ],
)
def test_impossible_requests_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(name, **options)


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_sine_intervals_follow_one_another_and_cover_a_period(overlap: float) -> None:
    clients = 6
    data = sine(torch.Generator().manual_seed(0), clients=clients, train=400, test=400, overlap=overlap, noise=0.0)
    rows = [torch.cat([data.train[i], data.validation[i], data.test[i]]) for i in range(clients)]
    low = torch.tensor([float(data.inputs[own].min()) for own in rows])
    high = torch.tensor([float(data.inputs[own].max()) for own in rows])
    length = 3 / (1 + (clients - 1) * (1 - overlap))
    starts = -1.5 + length * (1 - overlap) * torch.arange(clients)
    torch.testing.assert_close(low, starts, rtol=0, atol=0.03)
    torch.testing.assert_close(high, starts + length, rtol=0, atol=0.03)
    assert float(high[-1]) <= 1.5
    torch.testing.assert_close(data.targets, torch.sin(2 * math.pi * data.inputs[:, 0] / 3))


def test_sine_noise_has_its_size() -> None:
    data = sine(torch.Generator().manual_seed(0), clients=4, test=2000, noise=0.4)
    noise = data.targets - torch.sin(2 * math.pi * data.inputs[:, 0] / 3)
    assert float(noise.std()) == pytest.approx(0.4, rel=0.05)


def test_linear_networks_reach_least_squares_at_the_default_rate() -> None:
    data = sine(torch.Generator().manual_seed(0), clients=6, train=20)
    settings = Settings(rounds=20, network="linear", weight_decay=0.0, executor="stacked")
    found = Workbench(data, settings, progress=False).fit("local").fit.evaluation.score
    best = torch.zeros(6)
    for client in range(6):
        rows, test = data.train[client], data.test[client]
        x, z = (torch.cat([data.inputs[own], torch.ones(len(own), 1)], 1) for own in (rows, test))
        line = torch.linalg.lstsq(x, data.targets[rows][:, None]).solution
        best[client] = data.task.scores(z @ line, data.targets[test]).mean()
    # What is missing is the slope of the outer clients, which converges slowly.
    assert float((best - found).mean()) == pytest.approx(0, abs=0.03)
    assert (best - found).max() < 0.1


def test_text_targets_are_the_next_characters() -> None:
    data = text(torch.Generator().manual_seed(0), clients=4, groups=2, train=5, test=3, length=6)
    windows = data.inputs.view(4, 8, 6), data.targets.view(4, 8, 6)
    for inputs, targets in zip(*windows, strict=True):
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
        assert torch.equal(inputs.flatten()[1:], targets.flatten()[:-1])  # one window goes on where the last one ended
    assert int(data.targets.max()) < len(ALPHABET) == data.task.width


def test_groups_of_text_write_different_words_of_the_same_characters() -> None:
    data = text(torch.Generator().manual_seed(0), clients=6, groups=3, train=100)
    assert data.groups == (0, 0, 1, 1, 2, 2)
    words = []
    for client in range(6):
        rows = torch.cat([data.train[client], data.validation[client], data.test[client]]).sort().values
        written = "".join(ALPHABET[token] for token in data.targets[rows].flatten().tolist())
        words.append(set(written.split()[1:-1]))
        assert {len(word) for word in words[-1]} <= {4, 6}
    for one in range(6):
        for other in range(one):
            shared = len(words[one] & words[other]) / min(len(words[one]), len(words[other]))
            assert shared > 0.9 if data.groups[one] == data.groups[other] else shared < 0.1

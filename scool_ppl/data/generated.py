"""Federations that make their own data, by name: a noisy sine, and texts in made-up languages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scool_ppl.data.federation import Federation
from scool_ppl.data.recipes.splitting import kept_back, membership
from scool_ppl.errors import InputError
from scool_ppl.tasks.base import Task
from scool_ppl.tasks.categorical import NextToken
from scool_ppl.tasks.regression import Regression

ALPHABET = " aeioubdgklmnprst"
"""The characters of `text`, by token: a space, 5 vowels, 11 consonants."""

_VOWELS, _CONSONANTS = range(1, 6), range(6, len(ALPHABET))
_WORDS, _FOLLOWERS = 16, 3


def sine(
    random: torch.Generator,
    *,
    clients: int = 12,
    train: int = 8,
    validation: float = 0.2,
    test: int = 100,
    noise: float = 0.4,
    overlap: float = 0.0,
    sigma: float = 0.6,
) -> Federation:
    """Every client sees an interval of one period of a noisy sine, which is nearly a line there (FedeRiCo, Fig. 1).

    Inputs x in [-1.5, 1.5], targets sin(2 pi x / 3) + noise N(0, 1). overlap: the share of an interval that the next one
    covers, too. sigma: of the likelihood, wider than the noise: it has room for the bend, and keeps steps of 0.1 of a
    linear network from overshooting, 0.1 (1 + 1.5^2) / sigma^2 < 1. There is no true graph: neighbours help as far as
    their lines agree.
    """
    _check_request(clients, train, validation, test)
    if not (0 <= overlap < 1 and noise >= 0):
        raise InputError(f"overlap={overlap}, noise={noise}: expected an overlap in [0, 1) and noise from 0 up")
    half = 1.5
    length = 2 * half / (1 + (clients - 1) * (1 - overlap))
    start = -half + torch.arange(clients)[:, None] * length * (1 - overlap)
    inputs = start + length * torch.rand(clients, train + test, generator=random)
    targets = torch.sin(math.pi / half * inputs) + noise * torch.randn(inputs.shape, generator=random)
    return _federation(random, inputs[..., None], targets, Regression(sigma), train, validation)


def text(
    random: torch.Generator,
    *,
    clients: int = 12,
    groups: int = 3,
    train: int = 12,
    validation: float = 0.2,
    test: int = 40,
    length: int = 16,
) -> Federation:
    """Every group writes in a language of its own; windows of `length` characters, each with the one that follows.

    A language has words of two or three of its own syllables, and says which words follow which; all languages are
    written with the same characters (`ALPHABET`). train and test count windows; no two share a character to predict.
    """
    _check_request(clients, train, validation, test)
    member = membership("text", clients, groups)
    if length < 1:
        raise InputError(f"text has length={length}, expected windows of at least one character")
    languages = [_language(random) for _ in range(groups)]
    count = train + test
    texts = torch.stack([_written(random, *languages[group], count * length + 1) for group in member])
    inputs, targets = (part.reshape(clients, count, length) for part in (texts[:, :-1], texts[:, 1:]))
    return _federation(random, inputs, targets, NextToken(len(ALPHABET)), train, validation, member)


GENERATED: dict[str, Callable[..., Federation]] = {"sine": sine, "text": text}


def _language(random: torch.Generator) -> tuple[list[list[int]], list[list[int]]]:
    """Words as tokens with a space at the end, and for each word the numbers of those that may follow it."""

    def drawn(count: int, among: Sequence[int]) -> list[int]:
        return [among[i] for i in torch.randint(len(among), (count,), generator=random).tolist()]

    # A consonant has one vowel after it, so a reader who knows the language knows half of the letters.
    syllables = list(zip(_CONSONANTS, drawn(len(_CONSONANTS), _VOWELS), strict=True))
    sizes = drawn(_WORDS, (2, 3))
    words = [[token for i in drawn(size, range(len(syllables))) for token in syllables[i]] + [0] for size in sizes]
    return words, [drawn(_FOLLOWERS, range(_WORDS)) for _ in words]


def _written(random: torch.Generator, words: list[list[int]], followers: list[list[int]], count: int) -> Tensor:
    """`count` tokens of a text: a random walk among the words."""
    shortest = min(map(len, words))
    choices = torch.randint(_FOLLOWERS, (count // shortest + 2,), generator=random).tolist()
    word, tokens = int(torch.randint(_WORDS, (), generator=random)), list[int]()
    for choice in choices:
        tokens += words[word]
        word = followers[word][choice]
    return torch.tensor(tokens[:count])


def _check_request(clients: int, train: int, validation: float, test: int) -> None:
    if clients < 1 or train < 1 or test < 1 or not 0 <= validation < 1:
        raise InputError(
            f"clients={clients}, train={train}, validation={validation}, test={test}: expected at least 1 each, and a "
            "validation part in [0, 1)"
        )


def _federation(
    random: torch.Generator,
    inputs: Tensor,
    targets: Tensor,
    task: Task,
    train: int,
    validation: float,
    groups: tuple[int, ...] | None = None,
) -> Federation:
    """Inputs (K, n, ...) and targets (K, n, ...): a row's first `train` samples, of which a random part validates."""
    clients, count = targets.shape[:2]
    rows = torch.arange(clients * count).view(clients, count)
    order = torch.rand(clients, train, generator=random).argsort(1)
    own, held_back = zip(*(kept_back(mixed, validation) for mixed in rows[:, :train].gather(1, order)), strict=True)
    return Federation(
        inputs=inputs.flatten(0, 1),
        targets=targets.flatten(0, 1),
        train=own,
        validation=held_back,
        test=tuple(rows[:, train:]),
        names=tuple(f"client {client}" for client in range(clients)),
        groups=groups,
        task=task,
    )

"""The errors that users meet: one line saying what was found, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ScoolError(Exception):
    """Base of every error raised on purpose by this library."""


class InputError(ScoolError, ValueError):
    """What the user gave cannot be used; the message names what was found, what was expected and the remedy."""


USER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a user's own Python may raise; an InputError is among them."""


class RunError(ScoolError, RuntimeError):
    """A run failed after it had started; what it wrote before is intact."""


class StoppedError(ScoolError):
    """The user stopped a run; the message says how to go on with it."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones, with the nearest of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else "choose one of them"
    listing = ", ".join(names) if names else "none"
    return InputError(f"unknown {kind} '{name}'; known: {listing}; {hint}")

"""The errors that users meet: one line saying what was found, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

AnyError = TypeVar("AnyError", bound=BaseException)


class ScoolError(Exception):
    """Base of every error raised on purpose by this library."""


class InputError(ScoolError, ValueError):
    """What the user gave cannot be used; the message names what was found, what was expected and the remedy."""

    def __init__(self, message: str = "") -> None:
        own, shapes, _ = message.partition("Trace Shapes:")  # Pyro adds them to what a program raises
        super().__init__(own.rstrip() if shapes else message)


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


class ClientError(ScoolError):
    """Clients that cannot take part in a round, `reasons` name -> why; EM.step begins the round again without them.

    Whatever keeps the contract of clients may raise it: clients on other machines say so who did not answer.
    No RuntimeError: Pyro would make a new one of what a program raises, without the reasons.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = dict(reasons)


def original(error: AnyError) -> AnyError:
    """The error as it was raised: Pyro adds the shapes of a trace to what a program raises."""
    cause = error.__cause__
    return original(cause) if isinstance(cause, type(error)) and str(error).startswith(str(cause)) else error


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones, with the nearest of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else "choose one of them" if names else "leave it out"
    listing = ", ".join(names) if names else "none"
    return InputError(f"unknown {kind} '{name}'; known: {listing}; {hint}")

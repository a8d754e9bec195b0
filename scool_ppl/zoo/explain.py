"""What a model is: its document, its program, the parts it is made of, and what each hyperparameter means."""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from itertools import zip_longest
from typing import Any, NamedTuple

from scool_ppl.base.arguments import in_words
from scool_ppl.base.describe import described
from scool_ppl.base.options import declared
from scool_ppl.base.plugins import user_code
from scool_ppl.data.specs import load_federation
from scool_ppl.deploy.portfolio import Portfolio
from scool_ppl.em.model import CooperationModel
from scool_ppl.zoo.load import hyperparameters, load_model, load_module, model_names

SMALL = "permuted:digits:clients=4,groups=2,train=20,test=20"
"""The federation that a model is built for, to see its parts."""

_NAMES = re.compile(r"`\w+`(?:, `\w+`)*:")
_REFERENCE = re.compile(r"(^|(?<=[.] ))[^.]*\bas in `?\w+`?$")
_OTHERS = re.compile(r"\bas in `?(\w+)`?")


class Hyperparameter(NamedTuple):
    """One argument of `build` that a user may choose; `meaning` is empty where the file does not say."""

    name: str
    kind: str
    default: str
    meaning: str


class Part(NamedTuple):
    """A cooperation model, one of several in a portfolio: its parts by name, and the source of its prior's program."""

    name: str
    parts: dict[str, str]
    program: str


class Explanation(NamedTuple):
    """A model file: what it says of itself, its tracks, and its hyperparameters."""

    document: str
    parts: list[Part]
    hyperparameters: list[Hyperparameter]


def explain(model: str | os.PathLike[str]) -> Explanation:
    """All that a model's file and its parts tell."""
    module = load_module(model)
    small = load_federation(SMALL)
    built = load_model(model, small.num_clients, federation=small)
    tracks = built.tracks if isinstance(built, Portfolio) else {"": built}
    told = meanings(model)
    hints = declared(module.build)
    return Explanation(
        inspect.getdoc(module) or "",
        [_part(name, track) for name, track in tracks.items()],
        [
            Hyperparameter(name, _kind(hints.get(name, Any)), _default(parameter.default), told.get(name, ""))
            for name, parameter in hyperparameters(model).items()
        ],
    )


def meanings(model: str | os.PathLike[str]) -> dict[str, str]:
    """Of each hyperparameter what the docstring of `build` says: "`blocks`: at most this many. `a`, `b`: both ...".

    Names that it leaves out mean what they mean in the models that it names by "as in NAME".
    """
    text = " ".join((inspect.getdoc(load_module(model).build) or "").split())
    known = hyperparameters(model)
    found: dict[str, str] = {}
    for other in _OTHERS.findall(text):
        if other in model_names() and other != os.fspath(model):
            found |= {name: meaning for name, meaning in meanings(other).items() if name in known}
    heads = list(_NAMES.finditer(text))
    for head, following in zip_longest(heads, heads[1:]):
        meaning = text[head.end() : following.start() if following else None].strip(" .;,")
        meaning = _REFERENCE.sub("", meaning).strip(" .")  # "The others as in NAME" is about others
        found |= {name: meaning for name in re.findall(r"\w+", head.group()) if name in known}
    return found


def _part(name: str, model: CooperationModel) -> Part:
    settings = {part: described(getattr(model, part)) for part in model._fields if part != "prior"}
    program = type(model.prior).model
    with user_code("the source of the prior's program cannot be read"):
        source = textwrap.dedent(inspect.getsource(program))
    return Part(name, {"prior": type(model.prior).__name__, **settings}, source.rstrip())


def _kind(hint: Any) -> str:
    """A type as the command line takes it."""
    return "" if hint is Any else in_words(hint)


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "must be given"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)

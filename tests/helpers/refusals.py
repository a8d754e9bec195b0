"""What every refusal of this library must be: an InputError of one line that says what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from scool_ppl.errors import InputError

Case = tuple[Callable[[], Any], str]


def refused(table: Sequence[Case]) -> pytest.MarkDecorator:
    """Runs a test with the `call` and `words` of every case, named by number and words."""
    names = [f"{number}-{words[:40]}" for number, (_, words) in enumerate(table)]
    return pytest.mark.parametrize(("call", "words"), table, ids=names)


def refuses(call: Callable[[], Any], words: str) -> None:
    """The call ends in one line with these words in it."""
    with pytest.raises(InputError) as caught:
        call()
    line = str(caught.value)
    assert words in line
    assert "\n" not in line

"""What private clients can promise, and what is refused in one line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from scool_ppl.errors import InputError
from scool_ppl.train.privacy.promise import Privacy


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": -1.0, "clip": 1.0}, "^noise=-1.0, expected a number of at least 0"),
        ({"noise": math.nan, "clip": 1.0}, "noise=nan"),
        ({"noise": 1.0, "clip": math.inf}, "clip, which is infinite"),
        ({"noise": 1.0, "clip": 0.0}, "clip=0.0, expected a positive number"),
        ({"noise": 1.0, "clip": 1.0, "delta": 1.0}, "delta=1.0, expected a number between 0 and 1"),
        ({"noise": 1.0, "clip": 1.0, "evidence_noise": 1.0}, "evidence_noise=1.0 was given without evidence_clip"),
        ({"noise": 1.0, "clip": 1.0, "evidence_clip": 4.0}, "evidence_clip=4.0 was given without evidence_noise"),
        ({"noise": 1.0, "clip": 1.0, "evidence_noise": -2.0, "evidence_clip": 4.0}, "evidence_noise=-2.0, expected"),
        ({"noise": 1.0, "clip": 1.0, "evidence_noise": 2.0, "evidence_clip": math.inf}, "evidence_clip, which is inf"),
        ({"noise": 1.0, "clip": 1.0, "evidence_noise": 2.0, "evidence_clip": 0.0}, "evidence_clip=0.0, expected a pos"),
    ],
)
def test_what_privacy_refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as found:
        Privacy(**options)
    assert "\n" not in str(found.value)


def test_what_epsilon_is_of() -> None:
    assert Privacy(1.0, 1.0).covers == "training"
    assert Privacy(1.0, 1.0, evidence_noise=0.0, evidence_clip=math.inf).covers == "training and evidence"

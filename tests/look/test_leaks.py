"""What evidence reveals: nothing where it is of networks alone; noised, or as it is, where it is of clients' images."""

from __future__ import annotations

import math
import warnings

import pytest

from scool_ppl.errors import InputError
from scool_ppl.look.evidence import NEEDS, Distance
from scool_ppl.look.leaks import NOISED, PUBLIC, check_leaks, warn_of_leaks
from scool_ppl.train.privacy.promise import Privacy

TRAINING = Privacy(0.0, 1.0)
BOTH = Privacy(0.0, 1.0, evidence_noise=0.0, evidence_clip=math.inf)
EXACT = {"label_entropy", "alignment", "mixed_validation"} | {
    *("image_loss", "unmixed_image_loss", "own_image_loss", "every_image_loss"),
}


def test_every_kind_of_evidence_is_of_one_of_three() -> None:
    assert {*PUBLIC, *NOISED} | EXACT == set(NEEDS)
    assert len(PUBLIC) + len(NOISED) + len(EXACT) == len(NEEDS)


def test_what_networks_have_revealed_is_no_leak_and_all_else_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_leaks([Distance(), *PUBLIC], TRAINING)
        warn_of_leaks([Distance(), *PUBLIC, *NOISED], BOTH)
    for need in (*NOISED, *EXACT):
        with pytest.warns(UserWarning, match=f"evidence is not: {need} are of the clients' own images.*--dp-evidence"):
            warn_of_leaks(["updates", need], TRAINING)
    with pytest.warns(UserWarning, match="losses by which they choose what to deploy"):
        warn_of_leaks([], TRAINING, chosen=True)


def test_where_evidence_is_to_be_noised_what_cannot_be_is_refused() -> None:
    check_leaks([Distance(), *PUBLIC, *NOISED], BOTH)
    check_leaks(NEEDS, TRAINING)
    for need in EXACT:
        with pytest.raises(InputError, match=rf"evidence that the model needs \({need}\), expected mean losses"):
            check_leaks(["loss", need], BOTH)

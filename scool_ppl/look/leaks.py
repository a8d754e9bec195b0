"""What evidence reveals of the images of private clients, kind by kind: nothing new, as much as its noise lets through, or
all that it says.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection

from scool_ppl.look.evidence import Need
from scool_ppl.train.privacy.evidence import refuse
from scool_ppl.train.privacy.promise import Privacy

PUBLIC = ("updates", "round_updates")
"""Functions of networks alone, as distances are: what they reveal, the networks have revealed."""

NOISED = ("loss", "loss_received", "own_loss", "validation_before", "validation_received")
"""Mean losses of networks: with `Privacy(evidence_noise=...)` they are clipped, noised and counted."""


def leaks(needs: Collection[Need], privacy: Privacy) -> list[str]:
    """The needs whose evidence is handed out as it is: of all others either nothing is revealed, or it is accounted for."""
    covered = PUBLIC if privacy.evidence_noise is None else (*PUBLIC, *NOISED)
    return sorted(need for need in needs if isinstance(need, str) and need not in covered)


def check_leaks(needs: Collection[Need], privacy: Privacy) -> None:
    """Raises InputError where evidence is to be noised and some of it cannot be."""
    exact = leaks(needs, privacy)
    if privacy.evidence_noise is not None and exact:
        refuse(f"evidence that the model needs ({', '.join(exact)})")


def warn_of_leaks(needs: Collection[Need], privacy: Privacy, *, chosen: bool = False) -> None:
    """Say that evidence of private training is not private, where clients compute any of it on their images; chosen: also
    what they deploy they choose together, by such.
    """
    exact = [*leaks(needs, privacy), *(["losses by which they choose what to deploy"] * chosen)]
    if exact:
        warnings.warn(
            f"training is private, evidence is not: {', '.join(exact)} are of the clients' own images, "
            "as they are; epsilon is of training alone; --dp-evidence-noise and --dp-evidence-clip noise losses",
            stacklevel=3,
        )

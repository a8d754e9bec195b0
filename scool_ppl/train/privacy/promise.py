"""Privacy: how clients hide single images in what they train and in what they answer.

Training is DP-SGD, see `executors.private`; losses on their own images are clipped and noised, see `privacy.evidence`. What
all of it says of any one image is bounded by (epsilon, delta), see `privacy.account`.

What a model makes of private networks and noised losses is as private as these. Neither training losses and scores that a
run's folder records for the experimenter are covered, nor the number of a client's images, which everybody knows. Noise and
batches are drawn from the seed of the run, so that it can be repeated: who knows the seed can take the noise away, and a
real deployment keeps it secret.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scool_ppl.base.arguments import finite, positive
from scool_ppl.errors import InputError


@dataclass(frozen=True)
class Privacy:
    """How single images are hidden: noise sigma, norm C to which an image's gradient is clipped, and delta.

    evidence_noise, evidence_clip: the same of losses that are handed out; without them losses are handed out as they are,
    and epsilon is of training alone. poisson=False goes through shuffled batches as plain training does, for which no
    epsilon is known.
    """

    noise: float
    clip: float
    delta: float = 1e-5
    poisson: bool = True
    evidence_noise: float | None = None
    evidence_clip: float | None = None

    def __post_init__(self) -> None:
        _check("noise", self.noise, "clip", self.clip, "the norm of an image's gradient at most")
        if not (finite(self.delta) and 0 < self.delta < 1):
            raise InputError(f"delta={self.delta}, expected a number between 0 and 1, below 1 / (images of a client)")
        if (self.evidence_noise is None) != (self.evidence_clip is None):
            given, lacking = ("evidence_noise", "evidence_clip")[:: 1 if self.evidence_clip is None else -1]
            raise InputError(
                f"{given}={getattr(self, given)} was given without {lacking}, expected both; evidence_noise=2 and "
                "evidence_clip=4 is a beginning"
            )
        if self.evidence_noise is not None and self.evidence_clip is not None:
            most = "the loss of an image at most, in nats"
            _check("evidence_noise", self.evidence_noise, "evidence_clip", self.evidence_clip, most)

    @property
    def covers(self) -> str:
        """What epsilon is of."""
        return "training" if self.evidence_noise is None else "training and evidence"


def _check(noise_name: str, noise: float, clip_name: str, clip: float, what: str) -> None:
    """Raises InputError unless these are a noise in multiples of a clip, and that clip."""
    if not finite(noise) or noise < 0:
        raise InputError(f"{noise_name}={noise}, expected a number of at least 0, in multiples of {clip_name}")
    if not (positive(clip) or clip == math.inf):
        raise InputError(f"{clip_name}={clip}, expected a positive number: {what}")
    if noise > 0 and clip == math.inf:
        raise InputError(
            f"{noise_name}={noise} is in multiples of {clip_name}, which is infinite; expected a finite {clip_name}"
        )

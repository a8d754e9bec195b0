"""Rotated images, for clients whose inputs are shifted."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scool_ppl.errors import InputError


def turned(images: Tensor, degrees: float, fill: Tensor) -> Tensor:
    """Square images turned counter-clockwise about their centre; by multiples of 90 degrees without loss.

    images: (N, C, S, S), (N, S, S), or flat (N, S * S). Other angles are interpolated bilinearly; `fill`, see
    `darkest`, is what comes into the corners.
    """
    if degrees % 360 == 0:
        return images
    square = _as_square(images)
    if degrees % 90 == 0:
        return torch.rot90(square, int(degrees // 90), (-2, -1)).reshape(images.shape)
    from torchvision.transforms.v2 import InterpolationMode, functional

    rotated = functional.rotate(square, degrees, interpolation=InterpolationMode.BILINEAR, fill=fill.tolist())
    return rotated.reshape(images.shape)


def darkest(images: Tensor) -> Tensor:
    """(C,) the least value in each channel of images as in `turned`: black, also where channels were standardised."""
    return _as_square(images).amin((0, 2, 3))


def _as_square(images: Tensor) -> Tensor:
    """The images as (N, C, S, S)."""
    side = math.isqrt(images.shape[1]) if images.dim() == 2 else images.shape[-1]
    if images.dim() == 2 and side * side == images.shape[1]:
        return images.reshape(len(images), 1, side, side)
    if images.dim() in (3, 4) and images.shape[-2] == side:
        return images if images.dim() == 4 else images.unsqueeze(1)
    raise InputError(
        f"inputs of shape {tuple(images.shape[1:])} cannot be rotated, expected square images, (C, S, S) or flat of "
        "S x S pixels; crop them, or use another recipe"
    )

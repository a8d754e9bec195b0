"""Rotated images: quarter turns pixel by pixel, other angles against a picture that is known at every point."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scool_ppl.data.recipes.turning import darkest, turned
from scool_ppl.errors import InputError

BLACK = torch.zeros(1)


def test_a_quarter_turn_moves_every_pixel_counter_clockwise() -> None:
    picture = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    expected = {0: [1, 2, 3, 4], 90: [2, 4, 1, 3], 180: [4, 3, 2, 1], 270: [3, 1, 4, 2], 360: [1, 2, 3, 4]}
    for shape in ((1, 1, 2, 2), (1, 2, 2), (1, 4)):
        for degrees, pixels in expected.items():
            found = turned(picture.view(shape), degrees, BLACK)
            assert found.shape == shape
            assert found.flatten().tolist() == pixels


def test_images_and_channels_are_turned_one_by_one() -> None:
    images = torch.arange(2 * 3 * 5 * 5, dtype=torch.float32).view(2, 3, 5, 5)
    for degrees in (90.0, 36.0):
        found = turned(images, degrees, torch.zeros(3))
        for image in range(2):
            for channel in range(3):
                alone = turned(images[image, channel][None], degrees, BLACK)[0]
                torch.testing.assert_close(found[image, channel], alone)


def test_four_quarters_are_the_picture_itself_bit_for_bit() -> None:
    images = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    once = turned(images, 90, BLACK)
    assert not torch.equal(once, images)
    assert torch.equal(turned(turned(turned(once, 90, BLACK), 90, BLACK), 90, BLACK), images)
    assert torch.equal(turned(once, 180, BLACK), turned(images, 270, BLACK))


def plane(side: int, degrees: float) -> tuple[Tensor, Tensor]:
    """The brightness x + 2 y, x to the right and y up from the centre, seen after a turn; and how far pixels are."""
    middle = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    x, y = middle.expand(side, side), -middle[:, None].expand(side, side)
    angle = math.radians(degrees)
    # What is now at (x, y) was at the point turned back by the angle.
    back_x, back_y = math.cos(angle) * x + math.sin(angle) * y, -math.sin(angle) * x + math.cos(angle) * y
    return back_x + 2 * back_y, (x.square() + y.square()).sqrt()


@pytest.mark.parametrize("degrees", [30, 45, 72, 120, 200.5, 90, 180, 270])
def test_any_angle_is_a_rotation_counter_clockwise_about_the_centre(degrees: float) -> None:
    """A plane is what bilinear interpolation has right, so the turned one is known wherever the picture reaches."""
    start, distance = plane(9, 0)
    expected, _ = plane(9, degrees)
    inside = distance <= 4
    found = turned(start[None], degrees, torch.tensor([-99.0]))[0]
    torch.testing.assert_close(found[inside], expected[inside], rtol=0, atol=1e-4)


def test_corners_are_as_dark_as_the_darkest_pixel_of_their_channel() -> None:
    images = torch.ones(4, 2, 8, 8)
    images[1, 0, 3, 3], images[2, 1, 4, 4] = -2.0, -3.0
    assert darkest(images).tolist() == [-2, -3]
    corners = turned(images[:1], 45, darkest(images))[0, :, 0, 0]
    torch.testing.assert_close(corners, torch.tensor([-2.0, -3.0]))
    assert darkest(images[:, 0].flatten(1)).tolist() == [-2]


@pytest.mark.parametrize("shape", [(4, 6), (4, 3, 5), (4, 1, 8, 6), (4, 1, 1, 2, 2), (4,)])
def test_what_is_no_square_image_is_refused(shape: tuple[int, ...]) -> None:
    for call in (lambda: turned(torch.zeros(shape), 90, BLACK), lambda: darkest(torch.zeros(shape))):
        with pytest.raises(InputError, match="cannot be rotated, expected square images") as caught:
            call()
        assert str(shape[1:]) in str(caught.value)

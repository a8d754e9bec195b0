"""What all pictures share: colours and lines that can be told apart, short names, files that are written at once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from scool_ppl.errors import InputError
from scool_ppl.plots.style import (
    PALETTE,
    SHAPES,
    axes_or_new,
    colours,
    ink,
    new_figure,
    save_figure,
    short_names,
    style_of,
    wrapped,
)

# What a reader sees who has no cones for red, or none for green (Machado, Oliveira and Fernandes 2009, severity 1.0).
PROTANOPIA = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
LINES = 7


def linear(colour: str) -> np.ndarray:
    """sRGB without its gamma: amounts of light."""
    values = np.array(to_rgb(colour))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lightness(colour: str) -> float:
    """CIE L*: 0 is black, 100 white."""
    light = float(linear(colour) @ (0.2126, 0.7152, 0.0722))
    return 116 * light ** (1 / 3) - 16 if light > 216 / 24389 else light * 24389 / 27


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b*, in which distances are about those that are seen."""
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(matrix @ light.clip(0, 1) / (0.9505, 1.0, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_colours_of_lines_are_told_apart_with_any_colour_vision() -> None:
    for eye in (np.eye(3), PROTANOPIA, DEUTERANOPIA):
        seen = [lab(eye @ linear(colour)) for colour in PALETTE[:LINES]]
        nearest = min(np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i])
        assert nearest > 10, "2 is just seen"


def test_neighbours_differ_in_grey_and_all_from_the_paper() -> None:
    grey = [lightness(colour) for colour in PALETTE[:LINES]]
    assert min(abs(a - b) for a, b in pairwise(grey)) > 10
    assert max(grey) < 80


def test_neither_colour_nor_dashes_nor_marker_is_needed() -> None:
    first = [style_of(place) for place in range(LINES)]
    for part in zip(*first, strict=True):
        assert len(set(part)) == LINES
    assert len({style_of(place) for place in range(LINES**2)}) == LINES**2, "colours come again with other lines"
    assert len(set(PALETTE)) == len(PALETTE)
    assert len(set(SHAPES)) == len(SHAPES)


def test_a_style_is_what_matplotlib_draws() -> None:
    ax = axes_or_new(None, (3, 2))
    (line,) = ax.plot([0, 1], **style_of(8).options)
    assert (line.get_color(), line.get_marker()) == (style_of(8).colour, style_of(8).marker)
    assert style_of(8).colour == style_of(1).colour
    assert line.get_linestyle() == style_of(8).line != style_of(1).line


def test_names_lose_what_they_share_and_what_is_too_long() -> None:
    assert short_names(["client 1", "client 12"]) == ["1", "12"]
    assert short_names(["alone"]) == ["alone"]
    assert short_names(["site", "site b"]) == ["site", "site b"]
    assert short_names(["client12", "client 1"]) == ["client12", "client 1"]
    assert short_names(["h10", "h11", "h2"]) == ["10", "11", "2"]
    assert short_names(["Klinik Bern", "Klinik Basel"]) == ["Bern", "Basel"], "a word is not cut in two"
    assert short_names(["x", "a name of twenty-one"]) == ["x", "a name…y-one"]
    long = [f"hospital of the long name, ward {ward}" for ward in ("north", "south")] + ["x"]
    assert len(set(short_names(long))) == 3, "what differs at the end differs still"


def test_long_names_are_wrapped_between_words() -> None:
    assert wrapped("University Hospital of North Zurich 1", 14) == "University\nHospital of\nNorth Zurich 1"
    assert wrapped("University Hospital of North Zurich 1", 12) == "University\nHospital of…\nZurich 1"
    assert wrapped("Donaudampfschiffahrt", 10) == "Donaudamp…"
    assert wrapped("Bern", 10) == "Bern"


def test_forty_blocks_have_forty_colours() -> None:
    found = colours(40)
    assert found[: len(PALETTE)] == PALETTE
    seen = [lab(linear(colour)) for colour in found]
    nearest = min(np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i])
    assert nearest > 20, "2 is just seen"
    assert colours(41)[40] == found[0]
    assert [ink(colour) for colour in ("white", "#F0E442", "#0072B2", "black")] == ["black", "black", "white", "white"]


def test_new_figures_are_not_pyplots() -> None:
    figure = new_figure((3, 2))
    assert plt.get_fignums() == []
    assert tuple(figure.get_size_inches()) == (3, 2)
    own = Figure().add_subplot()
    assert axes_or_new(own, (9, 9)) is own


def test_pictures_are_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    for width in (2, 3):
        figure = new_figure((width, 1))
        half = figure.subfigures(1, 2)[0]
        # Whatever is given, the whole figure is written.
        save_figure({2: half, 3: half.add_subplot()}[width], path)
        assert matplotlib.image.imread(path).shape[:2] == (150, 150 * width)
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*expected a folder"):
        save_figure(new_figure((1, 1)), tmp_path / "missing" / "picture.png")
    with pytest.raises(InputError, match=r"ends in '\.doc'"):
        save_figure(new_figure((1, 1)), tmp_path / "picture.doc")
    assert list(tmp_path.iterdir()) == []

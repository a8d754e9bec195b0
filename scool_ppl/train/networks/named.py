"""Reference networks of the clients: plain modules without batch statistics, so that K of them can be stacked."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from scool_ppl.base.files import file_sha256
from scool_ppl.base.options import parse_options
from scool_ppl.base.plugins import load_python, user_code
from scool_ppl.data.federation import Federation
from scool_ppl.errors import InputError, unknown
from scool_ppl.train.networks.lora import PREFIX, check_installed, lora, split

Builder = Callable[..., nn.Module]


class MLP(nn.Sequential):
    """Fully connected layers with ReLU between them; inputs (B, ...) are flattened to (B, inputs)."""

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (64,)) -> None:
        widths = (inputs, *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for width, following in pairwise(widths):
            layers += [nn.Linear(width, following), nn.ReLU()]
        super().__init__(*layers, nn.Linear(widths[-1], classes))


class CNN(nn.Sequential):
    """The two-layer CNN of FedAvg (McMahan et al. 2017): twice conv 5x5, ReLU, pool; then 512 units; `width` scales it.

    Inputs (B, channels, height, width of the image) -> (B, classes).
    """

    def __init__(self, channels: int, image_size: int | tuple[int, int], classes: int, width: float = 1.0) -> None:
        height, breadth = (image_size, image_size) if isinstance(image_size, int) else image_size
        if min(height, breadth) < 4:
            raise InputError(f"CNN: images of {height} x {breadth} are too small, expected at least 4 x 4; use the mlp")
        first, second, units = (_scaled(base, width) for base in (32, 64, 512))
        super().__init__(
            nn.Conv2d(channels, first, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * (height // 4) * (breadth // 4), units),
            nn.ReLU(),
            nn.Linear(units, classes),
        )


class _Residual(nn.Module):
    """x + f(x) for two convolution blocks f."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(_block(channels, channels), _block(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.blocks(x)


class ResNet9(nn.Module):
    """ResNet-9 with GroupNorm in place of BatchNorm: (B, channels, >= 8, >= 8) -> (B, classes); `width` scales it."""

    def __init__(self, channels: int, classes: int, width: float = 1.0) -> None:
        super().__init__()
        a, b, c, d = (_scaled(base, width) for base in (64, 128, 256, 512))
        self.features = nn.Sequential(
            _block(channels, a),
            _block(a, b, pool=True),
            _Residual(b),
            _block(b, c, pool=True),
            _block(c, d, pool=True),
            _Residual(d),
        )
        self.classify = nn.Linear(d, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x).amax((-2, -1)))


class Chars(nn.Module):
    """Next tokens from the last `context` of them: tokens (B, T) -> (B, T, vocabulary), position t sees none after t."""

    def __init__(self, vocabulary: int, context: int = 4, width: float = 1.0) -> None:
        super().__init__()
        if context < 1:
            raise InputError(f"context={context}: expected at least 1 token")
        embedding, units = _scaled(12, width), _scaled(64, width)
        self.context = context
        self.embed = nn.Embedding(vocabulary, embedding)
        self.hide = nn.Linear(context * embedding, units)
        self.predict = nn.Linear(units, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        # Zeros stand for what is before the first token; a window is what a causal convolution sees.
        before = F.pad(self.embed(tokens), (0, 0, self.context - 1, 0))
        windows = before.unfold(-2, self.context, 1).flatten(-2)
        return self.predict(self.hide(windows).relu())


def _scaled(channels: int, width: float) -> int:
    if width <= 0:
        raise InputError(f"width={width}: expected a positive factor, such as 1.0 or 0.5")
    return max(1, round(channels * width))


def _block(channels: int, following: int, pool: bool = False) -> nn.Sequential:
    groups = math.gcd(32, following)
    layers = [nn.Conv2d(channels, following, 3, padding=1, bias=False), nn.GroupNorm(groups, following), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


def _image_shape(name: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise InputError(
            f"network '{name}' got inputs of shape {shape}, expected (channels, height, width) of at least "
            f"{smallest} x {smallest}; use network 'mlp'"
        )
    return shape[0], shape[1], shape[2]


def _mlp(shape: tuple[int, ...], classes: int, *, hidden: Sequence[int] = (64,)) -> nn.Module:
    return MLP(math.prod(shape), classes, hidden)


def _linear(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return MLP(math.prod(shape), outputs, ())


def _chars(shape: tuple[int, ...], outputs: int, *, context: int = 4, width: float = 1.0) -> nn.Module:
    return Chars(outputs, context, width)


def _cnn(shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> nn.Module:
    channels, height, breadth = _image_shape("cnn", shape, 4)
    return CNN(channels, (height, breadth), classes, width)


def _resnet9(shape: tuple[int, ...], classes: int, *, width: float = 1.0) -> nn.Module:
    return ResNet9(_image_shape("resnet9", shape, 8)[0], classes, width)


NETWORKS: dict[str, Builder] = {
    "linear": _linear,
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet9": _resnet9,
    "chars": _chars,
    PREFIX: lora,
}
"""Builders by name, each called as ``builder(input_shape, outputs, **options)``."""

_SMALLEST = {"cnn": 4, "resnet9": 8}
_OF_TOKENS = ("chars", PREFIX)
_PARAMETERS = "input_shape, outputs"


@dataclass(frozen=True)
class NetworkSpec:
    """What builds a fresh network, as data: a name of `NETWORKS` or the path of a .py file, the shape of one input, outputs
    and options; of a file its SHA-256, too.
    """

    name: str
    input_shape: tuple[int, ...]
    outputs: int
    options: dict[str, Any] = field(default_factory=dict)
    sha256: str | None = None

    @cached_property
    def build(self) -> Builder:
        """The function that is called; a file is run."""
        path = network_path(self.name)
        found: Builder = NETWORKS[self.name] if path is None else load_python(path, "build", _PARAMETERS).build
        return found

    def __call__(self) -> nn.Module:
        path = None if self.name in NETWORKS else network_path(self.name)
        with nullcontext() if path is None else user_code(f"build of '{self.name}' failed", path):
            return self.build(self.input_shape, self.outputs, **self.options)


def network_for(
    input_shape: Sequence[int], outputs: int, name: str = "auto", *, tokens: bool = False, **options: Any
) -> NetworkSpec:
    """What builds a fresh network for inputs of one sample's shape; the last layer has `outputs` units.

    `auto` is `chars` for tokens, the CNN for images, else the MLP. A name that is the path of a .py file is a network of
    the user's own: what its function `build(input_shape, outputs, **options)` returns. `lora:BODY:key=value,...` is a
    pretrained language model with an adapter, see `networks.lora`.
    """
    shape = tuple(int(size) for size in input_shape)
    if name.partition(":")[0] == PREFIX:
        check_installed()
        body, pairs = split(name)
        given = parse_options("option of network 'lora'", pairs, lora, ("input_shape", "outputs", "body"))
        name, options = PREFIX, {**options, **given, **({"body": body} if body else {})}
    if (path := network_path(name)) is not None:
        own = NetworkSpec(name, shape, outputs, options, file_sha256(path))
        _check_options(name, own.build, options)
        return own
    if name == "auto" and tokens:
        name = "chars"
    elif name == "auto":
        name = "cnn" if len(shape) == 3 and min(shape[1:]) >= _SMALLEST["cnn"] else "mlp"
    if name not in NETWORKS:
        raise unknown("network", name, [*NETWORKS, "auto"])
    if tokens != (name in _OF_TOKENS):
        found, expected = ("tokens", " or ".join(_OF_TOKENS)) if tokens else ("numbers", "mlp, or cnn for images")
        raise InputError(f"network '{name}' got {found} as inputs, expected {expected}; choose auto")
    builder = NETWORKS[name]
    _check_options(name, builder, options)
    if name in _SMALLEST:
        _image_shape(name, shape, _SMALLEST[name])
    return NetworkSpec(name, shape, outputs, options)


def network_path(name: str) -> Path | None:
    """The file of a network of the user's own; None for a name of NETWORKS, or `auto`."""
    if not (name.endswith(".py") or os.sep in name) or name.partition(":")[0] == PREFIX:
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(
            f"no network file at '{path}', expected a .py file with `build(input_shape, outputs)`, or one of: "
            f"{', '.join(NETWORKS)}"
        )
    return path


def _check_options(name: str, builder: Callable[..., Any], options: dict[str, Any]) -> None:
    accepted = list(inspect.signature(builder).parameters)[2:]
    for option in options:
        if option not in accepted:
            raise unknown(f"option of network '{name}':", option, accepted)


def network_of(federation: Federation, name: str = "auto", **options: Any) -> NetworkSpec:
    """`network_for` the inputs and the task of a federation."""
    tokens = not federation.inputs.is_floating_point()
    return network_for(federation.inputs.shape[1:], federation.task.width, name, tokens=tokens, **options)

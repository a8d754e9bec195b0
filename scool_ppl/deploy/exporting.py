"""Networks for other programs: a client's network as a file that opens without this library, and what it means as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch

from scool_ppl.base.codec import Row, encode
from scool_ppl.base.describe import versions
from scool_ppl.base.files import replacing
from scool_ppl.deploy.network import ClientNetwork
from scool_ppl.errors import USER_ERRORS, InputError, unknown

INPUTS = "inputs"


class Format(NamedTuple):
    """A kind of file: its ending, and what writes it."""

    ending: str
    write: Callable[[ClientNetwork, Path], None]


def export(
    networks: Iterable[ClientNetwork],
    folder: str | os.PathLike[str],
    format: str,
    done: Callable[[str], None] = lambda file: None,
) -> list[Path]:
    """Write a file for each client, and beside it NAME.json: inputs, labels, preparation, how the candidates are mixed.

    torch and onnx hold a program (B, ...) -> probabilities or means, with the arithmetic of the preparation and the mixing
    of the candidates, for any number of rows; safetensors the parameters alone. Returns the clients' files in their order;
    `done` is told the name of each.
    """
    ending, write = format_named(format)
    out, taken, files = Path(folder), set[str](), []
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder '{out}': {error.strerror}; choose another --out") from error
    for network in networks:
        stem = _stem(network.client, taken)
        files.append(out / f"{stem}{ending}")
        with replacing(files[-1]) as temporary:
            write(network, temporary)
        with replacing(out / f"{stem}.json") as temporary:
            told = {"file": files[-1].name, **description(network, format)}
            temporary.write_text(json.dumps(told, indent=1) + "\n")
        done(files[-1].name)
    return files


def format_named(name: str) -> Format:
    """The kind of file of this name."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    return FORMATS[name]


def _stem(client: str, taken: set[str]) -> str:
    """A name that any file system takes, different for each client."""
    stem = plain = re.sub(r"[^\w.-]+", "_", client).strip(".") or "client"
    number = 1
    while stem.lower() in taken:
        number += 1
        stem = f"{plain}-{number}"
    taken.add(stem.lower())
    return stem


def description(network: ClientNetwork, format: str) -> Row:
    """What a program that runs the network has to know."""
    example, preparation = _example(network), network.preparation
    return {
        "client": network.client,
        "format": format,
        "task": network.task.name,
        "inputs": {
            "name": INPUTS,
            "dtype": str(example.dtype).removeprefix("torch."),
            "shape": ["batch", *network.input_shape],
            "features": list(network.feature_names),
            "scaled by the network": not isinstance(network.prepare, torch.nn.Identity),
        },
        "outputs": {"name": output_name(network), "shape": ["batch", *network.task.output_shape(network.input_shape)]},
        "labels": list(network.labels) or list(range(network.task.num_classes)),
        "relies on": network.relies_on,
        "preparation": encode(preparation, {}, "preparation"),
        "versions": versions(),
    }


def output_name(network: ClientNetwork) -> str:
    """What the output is called in programs."""
    return "probabilities" if network.task.num_classes else "predictions"


def _example(network: ClientNetwork) -> torch.Tensor:
    """Two rows of inputs, of the type that programs take."""
    number = torch.uint8 if network.takes_bytes else network.dtype
    return torch.zeros(2, *network.input_shape, dtype=torch.long if network.tokens else number)


def _safetensors(network: ClientNetwork, path: Path) -> None:
    told = json.dumps(description(network, "safetensors"))
    state = {name: value.contiguous() for name, value in network.state_dict().items()}
    path.write_bytes(safetensors.torch.save(state, {"format": "pt", "scool_ppl": told}))


def _torch(network: ClientNetwork, path: Path) -> None:
    with _quiet("torch"):
        torch.export.save(
            torch.export.export(network, (_example(network),), dynamic_shapes=_any_number_of_rows()), path
        )


def _onnx(network: ClientNetwork, path: Path) -> None:
    for name in ("onnx", "onnxscript"):
        try:
            import_module(name)
        except ImportError as error:
            raise InputError(
                f"--format onnx needs {name}, which cannot be imported ({error}); pip install 'scool_ppl[export]'"
            ) from error
    with _quiet("onnx"):
        made = torch.onnx.export(
            network,
            (_example(network),),
            dynamo=True,
            dynamic_shapes=_any_number_of_rows(),
            input_names=[INPUTS],
            output_names=[output_name(network)],
            verbose=False,
        )
        assert made is not None
        model: Any = made.model_proto
        for key, value in description(network, "onnx").items():
            model.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
        path.write_bytes(model.SerializeToString())


def _any_number_of_rows() -> tuple[dict[int, torch.export.Dim]]:
    return ({0: torch.export.Dim("batch", min=1)},)


@contextlib.contextmanager
def _quiet(format: str) -> Iterator[None]:
    """The exporters print, log and warn; what they raise is one line."""
    logger, said = logging.getLogger("torch"), io.StringIO()
    level = logger.level
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            warnings.simplefilter("ignore")
            logger.setLevel(logging.CRITICAL)
            yield
    except InputError:
        raise
    except USER_ERRORS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"the network cannot be exported as {format} ({reason}); expected one without control flow that reads its "
            "inputs; --format safetensors writes its parameters"
        ) from error
    finally:
        logger.setLevel(level)


FORMATS: dict[str, Format] = {
    "safetensors": Format(".safetensors", _safetensors),
    "torch": Format(".pt2", _torch),
    "onnx": Format(".onnx", _onnx),
}
"""Kinds of files by name."""

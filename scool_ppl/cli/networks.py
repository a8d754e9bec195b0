"""`scool predict` and `scool export`: what the clients of a run deploy, at work here or in other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scool_ppl.base.progress import counted
from scool_ppl.cli.options import DataRoot, Download, Quiet
from scool_ppl.deploy.exporting import FORMATS, format_named
from scool_ppl.deploy.exporting import export as exported
from scool_ppl.errors import InputError
from scool_ppl.runs.folder import Run
from scool_ppl.workbench.predict import TABLES
from scool_ppl.workbench.predict import predict as predicted

Ended = Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run that has ended")]
Chosen = Annotated[list[str] | None, typer.Option("--client", help="only this one; may be given again; default: all")]


def predict(
    run: Ended,
    inputs: Annotated[
        Path | None,
        typer.Argument(
            metavar="[INPUTS]", help=".csv or .parquet, or .npz with `inputs`; default: each client's test images"
        ),
    ] = None,
    client: Chosen = None,
    out: Annotated[
        Path | None, typer.Option(help=".csv or .npz; default: predictions.csv of a table, else predictions.npz")
    ] = None,
    data_root: DataRoot = None,
    download: Download = False,
) -> None:
    """Predict with what the clients of a run deploy.

    INPUTS are as your own files have them: the columns of a table, bytes of images, numbers. A .csv file gets a line for
    each client and input: the predicted label and the probability of each class; an .npz file `names` of clients,
    `predictive` (clients, inputs, classes) probabilities, and `classes`, the most probable ones. The run's folder is all
    that is needed, but for test images.
    """
    table = inputs is not None and inputs.suffix in TABLES
    file = out or Path("predictions.csv" if table else "predictions.npz")
    if inputs is not None and inputs.exists() and file.exists() and file.samefile(inputs):
        raise InputError(
            f"predictions would replace the inputs '{inputs}', expected another file; choose another --out"
        )
    found = predicted(run, inputs, client or (), data_root=data_root, download=download)
    found.save(file)
    several = len(found.names) > 1
    who = f"{len(found.names)} clients" if several else "1 client"
    own = "their own test images" if several else "its own test images"
    typer.echo(f"predictions of {who} for {f'{found.predictive.shape[1]} inputs' if inputs else own} in {file}")


def export(
    run: Ended,
    client: Chosen = None,
    format: Annotated[str, typer.Option(help=f"{', '.join(FORMATS)}")] = "torch",
    out: Annotated[Path | None, typer.Option(help="the folder to write into; default: RUN/exported")] = None,
    quiet: Quiet = False,
) -> None:
    """Write the clients' networks for other programs.

    A file for each client, and beside it NAME.json with labels, features and preparation. torch (.pt2, opened by
    torch.export.load) and onnx are programs that need nothing of this library: they prepare the inputs where that is
    arithmetic, and mix the predictions of the candidates. safetensors has the parameters alone.
    """
    folder = out or run / "exported"
    opened = Run.open(run)
    format_named(format)  # refused before a bar is drawn, as unknown clients are
    networks, count = opened.networks(client or ()), len(client or opened.clients())
    with counted(None if quiet else "export", count) as done:
        exported(networks, folder, format, done)
    typer.echo(f"{count} {'network' if count == 1 else 'networks'} as {format} in {folder}")

"""Every file of models/: short, self-explaining, on the public API, and it learns a graph on a small federation."""

from __future__ import annotations

import ast
import inspect
import math
from pathlib import Path

import pytest
import torch

from scool_ppl import EM, Clients, CooperationModel, Federation, Schedule, load_federation, load_model
from scool_ppl.deploy import Portfolio
from scool_ppl.zoo import load as zoo

FOLDER = Path(__file__).parents[2] / "models"
FILES = sorted(FOLDER.glob("*.py"))
LONGEST = 60
ALLOWED = {"torch", "pyro", "scool_ppl", "typing", "math", "functools"}

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def federation() -> Federation:
    """Two groups of three clients, one client with more images than the others."""
    return load_federation(
        "permuted:digits:clients=6,groups=2,train=24,validation=0.25,test=20,ragged=0.3,order=listed"
    )


def test_every_model_is_covered() -> None:
    """Whatever `scool models` lists is a file of models/, so that the tests of this module run on it."""
    assert FILES
    assert [path.stem for path in FILES] == zoo.model_names()
    assert [path.resolve() for path in FILES] == [zoo.model_path(name).resolve() for name in zoo.model_names()]
    assert not [path for path in FOLDER.rglob("*.py") if path.parent != FOLDER], "a model is one file of models/"


@each_file
def test_a_model_is_one_short_file_that_explains_itself(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    title = (ast.get_docstring(tree) or "").split("\n")[0]
    assert len(title) > 20, "the first line says which method it is"
    assert title.endswith((".", ")", ":"))
    assert text.startswith('"""')
    assert len(text.splitlines()) <= LONGEST
    imported = [
        *(alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names),
        *(node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)),
    ]
    assert {name.split(".")[0] for name in imported} <= ALLOWED


@each_file
def test_build_takes_the_number_of_clients_first(path: Path) -> None:
    build = zoo.load_module(path).build
    parameters = list(inspect.signature(build).parameters.values())
    assert parameters[0].name == "num_clients"
    assert inspect.signature(build).return_annotation in (CooperationModel, Portfolio)
    for parameter in parameters[1:]:
        assert parameter.annotation is not inspect.Parameter.empty, "the command line needs its type"
        assert parameter.name in zoo.FACTS or parameter.default is not inspect.Parameter.empty


@each_file
def test_a_model_fits(path: Path, federation: Federation) -> None:
    before = torch.get_rng_state()
    model = load_model(path, federation.num_clients, federation=federation)
    clients = Clients(federation, executor="stacked")
    em = EM(model, clients, Schedule(local_epochs=1, warmup_epochs=3), seed=0)
    fit = em.fit(rounds=2, progress=False)
    assert [row["round"] for row in fit.history] == [1, 2]
    for row in fit.history:
        assert math.isfinite(row["elbo"])
        assert math.isfinite(row["loss"])
        assert 0 <= row["accuracy"]["mean"] <= 1
    assert all(bool(value.isfinite().all()) for value in fit.state.params.values())
    weights = fit.graph.dense()
    assert weights.shape == (6, 6)
    assert bool((weights >= 0).all())
    if not em.model.prior.includes_self:
        assert not bool(weights.diagonal().any())
    assert torch.equal(torch.get_rng_state(), before), "the user's random numbers are left alone"

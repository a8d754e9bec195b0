"""Every hyperparameter has a meaning, and what is told of a model is what its file and its parts say."""

from __future__ import annotations

from pathlib import Path

import pytest

from scool_ppl.errors import InputError
from scool_ppl.zoo.explain import Hyperparameter, explain, meanings
from scool_ppl.zoo.load import hyperparameters, model_names

FILE = """
from typing import Literal
from scool_ppl import CooperationModel, likelihoods, mixing, priors
import torch

def build(num_clients, first: int = 3, second: Literal["a", "b"] = "a", clip: float | None = None, flag: bool = True):
    \"\"\"`first`, `second`: both of them; `flag`: with `first` inside. {rest}\"\"\"
    graph = priors.Dirac(torch.zeros(num_clients, num_clients))
    return CooperationModel(graph, likelihoods.Ignored(), mixing.MixUpdates())
"""


@pytest.mark.parametrize("model", model_names())
def test_every_hyperparameter_of_every_model_has_a_meaning(model: str) -> None:
    told = meanings(model)
    assert list(hyperparameters(model)) == [name for name in hyperparameters(model) if len(told.get(name, "")) > 5]


def test_a_docstring_is_read_by_its_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE.replace("{rest}", "The others as in scool_sbm."))
    told = meanings(path)
    assert told["first"] == told["second"] == "both of them"
    assert told["flag"] == "with `first` inside"
    assert told["clip"] == meanings("scool_sbm")["clip"]
    assert set(told) == {"first", "second", "flag", "clip"}, "only its own"
    path.write_text(FILE.replace("{rest}", ""))
    assert explain(path).hyperparameters == [
        Hyperparameter("first", "a whole number", "3", "both of them"),
        Hyperparameter("second", "one of a, b", "a", "both of them"),
        Hyperparameter("clip", "a number or none", "none", ""),
        Hyperparameter("flag", "true or false", "true", "with `first` inside"),
    ]


def test_types_that_only_checkers_import_are_no_reason_to_refuse(tmp_path: Path) -> None:
    """As for `load_model`; a default of None is told with its type."""
    head = (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n"
    )
    text = head + FILE.replace("flag: bool = True", "flag: bool = True, of: pandas.Series = None, least: int = None")
    path = tmp_path / "mine.py"
    path.write_text(text)
    kinds = {one.name: one.kind for one in explain(path).hyperparameters}
    assert (kinds["first"], kinds["of"], kinds["least"]) == ("a whole number", "", "a whole number or none")


def test_all_tracks_of_a_portfolio_are_told() -> None:
    found = explain("hedge")
    assert [(part.name, part.parts["prior"]) for part in found.parts] == [
        ("local", "Dirac"),
        ("blocks", "Partition"),
        ("everybody", "Dirac"),
    ]
    assert 'pyro.factor("partition"' in found.parts[1].program
    assert found.document.startswith("Hedge")


def test_a_file_that_cannot_be_built_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def build(num_clients):\n    return 1 / 0\n")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        explain(tmp_path / "mine.py")


PRINTED = {
    "ditto": {"strength": 1.0},
    "fedem": {"components": 3},
    "fedfomo": {"count": 5, "epsilon": 0.3, "decay": 0.05},
    "federico": {"average": 0.6, "count": 3, "epsilon": 0.3},
    "l2c": {"learning_rate": 0.1, "decay": 0.01, "after": 10},
    "meta_l2c": {"learning_rate": 0.1, "decay": 0.01, "after": 10},
    "scool_attention": {"learning_rate": 0.1, "decay": 0.01, "after": 10},
    "scool_mmsbm": {"after": 10},
    "scool_sbm": {"after": 10},
}
"""What the papers print: Ditto, FedEM, FedFomo (appendix), FedeRiCo 5.1, L2C 5.1, SCooL (appendix)."""


@pytest.mark.parametrize("model", model_names())
def test_defaults_that_are_called_printed_are_the_papers(model: str) -> None:
    printed = [name for name, meaning in meanings(model).items() if "(printed)" in meaning]
    assert {name: hyperparameters(model)[name].default for name in printed} == PRINTED.get(model, {})

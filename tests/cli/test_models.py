"""`scool models` lists the models, and explains one: a built-in one, or a user's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from scool_ppl.zoo import load as zoo
from tests.helpers.command import refused, scool

MINE = """
import pyro
import pyro.distributions as dist
from scool_ppl import CooperationModel, GraphPrior, likelihoods, mixing


class Coin(GraphPrior):
    def model(self, evidence):
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(0.3))


def build(num_clients, heads: int = 2):
    return CooperationModel(Coin(num_clients), likelihoods.CrossLoss(), mixing.MixUpdates())
"""


def test_models_are_listed_with_their_hyperparameters() -> None:
    listed = scool("models")
    assert listed.code == 0
    for name in zoo.model_names():
        assert f" {name} " in listed.out
    assert "blocks=8" in listed.out


def test_a_model_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    told = scool("models", "scool_sbm")
    assert told.code == 0, told.err
    assert told.out.startswith("SCooL-SBM: clients form blocks")
    assert "pi_i ~ Dirichlet(alpha)" in told.out, "its equations"
    assert 'pi = pyro.sample("pi", dist.Dirichlet(self.alpha))' in told.out, "its program"
    (line,) = [line for line in told.out.splitlines() if line.strip().startswith("reference ")]
    assert "midpoint, uniform, marginal, none" in line
    assert "has to beat (their code: none" in line


def test_a_file_of_the_users_is_explained_though_it_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    told = scool("models", tmp_path / "mine.py")
    assert told.code == 0, told.err
    assert 'return pyro.sample("Y", dist.Bernoulli(0.3))' in told.out
    (line,) = [line for line in told.out.splitlines() if line.strip().startswith("heads ")]
    assert line.split() == ["heads", "2", "a", "whole", "number", "-"]
    assert "did you mean 'ring'?" in refused("models", "rnig")

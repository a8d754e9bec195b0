"""Priors that a new user writes with the documents alone: they are checked, and fitted for two rounds, unwarned."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.command import fit, rows, scool
from tests.helpers.pages import ROOT, steps

SHOWN = {
    re.findall(r"class (\w+)\(GraphPrior\)", step.text)[0]: step.text
    for step in steps(ROOT / "models" / "README.md")
    if "(GraphPrior)" in step.text
}
PLACES = '''
import pyro
import pyro.distributions as dist
import torch
from scool_ppl import CooperationModel, GraphPrior, SVIStep, likelihoods, mixing


class Hierarchical(GraphPrior):
    """Regions have centres in the plane, clients lie around them; a layer of the user's own turns the plane."""

    def __init__(self, num_clients):
        super().__init__(num_clients)
        self.turn = torch.nn.Linear(2, 2)
        self.region = torch.eye(2)[torch.arange(num_clients) % 2]

    def model(self, evidence):
        spread = pyro.sample("spread", dist.LogNormal(0.0, 0.5))
        with pyro.plate("regions", 2):
            centre = pyro.sample("centre", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with self.clients:
            x = pyro.sample("x", dist.Normal(self.region @ centre, spread).to_event(1))
        x = self.turn(x)
        away = (self.receiver(x) - self.sender(x)).square().sum(-1)
        with self.edges:
            return pyro.sample("Y", dist.Bernoulli(logits=1.0 - away))


def build(num_clients, steps=None):
    e_step = SVIStep(steps=steps or 100)
    return CooperationModel(Hierarchical(num_clients), likelihoods.CrossLoss(), mixing.MixUpdates(), e_step=e_step)
'''
PRIORS = {
    "Nearest": (SHOWN["Nearest"], "k=1"),
    "OneTeacher": (SHOWN["OneTeacher"], None),
    "NearBlocks": (SHOWN["NearBlocks"], "blocks=2"),
    "Popular": (SHOWN["Popular"], None),
    "Hierarchical": (PLACES, "steps=20"),
}


def test_every_prior_that_is_shown_is_fitted() -> None:
    """That of TwoCamps is a trap, and has a test in test_docs.py."""
    assert set(SHOWN) - {"TwoCamps"} <= set(PRIORS)


@pytest.mark.parametrize("name", PRIORS)
def test_it_is_checked_and_fitted(name: str, tmp_path: Path) -> None:
    text, choice = PRIORS[name]
    path = tmp_path / "mine.py"
    path.write_text(text)
    chosen = [] if choice is None else [choice]
    answer = scool("check", path, *chosen)
    assert answer.code == 0, answer.out
    answer = fit(tmp_path / "run", path, *chosen)
    assert answer.err == "", "no warning, and so no program that could not be compiled"
    assert len(rows(tmp_path / "run")) == 2
    with np.load(tmp_path / "run" / "weights.npz") as arrays:
        weights = arrays["weights"][-1]
    assert np.isfinite(weights).all()
    if name == "OneTeacher":
        assert weights.sum(1) == pytest.approx(np.ones(len(weights)))

"""How clients train at the scales: as a paper prints, with learning rates to choose from, by label."""

from __future__ import annotations

import pytest

from scool_ppl.errors import InputError
from scool_ppl.reproduce import scales
from scool_ppl.reproduce.experiment import Method
from scool_ppl.reproduce.scales import as_printed

METHODS = (Method("Ours", "scool_sbm", ({}, {"n_eff": 2.0})), Method("Theirs", "fedfomo", deployed="mixed"))


def test_printed_hyperparameters_replace_candidates_and_are_crossed_with_rates():
    ours, theirs = as_printed(METHODS, {"Theirs": {"count": 10}}, rates=(0.1, 0.2))
    assert ours.candidates == ({"--learning-rate": 0.1}, {"--learning-rate": 0.2})
    assert theirs.candidates == ({"count": 10, "--learning-rate": 0.1}, {"count": 10, "--learning-rate": 0.2})
    assert (theirs.label, theirs.model, theirs.deployed) == ("Theirs", "fedfomo", "mixed")
    assert [method.candidates for method in as_printed(METHODS, {"Ours": {"keep": 3}})] == [({"keep": 3},), ({},)]


def test_what_all_candidates_share_belongs_to_the_row():
    row = Method("Ours", "dpsgd", ({"--private": "head"}, {"--private": "head", "neighbours": 2}))
    assert as_printed([row], {}) == (row._replace(candidates=({"--private": "head"},)),)
    (printed,) = as_printed([row], {"Ours": {"neighbours": 4}}, rates=(0.1,))
    assert printed.candidates == ({"--private": "head", "neighbours": 4, "--learning-rate": 0.1},)


def test_a_label_that_no_method_has_is_refused():
    with pytest.raises(InputError, match="did you mean 'Theirs'"):
        as_printed(METHODS, {"Their": {}})


def test_the_papers_train_for_as_many_steps_as_they_print():
    """SCooL and L2C: 100 rounds of 5 epochs; CoBo: 40,000 steps of 128; FedeRiCo: 150 epochs."""
    assert (scales.PAPER_CNN.rounds, scales.PAPER_CNN.local_epochs, scales.PAPER_CNN.batch_size) == (100, 5, 10)
    assert scales.PAPER_RESNET.rounds * (scales.PAPER_RESNET.local_steps or 0) == 40_000
    assert scales.PAPER_RESNET.batch_size == 128
    assert scales.PAPER_FEDERICO.rounds * scales.PAPER_FEDERICO.local_epochs == 150
    for settings in (scales.SMOKE, scales.SMALL_CNN, scales.SMALL_MLP):
        assert settings.executor != "auto", "the clock must not choose"

"""`scool reproduce`: every experiment runs, tables and pictures are written, documents are renewed, errors are one line."""

from __future__ import annotations

import re
from dataclasses import replace

import matplotlib.image
import pytest

from scool_ppl import load_model
from scool_ppl.cli.main import main
from scool_ppl.deploy import Portfolio
from scool_ppl.infer.estep.natural import NaturalGradient
from scool_ppl.reproduce.catalogue import experiment_names, load_experiment
from tests.helpers.command import scool
from tests.helpers.small import brief


def hasty(*names, **choices):
    """A model with the shortest of E-steps: what the experiments come to is not looked at."""
    model = brief(load_model(*names, **choices))
    return model.with_each(shortest) if isinstance(model, Portfolio) else shortest(model)


LARGE = {"default", "hostile", "noised_evidence"}
"""Experiments with tens of columns, which are run at night."""


def shortest(model):
    if not isinstance(model.e_step, NaturalGradient):
        return model
    return model._replace(e_step=replace(model.e_step, sweeps=1, blocks=1))


@pytest.mark.filterwarnings("ignore:training is private, evidence is not")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] if name in LARGE else []) for name in experiment_names()],
)
def test_every_experiment_runs_at_smoke_scale(name, tmp_path, monkeypatch):
    monkeypatch.setattr("scool_ppl.workbench.settings.load_model", hasty)
    answer = scool("reproduce", name, "--out", tmp_path, "--quiet")
    assert answer.code == 0, answer.err
    table = (tmp_path / f"{name}-smoke.md").read_text()
    assert "| method |" in table
    assert "nan" not in table
    pictures = [line for line in answer.out.splitlines() if line.endswith(".png")]
    assert bool(pictures) == (load_experiment(name, "smoke").figures is not None)
    assert sorted(pictures) == sorted(map(str, tmp_path.glob("*.png")))
    for picture in pictures:
        assert matplotlib.image.imread(picture).std() > 0, "a blank picture"


def test_the_section_of_a_document_is_renewed_and_the_rest_stays(tmp_path):
    mine, report = tmp_path / "mine.py", tmp_path / "report.md"
    mine.write_text(
        "from scool_ppl.reproduce import Column, Experiment, Method\n"
        "from scool_ppl.reproduce.scales import SMOKE\n\n\n"
        "def experiment(scale):\n"
        "    column = Column('tiny', 'permuted:digits:clients=4,groups=2,train=20', SMOKE)\n"
        "    return Experiment('Mine', (column,), (Method('Local [only]', 'local'),), seeds=(0,))\n"
    )
    report.write_text("before\n<!-- mine-smoke -->\nold\n<!-- end mine-smoke -->\nafter\n")
    with pytest.raises(SystemExit) as end:
        main(["reproduce", str(mine), "--out", str(tmp_path / "out"), "--quiet", "--document", str(report)])
    assert end.value.code == 0
    begin, section, rest = re.split(r"<!-- (?:end )?mine-smoke -->", report.read_text())
    assert (begin, rest) == ("before\n", "\nafter\n")
    assert section.strip() == (tmp_path / "out" / "mine-smoke.md").read_text().strip()
    assert "| Local [only] | " in section


def test_an_interrupted_experiment_says_where_its_cells_are(tmp_path, monkeypatch, capsys):
    def stop(cell, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr("scool_ppl.reproduce.grid.run_cell", stop)
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "scool_fig6", "--out", str(tmp_path), "--quiet"])
    assert end.value.code == 130
    assert f"{tmp_path / 'scool_fig6-smoke.json'}, the same command goes on" in capsys.readouterr().err


def test_the_command_lists_experiments_and_refuses_unknown_ones(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["reproduce"])
    listing = capsys.readouterr().out
    assert all(name in listing for name in experiment_names())
    document_without, faulty = tmp_path / "without.md", tmp_path / "faulty.py"
    document_without.write_text("nothing")
    faulty.write_text("def experiment(scale):\n    return 1 + 'one'\n")
    for arguments, words in (
        (["scool_tabel2"], "did you mean 'scool_table2'"),
        (["scool_table2", "--scale", "huge"], "unknown scale 'huge'"),
        (["scool_table2", "--jobs", "0"], "jobs is 0"),
        (["scool_table2", "--document", str(document_without)], "has no section"),
        (["scool_table2", "--seeds", "2"], "seeds is 2, expected 1 to 1"),
        (["scool_table2", "--method", "scool_sbm"], "unknown method 'scool_sbm'; known: CoBo,"),
        ([str(faulty)], f"scool: {faulty}, line 2: TypeError"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["reproduce", *arguments, "--out", str(tmp_path / "out")])
        assert end.value.code == 2
        assert words in capsys.readouterr().err

"""`scool federations`: the list of recipes, and what is printed and drawn of one federation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scool_ppl import Federation, load_federation
from scool_ppl.cli.federations import MOST_CLIENTS, summary
from scool_ppl.data.datasets import DATASETS
from scool_ppl.data.files import TABLES
from scool_ppl.data.generated import GENERATED
from scool_ppl.data.own import READERS
from scool_ppl.data.recipes import RECIPES
from tests.helpers.command import contents, refused, scool
from tests.helpers.hospitals import write_hospitals


def test_recipes_datasets_and_readers_are_listed() -> None:
    listed = scool("federations")
    assert listed.code == 0
    for name in (*RECIPES, *GENERATED, *DATASETS, *READERS, TABLES):
        assert name in listed.out
    assert "groups=4" in listed.out
    assert "p_i[c]" in listed.out


def test_the_summary_says_what_is_known_of_groups_and_truth() -> None:
    targets, owner = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1]), torch.arange(8) // 4
    known = Federation.from_arrays(torch.zeros(8, 3), targets, owner, groups=[0, 1], truth=torch.eye(2).roll(1, 0))
    assert "2 clients, 2 groups, 8 rows of shape (3,), true graph with 2 links, symmetric" in summary(known)
    unknown = Federation.from_arrays(torch.zeros(8, 3), targets, owner)
    assert "2 clients, no known groups, 8 rows of shape (3,), no true graph" in summary(unknown)


def test_federations_show_prints_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "mine.png"
    command = ("federations", "show", "shuffled-targets:digits:clients=70,groups=3,base=groups", "--out", picture)
    answer = scool(*command, "--seed=3")
    assert answer.code == 0, answer.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    federation = load_federation("shuffled-targets:digits:clients=70,groups=3,base=groups", seed=3)
    place = federation.names.index("client 7")
    sizes = [str(int(federation.sizes(split)[place])) for split in ("train", "validation", "test")]
    (row,) = (line.replace("│", " ").split() for line in answer.out.splitlines() if "client 7 " in line)
    assert row[2:6] == ["0", *sizes]
    assert "70 clients, 3 groups" in answer.out
    links = int(federation.truth.sum()) if federation.truth is not None else 0
    assert f"true graph with {links} links, not symmetric" in " ".join(answer.out.split())
    assert f"and {70 - MOST_CLIENTS} more" in answer.out
    before = contents(tmp_path)
    assert "--overwrite" in refused(*command)
    assert contents(tmp_path) == before
    small = ("federations", "show", "iid:digits:clients=3", "--out", picture)
    assert scool(*small, "--overwrite").code == 0
    assert contents(tmp_path) != before
    for name, words in (("mine.txt", "ends in '.txt'"), ("none/mine.png", "cannot write")):
        assert words in refused("federations", "show", "iid:digits:clients=3", "--out", tmp_path / name)


def test_federations_show_says_where_there_is_no_truth(tmp_path: Path) -> None:
    answer = scool("federations", "show", "dirichlet:digits", "--clients=4", "--out", tmp_path / "mine.pdf")
    assert answer.code == 0, answer.err
    assert "4 clients, no known groups" in answer.out
    assert "no true graph" in answer.out
    assert "unknown recipe 'grups'" in refused("federations", "show", "grups:digits")
    assert "SPEC" in refused("federations", "show")


def test_tables_are_fitted_resumed_and_predicted_from(tmp_path: Path) -> None:
    folder, run, out = write_hospitals(tmp_path / "hospitals", rows=30), tmp_path / "run", tmp_path / "answers.npz"
    spec = f"tables:{folder}/:target=died,scale=client"
    shown = scool("federations", "show", spec, "--out", tmp_path / "who.png")
    assert shown.code == 0, shown.err
    assert "died (no, yes) from age, sex, ward, platelets, lactate, smoker" in " ".join(shown.out.split())
    assert "hospital 10" in shown.out
    quick = ("--warmup-epochs=1", "--local-epochs=1", "--quiet", "--executor=stacked")
    fitted = scool("fit", "local", "--federation", spec, "--rounds=1", "--out", run, *quick)
    assert fitted.code == 0, fitted.err
    assert scool("resume", run, "--rounds=2", "--quiet").code == 0
    assert scool("predict", run, "--client", "hospital 10", "--out", out).code == 0
    with np.load(out) as answers:
        assert answers["names"].tolist() == ["hospital 10"]
        assert answers["predictive"].shape == (1, 6, 2)
    path = folder / "hospital 2.csv"
    path.write_text(path.read_text().replace("surgery", "medicine", 1))
    assert "has the data SHA-256" in refused("resume", run, "--rounds=3", "--quiet")


@pytest.mark.filterwarnings("default::UserWarning")
def test_what_is_doubtful_is_one_line_each(tmp_path: Path) -> None:
    write_hospitals(tmp_path / "hospitals", rows=30)
    spec = f"tables:{tmp_path}/hospitals:target=age,task=regression,scale=none,without=sex+ward+died+platelets,test=0"
    quick = ("--rounds=2", "--warmup-epochs=1", "--local-epochs=1", "--network=linear", "--learning-rate=1", "--quiet")
    answer = scool("fit", "local", "--federation", spec, "--out", tmp_path / "run", *quick)
    assert answer.code == 0, answer.err
    lines = [line for line in answer.err.splitlines() if line]
    words = ["targets are of size", "no test rows: hospital 1, ", "the training loss of round "]
    assert [line.startswith(f"scool: {word}") for line, word in zip(lines, words, strict=True)] == [True] * 3, lines

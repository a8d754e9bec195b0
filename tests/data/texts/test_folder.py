"""Texts are cut into windows that lose nothing and overlap in nothing that is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scool_ppl import InputError, load_federation
from scool_ppl.data.texts import texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ann.txt").write_text("the cat sat on the mat. " * 10)
    (tmp_path / "bob").mkdir()
    for name, text in (("10.txt", "zwei " * 20), ("9.txt", "eins " * 20)):
        (tmp_path / "bob" / name).write_text(text)
    (tmp_path / "notes.md").write_text("nobody's")
    return tmp_path


def test_every_file_and_every_folder_is_a_client(folder: Path) -> None:
    found = load_federation(f"text:{folder}:length=8,tokens=bytes", seed=3)
    assert found.names == ("ann", "bob")
    assert found.spec == f"text:{folder}:length=8,tokens=bytes"
    written = {"ann": "the cat sat on the mat. " * 10, "bob": "eins " * 20 + "\n" + "zwei " * 20}
    for client, name in enumerate(found.names):
        rows = torch.cat([found.train[client], found.validation[client], found.test[client]]).sort().values
        predicted = bytes(found.targets[rows].flatten().tolist()).decode()
        assert predicted == written[name][1 : 1 + len(predicted)]
        assert len(written[name]) - len(predicted) <= 8
        assert found.inputs[rows][:, 1:].equal(found.targets[rows][:, :-1])
        assert int(found.test[client].min()) > int(found.train[client].max()), "the end of a text tests"
        assert len(found.test[client]) == round(0.2 * len(rows))


def test_clients_come_in_the_order_of_their_numbers(folder: Path) -> None:
    for number in (10, 9):
        (folder / f"bob {number}.txt").write_text("word " * 50)
    assert texts(str(folder), 0, length=8).names == ("ann", "bob", "bob 9", "bob 10")


def test_endings_in_capitals_are_read_and_hidden_files_are_not(folder: Path) -> None:
    before = texts(str(folder), 0, length=8)
    (folder / "ann.txt").rename(folder / "ann.TXT")
    (folder / "bob/10.txt").rename(folder / "bob/10.Txt")
    for hidden in (folder / ".draft.txt", folder / "bob/._1.txt", folder / "bob/.old/0.txt"):
        hidden.parent.mkdir(exist_ok=True)
        hidden.write_text("not meant")
    assert texts(str(folder), 0, length=8).fingerprint == before.fingerprint


def test_the_same_seed_deals_the_same_windows(folder: Path) -> None:
    one, two, other = (texts(str(folder), seed, length=8, windows=10) for seed in (0, 0, 1))
    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert [sum(map(len, parts)) for parts in zip(one.train, one.validation, one.test, strict=True)] == [10, 10]


def test_a_folder_is_told_from_languages_that_are_made_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert load_federation(f"text:{folder.name}").names == ("ann", "bob")
    assert load_federation("text:clients=2,groups=2").num_clients == 2
    assert load_federation("text").num_clients == 12


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("nowhere", "no folder 'nowhere', expected one of .txt files"),
        (".", r"'.' has no .txt files, expected one a client"),
        ("ok:length=100", "the text of 'ann' has 240 tokens, expected 301 at least for windows of 100; lower length="),
        ("ok:length=0", "length=0, windows=None, .* expected at least 1 token"),
        ("ok:windows=2", "windows=2, .* windows of at least 3"),
        ("ok:lenght=4", "unknown option of text 'lenght'.*did you mean 'length'"),
        ("broken", "cannot read 'broken/a.txt' as UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, spec: str, told: str
) -> None:
    place = tmp_path_factory.mktemp("texts")
    monkeypatch.chdir(place)
    folder.rename(place / "ok")
    (place / "broken").mkdir()
    (place / "broken/a.txt").write_bytes(b"\xff\xfe\xff")
    if spec == ".":
        monkeypatch.chdir((place / "empty").mkdir() or place / "empty")
    with pytest.raises(InputError, match=told) as error:
        load_federation(f"text:{spec}")
    assert "\n" not in str(error.value)

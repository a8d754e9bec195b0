"""The command ends in one line and a code that says whose fault it was."""

from __future__ import annotations

from typing import Any

import pytest

from scool_ppl.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "--clients=0"], "clients is 0"),
        (["fit", "local", "--rounds=0"], "rounds=0"),
        (["fit", "scool_sbm", "clip=-1"], "clip=-1.0, expected a positive radius"),
        (["fit", "ditto", "strength=-1"], "strength is -1.0"),
        (["fit", "l2c", "learning_rate=-1", "--warmup-epochs=1"], "Invalid learning rate"),
        (["fit", "latent_space", "spread=0"], "spread is 0.0"),
        (["fit", "--federation=permuted:digits:clients=99999999999999999999"], "clients is '99999999999999999999'"),
        (["check", "nowhere.py"], "no model file at 'nowhere.py'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_command_line_ends_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments + (["--quiet"] if arguments[0] == "fit" else []))
    line = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in line
    assert line.count("\n") == 1


def test_a_run_in_which_all_clients_fail_ends_with_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["fit", "fedavg", "--clients=4", "--learning-rate=1e30", "--warmup-epochs=3", "--quiet"])
    assert ended.value.code == 3
    assert "all clients failed in round 1 (client 1: its training loss is not finite" in capsys.readouterr().err

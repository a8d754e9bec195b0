"""`scool flower`: the app that it writes, and what the owner of a silo's file is told."""

from __future__ import annotations

import ast
import runpy
import tomllib
from pathlib import Path

import pytest

from scool_ppl.workbench.silos import run_config
from tests.helpers.command import refused, scool
from tests.helpers.models import FEDERATION


def test_the_app_is_what_flower_reads(tmp_path: Path) -> None:
    """Flower installs what an app depends on at every run, knows no key that is not there, and reads the files as text."""
    assert scool("flower", "app", tmp_path / "app").code == 0
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == []
    assert project["tool"]["flwr"]["app"]["config"] == run_config()
    for reference in project["tool"]["flwr"]["app"]["components"].values():
        module, _, name = reference.partition(":")
        tree = ast.parse((tmp_path / "app" / f"{module.replace('.', '/')}.py").read_text())
        assert name in [target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]  # type: ignore[attr-defined]
    assert "exists, expected a new folder" in refused("flower", "app", tmp_path / "app")


def test_flower_can_begin_the_app(tmp_path: Path) -> None:
    client, server = (pytest.importorskip(f"flwr.{side}app") for side in ("client", "server"))
    assert scool("flower", "app", tmp_path / "app").code == 0
    kinds = {"client_app": client.ClientApp, "server_app": server.ServerApp}
    for name, kind in kinds.items():
        assert isinstance(runpy.run_path(str(tmp_path / "app" / "scool_app" / f"{name}.py"))["app"], kind)
    config = pytest.importorskip("flwr.common.config")
    told = config.get_fused_config_from_dir(tmp_path / "app", {"clients": 3, "local-steps": 2})
    assert told == {**run_config(), "clients": 3, "local-steps": 2}


def test_the_owner_of_a_file_is_told_whether_it_will_do(tmp_path: Path) -> None:
    FEDERATION.select([1]).save_npz(tmp_path / "mine.npz")
    answer = scool("flower", "check", tmp_path / "mine.npz", "--classes", 12, "--network", "mlp")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert all(line.startswith("pass  ") for line in lines)
    assert f"{int(FEDERATION.sizes()[1])} train" in lines[0]
    assert "of 12 classes" in lines[1]
    for words, line in {
        ("--classes", 3): "targets run from 0 to 9, expected 0 to 2",
        ("--classes", 10, "--task", "regression"): "expected one; leave one out",
        ("--network", "cnn"): "use network 'mlp'",
    }.items():
        assert line in refused("flower", "check", tmp_path / "mine.npz", *words)
    assert "no file" in refused("flower", "check", tmp_path / "yours.npz")

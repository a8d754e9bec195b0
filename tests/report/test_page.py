"""Pages: what is text stays text, what runs is named by its hash, and what is missing is one line."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from scool_ppl.errors import InputError
from scool_ppl.report.page import as_data, network_script, picture, render, script
from tests.helpers.reports import HOSTILE

VALUES = {"words": [], "heads": [], "rows": [], "note": "", "figures": [], "more": [], "asked": [], "versions": {}}


def test_texts_are_escaped() -> None:
    page = render("table.html", [], **{**VALUES, "title": HOSTILE, "words": [HOSTILE], "rows": [[HOSTILE]]})
    assert HOSTILE not in page
    assert page.count("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;") >= 4


def test_data_come_back_and_cannot_end_their_element() -> None:
    value = {"name": HOSTILE, "other": "<!-- & \u2028", "numbers": [1, None, 0.5]}
    text = as_data(value)
    assert json.loads(text) == value
    assert not set("<>&") & set(text)
    with pytest.raises(ValueError, match="JSON"):
        as_data(float("nan"))


def test_scripts_are_named_by_what_a_browser_computes() -> None:
    page = render("table.html", [script("table.js")], **{**VALUES, "title": "t"})
    (between,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(between.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    allowed = policy.group(1).replace("&#39;", "'")
    assert f"script-src 'sha256-{digest}'" in allowed
    assert "unsafe-inline" not in allowed.partition("style-src")[0]


def test_the_library_of_graphs_is_whole_and_of_another_license() -> None:
    text = network_script()
    assert "@license" in text
    assert "Network" in text
    assert "</script" not in text


@pytest.mark.parametrize("missing", ["jinja2", "pyvis"])
def test_what_is_not_installed_is_named_with_its_remedy(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else real(name))
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=r"pip install 'scool_ppl\[report\]'"):
        render("table.html", [network_script()], **{**VALUES, "title": "t"})


def test_a_picture_is_inside_its_address(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"bits")
    kind, _, content = picture(tmp_path / "a.png").partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content) == b"bits"

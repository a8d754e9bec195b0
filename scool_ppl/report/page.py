"""HTML that needs nothing but a browser: templates filled, scripts and pictures inside, and nothing ever loaded."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from scool_ppl.errors import InputError

PAGES = Path(__file__).with_name("page")
NETWORK = Path("lib", "vis-9.1.2", "vis-network.min.js")
"""Where pyvis keeps vis-network."""


def render(template: str, scripts: list[str], **values: Any) -> str:
    """A template filled with values, which are escaped, and scripts, of which the page allows no others to run.

    The policy in its head forbids every request; scripts are named by their hashes, so text that finds its way into the
    page is never run.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise _missing() from error
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"
    environment = Environment(
        loader=FileSystemLoader(PAGES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = (PAGES / "style.css").read_text()
    found: str = environment.get_template(template).render(policy=policy, style=style, scripts=scripts, **values)
    return found


def script(name: str) -> str:
    """A script of this library, as it stands between its tags."""
    return f"\n{(PAGES / name).read_text()}"


def network_script() -> str:
    """vis-network, which draws graphs that can be dragged, as the package pyvis brings it."""
    found = importlib.util.find_spec("pyvis")  # of pyvis only the file is needed: importing it would take seconds
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder) / NETWORK
        if path.is_file():
            return path.read_text(encoding="utf-8").replace("\r\n", "\n").replace("</script", "<\\/script")
    raise _missing()


def as_data(value: Any) -> str:
    """JSON for a <script type="application/json">: no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def picture(path: Path) -> str:
    """A PNG file as an address that holds it."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _missing() -> InputError:
    return InputError("reports need jinja2 and pyvis, which are not installed; pip install 'scool_ppl[report]'")

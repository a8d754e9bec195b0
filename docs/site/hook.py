"""What the site is made of: the repository's documents at their own paths, what they link to, and a page a room.

Relative links are those of the repository, so a page reads the same there and here; nothing is copied by hand.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "Start": (
        *("README.md", "docs/install.md", "docs/first-steps.ipynb"),
        *("docs/your-own-data.md", "docs/what-is-deployed.md", "docs/your-own-network.md"),
    ),
    "Learn": (
        *("docs/your-own-prior.md", "docs/reading-the-graph.md", "docs/comparing-methods.md"),
        *("docs/callbacks.md", "docs/network-scientist.md", "docs/transfer.md", "docs/privacy.md", "docs/parts.md"),
        *("docs/torchrun.md", "docs/silos.md"),
    ),
    "Reference": ("models/README.md", "inference/README.md", "scool_ppl/README.md", "experiments/README.md"),
    "Results": (
        "experiments/RESULTS.md",
        "experiments/methods/RESULTS.md",
        "experiments/robustness/RESULTS.md",
        "experiments/transfer/RESULTS.md",
    ),
    "Project": ("CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md"),
}
"""Sections of the menu and their pages; others of docs/ join "Learn"."""

_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def rooms() -> list[str]:
    """The rooms of the library, as its plan orders them."""
    return re.findall(r"^\| `([a-z]+)/` \|", (ROOT / "scool_ppl" / "README.md").read_text(), flags=re.MULTILINE)


def menu() -> dict[str, list[str]]:
    """Sections -> the pages that there are, API pages last."""
    found = {title: list(paths) for title, paths in PAGES.items()}
    named = {path for paths in found.values() for path in paths}
    own = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
    found["Learn"] += [path for path in own if path not in named]
    return {**found, "API": [f"api/{room}.md" for room in rooms() if room != "cli"]}


def reference(room: str) -> str:
    """The API page of a room, with the parts that it exports as folders."""
    folder = ROOT / "scool_ppl" / room
    parts = [path.parent.name for path in sorted(folder.glob("*/__init__.py")) if "__all__" in path.read_text()]
    more = [f"## scool_ppl.{room}.{part}\n\n::: scool_ppl.{room}.{part}\n" for part in parts]
    return "\n".join([f"# scool_ppl.{room}\n\n::: scool_ppl.{room}\n", *more])


def linked(path: str) -> set[str]:
    """The files of the repository that a document links to, by path."""
    targets = (link for link in _LINK.findall((ROOT / path).read_text()) if "://" not in link)
    found = {os.path.normpath(os.path.join(os.path.dirname(path), target)) for target in targets}
    return {target for target in found if (ROOT / target).is_file()}


def notebook(path: str) -> str:
    """A notebook as Markdown: its texts, its code, and what its cells have printed and drawn."""
    parts = []
    for cell in json.loads((ROOT / path).read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data: dict[str, Any] = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                image = "".join(data["image/png"]).replace("\n", "")
                base64.b64decode(image, validate=True)
                parts.append(f"![output](data:image/png;base64,{image})")
            elif "text/html" in data:
                parts.append(f"<div>{''.join(data['text/html'])}</div>")
            elif text := "".join(data.get("text/plain", "")).rstrip():
                parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts)


def on_config(config: Any) -> Any:
    """The menu."""
    pages = {title: [path.replace(".ipynb", ".md") for path in paths] for title, paths in menu().items()}
    config.nav = [{title: paths} for title, paths in pages.items() if paths]
    return config


def on_files(files: Files, config: Any) -> Files:
    """All pages of the menu, and whatever a page links to, at their paths in the repository."""
    found = [file for file in files if not file.src_uri.endswith((".md", ".ipynb", ".py", ".yml"))]  # the theme's own
    documents = [path for paths in menu().values() for path in paths]
    others: set[str] = set()
    waiting = [path for path in documents if path.endswith(".md") and not path.startswith("api/")]
    while waiting:
        for target in linked(waiting.pop()) - set(documents) - others:
            others.add(target)
            waiting += [target] if target.endswith(".md") else []
    for path in [*documents, *sorted(others)]:
        if path.startswith("api/"):
            found.append(File.generated(config, path, content=reference(Path(path).stem)))
        elif path.endswith(".ipynb"):
            found.append(File.generated(config, path.replace(".ipynb", ".md"), content=notebook(path)))
        else:
            found.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return Files(found)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to a notebook lead to its page."""
    return markdown.replace(".ipynb)", ".md)")

"""A picture of the library as lines in the page: sharp at any size, with text that can be read and searched."""

from __future__ import annotations

import io
import re
from typing import Any

from scool_ppl.plots.history import draw_history


def history_svg(history: list[dict[str, Any]], baseline: float | None) -> str:
    """The curves of a history as an <svg> element without declarations of its own."""
    import matplotlib

    file = io.StringIO()
    figure: Any = draw_history(history, baseline=baseline)
    # Colours of the curves are kept, text has the page's font; equal input gives equal text.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scool", "font.family": "sans-serif"}):
        figure.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Type", "Format"))
        )
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    links = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
    return re.sub(r'<svg[^>]*?(viewBox="[^"]*")[^>]*>', rf"<svg \1 {links}>", text, count=1)

"""Curves as lines of the page."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

from scool_ppl.report.curves import history_svg
from tests.helpers.runs import row


def test_curves_are_lines_with_text_that_can_be_read() -> None:
    text = history_svg([row(1), row(2), row(3)], baseline=0.4)
    assert text.startswith("<svg viewBox=")
    tree = fromstring(text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
    words = {found.text for found in tree.iter() if found.tag.endswith("text")}
    assert {"round", "accuracy", "training loss", "local only"} <= words
    assert "<metadata" not in text
    assert text == history_svg([row(1), row(2), row(3)], baseline=0.4)

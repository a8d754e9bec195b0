"""Report: one HTML file about a run, a comparison or an experiment, which needs nothing but a browser."""

from scool_ppl.report.write import write_report

__all__ = ["write_report"]

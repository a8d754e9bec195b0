"""Cli: the `scool` command, a thin layer over the library."""

from scool_ppl.cli.main import main

__all__ = ["main"]

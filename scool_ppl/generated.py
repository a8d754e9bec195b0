"""Federations that make their own data, by name."""

from __future__ import annotations

from collections.abc import Callable

from scool_ppl.federation import Federation

GENERATED: dict[str, Callable[..., Federation]] = {}

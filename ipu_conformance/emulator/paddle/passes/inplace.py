"""Giving every value a name of its own."""

from __future__ import annotations

from typing import Any, Mapping

from ipu_conformance.emulator.paddle.passes.compilation import Compilation, name_of


def rename(record: Compilation, values: Mapping[str, Any]) -> None:
    """Rename the second and every further version of a variable that several ops write."""
    record.feeds = tuple(name_of(feed) for feed in values.get("feed_list", record.feeds))
    record.fetches = tuple(name_of(fetch) for fetch in values.get("fetch_list", record.fetches))
    record.canonical = record.snapshot()

"""index.html: one file, no network, readable without scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from ipu_conformance.report.verdict import Verdict

if TYPE_CHECKING:
    from ipu_conformance.report.folder import Record


def page(record: Record, verdict: Verdict, report: Mapping[str, Any]) -> str:
    """The page."""
    return verdict.word

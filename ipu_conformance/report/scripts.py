"""What is left of each failure besides its row: what pytest said of it, in a file of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict

from ipu_conformance.report.results import FAILED, Result

if TYPE_CHECKING:
    from ipu_conformance.report.folder import Record


def files(record: Record) -> Dict[str, str]:
    """The files of the folder ``failures`` by name."""
    result = {}
    failed = [each for _, each in sorted(record.results.items()) if each.outcome == FAILED]
    for number, each in enumerate(failed, start=1):
        result[f"{name_of(number, each)}.txt"] = (
            f"{each.case}\n{each.sentence}\nreproduce: {each.command}\n\n{each.details}\n"
        )
    return result


def name_of(number: int, result: Result) -> str:
    """A file's name for a failed case: its number, and the letters of its id."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", result.case.partition("::")[2]).strip("-")
    return f"{number:04d}-{words[:80]}"

"""What became of a case on a wrong device: it passed, it noticed, or the device broke before it could."""

from __future__ import annotations

import enum
from pathlib import Path
from types import TracebackType
from typing import List, Optional

import pytest

from ipu_conformance.check import CheckFailure


class Verdict(str, enum.Enum):
    """What became of a case."""

    PASSED = "passed"
    KILLED = "killed"
    """An assertion of the case failed, or the error that is specified did not come."""
    BROKE = "broke"
    """Something else was raised: the device crashed, and nobody knows what the case would have said."""
    SKIPPED = "skipped"


def of_exception(error: BaseException, suite: Path) -> Verdict:
    """Whether an exception is the case's own assertion: a check's failure, or an assert in a file of the suite."""
    if isinstance(error, CheckFailure):
        return Verdict.KILLED
    parts: Optional[List[BaseException]] = getattr(error, "exceptions", None)
    if parts:
        return min((of_exception(part, suite) for part in parts), key=list(Verdict).index)
    if isinstance(error, pytest.skip.Exception):
        return Verdict.SKIPPED
    raised = _file(error.__traceback__)
    ours = raised is not None and suite in raised.parents
    if isinstance(error, pytest.fail.Exception) or (isinstance(error, AssertionError) and ours):
        return Verdict.KILLED
    return Verdict.BROKE


def _file(traceback: Optional[TracebackType]) -> Optional[Path]:
    """The file in which an exception was raised."""
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return Path(traceback.tb_frame.f_code.co_filename).resolve()

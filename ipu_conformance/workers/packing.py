"""Reports of cases travel from a worker as one string of bytes.

pytest-xdist writes and reads a report field by field, in Python: that takes a worker and the process that gathers
reports longer than a quick case takes, three times a case.
"""

from __future__ import annotations

import marshal
from typing import Any, Dict, Generator

import pytest

PACKED = "$ipu_packed"
TYPE = "$report_type"
"""The field by which pytest knows which reports are its own."""
FORMAT = 2
"""The version of marshal's format that every Python writes and reads alike."""


class Packing:
    """The two hooks that a report passes on its way, as a plug-in of its own."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, Any, Any]:
        """Pack the fields; a report with a value that is no plain data goes as it is, and pytest-xdist decides."""
        fields = yield
        if not isinstance(fields, dict):
            return fields
        try:
            return {TYPE: fields.get(TYPE), PACKED: marshal.dumps(fields, FORMAT)}
        except ValueError:
            return fields

    @pytest.hookimpl(wrapper=True)
    def pytest_report_from_serializable(self, data: Dict[str, Any]) -> Generator[None, Any, Any]:
        """Unpack the fields again, beside those that pytest-xdist has added."""
        if PACKED in data:
            data.update(marshal.loads(data.pop(PACKED)))
        return (yield)

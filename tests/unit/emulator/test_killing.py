"""The published matrix of faults is whole and current."""

from __future__ import annotations

import pytest

from . import killing


@pytest.mark.parametrize("front_end", list(killing.FRONT_ENDS))
def test_every_fault_of_a_front_end_has_a_case(front_end: str) -> None:
    """No fault of the core or of a front end is without a case that kills it, or a reason why none can."""
    assert killing.without_a_case(front_end) == []


def test_the_published_matrix_is_that_of_the_tests() -> None:
    """docs/faults.md is what ``python -m tests.unit.emulator.killing`` prints."""
    assert killing.DOCUMENT.read_text(encoding="utf-8") == killing.document()

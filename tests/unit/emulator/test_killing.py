"""The published matrix of faults is whole and current."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ipu_conformance.emulator import faults

from . import killing


@pytest.mark.parametrize("front_end", list(killing.FRONT_ENDS))
def test_every_fault_of_a_front_end_has_a_case(front_end: str) -> None:
    """No fault of the core or of a front end is without a case that kills it, or a reason why none can."""
    assert killing.without_a_case(front_end) == []


def test_the_published_matrix_is_that_of_the_tests() -> None:
    """docs/faults.md is what ``python -m tests.unit.emulator.killing`` prints."""
    assert killing.DOCUMENT.read_text(encoding="utf-8") == killing.document()


ACTIVE = """
import importlib, sys
from ipu_conformance.emulator import faults, hook
hook.install(sys.argv[1])
importlib.import_module(sys.argv[1])
print(",".join(faults.active))
"""


@pytest.mark.parametrize("front_end", list(killing.FRONT_ENDS))
def test_every_fault_can_be_named_in_the_environment(front_end: str) -> None:
    """Importing a framework turns on the faults that the environment names, its front end's own among them."""
    names = ",".join(fault.name for fault in killing.registered(front_end))
    made = subprocess.run(
        [sys.executable, "-c", ACTIVE, front_end],
        env={**os.environ, faults.ENVIRONMENT: names},
        capture_output=True,
        text=True,
        check=False,
    )

    assert made.stdout.splitlines()[-1:] == [names], made.stderr

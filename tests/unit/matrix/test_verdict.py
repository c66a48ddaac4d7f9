"""A kill is an assertion of the case; whatever else is raised is a device that broke."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipu_conformance.check import CheckFailure
from ipu_conformance.matrix.verdict import Verdict, of_exception

HERE = Path(__file__).resolve().parent


def _raised(error):
    try:
        raise error
    except BaseException as raised:
        return raised


def _outside(error):
    """The same exception, raised in a file that is not the suite's."""
    namespace = {"error": error}
    try:
        exec(compile("raise error", "/elsewhere/device.py", "exec"), namespace)
    except BaseException as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (_raised(CheckFailure("weights differ")), Verdict.KILLED),
        (_outside(CheckFailure("weights differ")), Verdict.KILLED),
        (_raised(AssertionError("no")), Verdict.KILLED),
        (_outside(AssertionError("an internal error of the device")), Verdict.BROKE),
        (_raised(pytest.fail.Exception("DID NOT RAISE")), Verdict.KILLED),
        (_raised(KeyError("conv1")), Verdict.BROKE),
        (_raised(pytest.skip.Exception("no IPU")), Verdict.SKIPPED),
    ],
    ids=["check", "check-elsewhere", "assert", "assert-of-the-device", "fail", "crash", "skip"],
)
def test_only_assertions_of_the_case_are_kills(error, verdict):
    """An assert that the device itself raises is a crash."""
    assert of_exception(error, HERE) is verdict


class _GroupError(Exception):
    def __init__(self, *exceptions):
        super().__init__("several")
        self.exceptions = exceptions


def test_one_assertion_among_several_exceptions_is_a_kill():
    """Hypothesis reports the distinct failures of one case together."""
    crash, assertion = _raised(KeyError("conv1")), _raised(CheckFailure("weights differ"))

    assert of_exception(_GroupError(crash, assertion), HERE) is Verdict.KILLED
    assert of_exception(_GroupError(crash, crash), HERE) is Verdict.BROKE

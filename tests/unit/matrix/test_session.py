"""A case on a wrong device that goes on for ever is stopped, and the device broke."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ipu_conformance.matrix import session
from ipu_conformance.matrix.verdict import Verdict, of_exception


def _never_ending():
    while True:
        pass


def test_a_case_that_never_ends_is_stopped():
    """It is no kill: nobody knows what the case would have said."""
    with pytest.raises(session.TimeUpError, match=r"stopped after 0\.05 s") as info, session.limited(0.05):
        _never_ending()

    assert of_exception(info.value, Path("/suite")) is Verdict.BROKE


def test_the_limit_is_gone_afterwards():
    """Signals are handled as before."""
    before = signal.getsignal(signal.SIGALRM)
    with session.limited():
        assert signal.getsignal(signal.SIGALRM) is not before

    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)

"""The log of the emulated PopTorch."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Iterator

import pytest

from ipu_conformance.emulator.poptorch.options import Options, diagnostics


@pytest.fixture(autouse=True)
def _configured_again() -> Iterator[None]:
    """The log is put back as the environment wants it."""
    yield
    diagnostics.configure_log()


def test_a_line_has_time_source_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    """A line names its time to the millisecond, where it comes from and its level, on standard error by default."""
    diagnostics.configure_log({})
    diagnostics.logger.warning("careful: %d", 3)

    assert re.fullmatch(
        r"\[\d\d:\d\d:\d\d\.\d{3}\] \[poptorch:python\] \[warning\] careful: 3\n", capsys.readouterr().err
    )


def test_configuring_again_writes_a_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    """An earlier destination is given up."""
    diagnostics.configure_log({diagnostics.DESTINATION_VARIABLE: "stdout"})
    diagnostics.configure_log({diagnostics.DESTINATION_VARIABLE: "stdout"})
    diagnostics.logger.error("once")

    assert capsys.readouterr().out.count("once") == 1


def test_a_file_is_made_with_its_first_line(tmp_path: Path) -> None:
    """A file is not made before there is something to write."""
    path = tmp_path / "log"
    diagnostics.configure_log({diagnostics.DESTINATION_VARIABLE: str(path), diagnostics.LEVEL_VARIABLE: "DEBUG"})

    assert not path.exists()

    diagnostics.logger.debug("there")

    assert path.read_text(encoding="utf-8").endswith("[debug] there\n")


def test_a_level_of_the_environment_that_does_not_exist_is_an_error() -> None:
    """A wrong level names the levels."""
    with pytest.raises(ValueError, match="must be one of TRACE_ALL, TRACE, DEBUG"):
        diagnostics.configure_log({diagnostics.LEVEL_VARIABLE: "LOUD"})


@pytest.mark.parametrize(("most", "written"), [(0, 0), (2, 2), (None, 5)])
def test_a_line_is_repeated_so_many_times(most: int, written: int) -> None:
    """A limit counts each text on its own."""
    limit = diagnostics.RepeatLimit(most)
    records = [logging.LogRecord("x", 30, "", 0, text, None, None) for text in ["a"] * 5 + ["b"] * 5]

    assert [sum(limit.filter(record) for record in part) for part in (records[:5], records[5:])] == [written, written]


def test_options_in_use_limit_repeated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines are counted from where a model takes its options; the next model counts anew."""
    diagnostics.configure_log({})
    for _ in range(2):
        Options().maxRepeatLogs(3)._freeze()
        for _ in range(5):
            diagnostics.logger.warning("again")

    assert capsys.readouterr().err.count("again") == 6

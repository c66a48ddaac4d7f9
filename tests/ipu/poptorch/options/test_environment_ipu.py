"""Environment variables, the log, and what a program asks about its machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..on_device import as_model

LOGGED = {"TRACE": 3, "DEBUG": 3, "INFO": 3, "WARN": 2, "ERR": 1, "OFF": 0}
"""How many of an info line, a warning and an error each level lets through."""

THREE_LINES = """
poptorch.logger.info("line one")
poptorch.logger.warning("line two")
poptorch.logger.error("line three")
"""


@pytest.fixture
def level_restored(poptorch: Any) -> Any:
    """The log's level is put back after the case."""
    before = poptorch.logger.level
    yield poptorch
    poptorch.logger.setLevel(before)


@pytest.mark.parametrize(("level", "name"), [*zip(LOGGED, LOGGED), *zip((0, 1, 2, 3, 4, 6), LOGGED)])
def test_a_level_has_a_name_and_a_number(level_restored: Any, level: Any, name: str) -> None:
    """setLogLevel takes either and lets through what is at least as grave: 0 is everything, 6 is nothing."""
    level_restored.setLogLevel(level)

    passed = sum(level_restored.logger.isEnabledFor(number) for number in (20, 30, 40))
    check.equal(actual=passed, expected=LOGGED[name], what=f"how many of info, warning and error pass at level {level}")


@pytest.mark.parametrize("level", ["LOUD", 5, 7, -1])
def test_an_unknown_level_is_an_error(level_restored: Any, level: Any) -> None:
    """A level that does not exist is refused, and the log stays as it was."""
    before = level_restored.logger.level
    with check.raises((ValueError, AssertionError, KeyError), what=f"setLogLevel({level!r})"):
        level_restored.setLogLevel(level)

    check.equal(actual=level_restored.logger.level, expected=before, what="the level after one that does not exist")


def program(poptorch: Any, environment: Dict[str, str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that imports poptorch from where this process has it, and writes three lines to its log."""
    code = f"import importlib\npoptorch = importlib.import_module({poptorch.__name__!r})\n"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-c", code + THREE_LINES],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )


LINES = ("line one", "line two", "line three")
DESTINATIONS = {"poptorch.log": ("INFO", LINES), "stdout": ("ERR", LINES[2:])}
"""The level of the log and its lines by POPTORCH_LOG_DEST."""


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_the_environment_names_the_level_and_the_file(poptorch: Any, tmp_path: Path, destination: str) -> None:
    """POPTORCH_LOG_LEVEL keeps lesser lines out, and with POPTORCH_LOG_DEST the others go there and nowhere else."""
    level, lines = DESTINATIONS[destination]
    run = program(poptorch, {"POPTORCH_LOG_LEVEL": level, "POPTORCH_LOG_DEST": destination}, tmp_path)
    log = tmp_path / "poptorch.log"
    written = {
        "poptorch.log": log.read_text(encoding="utf-8") if log.exists() else "",
        "stdout": run.stdout,
        "stderr": run.stderr,
    }

    for where, text in written.items():
        expected = list(lines) if where == destination else []
        check.equal(actual=[line for line in LINES if line in text], expected=expected, what=f"the lines in {where}")


def test_inside_a_model_the_ipu_path_is_taken(poptorch: Any, torch: Any) -> None:
    """Code in forward sees True when the model is run by poptorch, and False when the host runs it."""
    model = as_model(lambda model, x: x + 1.0 if poptorch.isRunningOnIpu() else x - 1.0)
    x = torch.tensor([2.0, 5.0])

    assert_same(model(x), x - 1.0, "the host's result before the device ran")
    assert_same(poptorch.inferenceModel(model)(x), x + 1.0, "the device's result")
    assert_same(model(x), x - 1.0, "the host's result after the device ran")


def test_hardware_is_there_or_not(poptorch: Any) -> None:
    """ipuHardwareIsAvailable is a bool; where it is False, asking for the version is an error."""
    available = poptorch.ipuHardwareIsAvailable()

    check.instance(actual=available, expected=bool, what="ipuHardwareIsAvailable()")
    if available:
        check.instance(actual=poptorch.ipuHardwareVersion(), expected=int, what="ipuHardwareVersion()")
    else:
        with check.raises((poptorch.Error, AssertionError), what="ipuHardwareVersion() without hardware"):
            poptorch.ipuHardwareVersion()


@pytest.mark.emulator
def test_the_emulator_has_no_hardware(poptorch: Any) -> None:
    """The emulator does not claim to be hardware, for any number of IPUs."""
    for count in (1, 2, 64):
        available = poptorch.ipuHardwareIsAvailable(count)
        check.equal(actual=available, expected=False, what=f"ipuHardwareIsAvailable({count})")


@pytest.mark.parametrize(("variable", "value", "method", "argument"), [
    ("POPTORCH_CACHE_DIR", "/tmp/executables", "enableExecutableCaching", "/tmp/executables"),
    ("POPTORCH_IPU_MODEL", "1", "useIpuModel", True),
])  # fmt: skip
def test_a_variable_is_as_good_as_the_option(
    poptorch: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, method: str, argument: Any
) -> None:
    """Where a variable stands for an option, a program that sets the option and one that does not run alike."""
    monkeypatch.delenv(variable, raising=False)
    by_hand = poptorch.Options()
    getattr(by_hand, method)(argument)
    plain = poptorch.Options().toDict()
    monkeypatch.setenv(variable, value)

    check.equal(actual=poptorch.Options().toDict(), expected=by_hand.toDict(), what=f"toDict() with {variable} set")
    check.differs(actual=poptorch.Options().toDict(), other=plain, what=f"toDict() with {variable} set")


def test_engine_options_ask_for_reports(
    poptorch: Any, torch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """POPLAR_ENGINE_OPTIONS with autoReport.all leaves a report in the folder that it names."""
    asked = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(asked))
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), poptorch.Options())
    model(torch.ones(1, 2))
    model.destroy()

    check.holds(any(path.is_file() for path in tmp_path.rglob("*")), "the folder of autoReport.directory has no file.")

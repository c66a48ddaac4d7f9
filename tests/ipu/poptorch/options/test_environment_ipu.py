"""Environment variables, the log, and what a program asks about its machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ..on_device import as_model

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")
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


def lines_of(logger: Any) -> List[str]:
    """The levels, of an info line, a warning and an error, that get through."""
    return [name for name, number in (("info", 20), ("warning", 30), ("error", 40)) if logger.isEnabledFor(number)]


@pytest.mark.parametrize(("level", "name"), [*((name, name) for name in LEVELS), *zip((0, 1, 2, 3, 4, 6), LEVELS)])
def test_a_level_has_a_name_and_a_number(level_restored: Any, level: Any, name: str) -> None:
    """setLogLevel takes either and lets through what is at least as grave: 0 is everything, 6 is nothing."""
    level_restored.setLogLevel(level)

    assert len(lines_of(level_restored.logger)) == LOGGED[name]


@pytest.mark.parametrize("level", ["LOUD", 5, 7, -1])
def test_an_unknown_level_is_an_error(level_restored: Any, level: Any) -> None:
    """A level that does not exist is refused, and the log stays as it was."""
    before = level_restored.logger.level
    with pytest.raises((ValueError, AssertionError, KeyError)):
        level_restored.setLogLevel(level)

    assert level_restored.logger.level == before


def program(poptorch: Any, text: str, environment: Dict[str, str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that imports poptorch from where this process has it."""
    code = f"import importlib\npoptorch = importlib.import_module({poptorch.__name__!r})\n"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-c", code + text],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_environment_names_the_level_and_the_file(poptorch: Any, tmp_path: Path) -> None:
    """POPTORCH_LOG_LEVEL is the level, and with POPTORCH_LOG_DEST lines go to a file instead of the terminal."""
    variables = {"POPTORCH_LOG_LEVEL": "INFO", "POPTORCH_LOG_DEST": "poptorch.log"}
    run = program(poptorch, THREE_LINES, variables, tmp_path)
    written = (tmp_path / "poptorch.log").read_text(encoding="utf-8")

    assert all(line in written for line in ("line one", "line two", "line three"))
    assert "line" not in run.stdout + run.stderr


def test_lines_can_go_to_standard_output(poptorch: Any, tmp_path: Path) -> None:
    """POPTORCH_LOG_DEST=stdout sends lines there; a level in the environment keeps lesser lines out."""
    run = program(poptorch, THREE_LINES, {"POPTORCH_LOG_LEVEL": "ERR", "POPTORCH_LOG_DEST": "stdout"}, tmp_path)

    assert "line three" in run.stdout
    assert "line two" not in run.stdout
    assert "line" not in run.stderr


# The machine.


def test_inside_a_model_the_ipu_path_is_taken(poptorch: Any, torch: Any) -> None:
    """Code in forward sees True when the model is run by poptorch, and False when the host runs it."""
    model = as_model(lambda model, x: x + 1.0 if poptorch.isRunningOnIpu() else x - 1.0)
    x = torch.tensor([2.0, 5.0])
    assert poptorch.isRunningOnIpu() is False

    assert torch.equal(poptorch.inferenceModel(model)(x), x + 1.0)
    assert torch.equal(model(x), x - 1.0)
    assert poptorch.isRunningOnIpu() is False


def test_hardware_is_there_or_not(poptorch: Any) -> None:
    """ipuHardwareIsAvailable is a bool; where it is False, asking for the version is an error."""
    available = poptorch.ipuHardwareIsAvailable()

    assert isinstance(available, bool)
    if available:
        assert isinstance(poptorch.ipuHardwareVersion(), int)
    else:
        with pytest.raises(poptorch.Error):
            poptorch.ipuHardwareVersion()


@pytest.mark.emulator
def test_the_emulator_has_no_hardware(poptorch: Any) -> None:
    """The emulator does not claim to be hardware, however few IPUs are asked for."""
    assert [poptorch.ipuHardwareIsAvailable(count) for count in (1, 2, 64)] == [False, False, False]


def test_a_launcher_says_which_process_this_is(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh options take rank and size from the variables of Open MPI."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    distributed = poptorch.Options().Distributed

    assert (distributed.processId, distributed.numProcesses) == (2, 3)


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

    assert poptorch.Options().toDict() == by_hand.toDict() != plain


def test_engine_options_ask_for_reports(
    poptorch: Any, torch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """POPLAR_ENGINE_OPTIONS with autoReport.all leaves a report in the folder that it names."""
    monkeypatch.setenv(
        "POPLAR_ENGINE_OPTIONS", json.dumps({"autoReport.all": "true", "autoReport.directory": str(tmp_path)})
    )
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2), poptorch.Options())
    model(torch.ones(1, 2))
    model.destroy()

    assert [path for path in tmp_path.rglob("*") if path.is_file()]

"""Runs a user's program with the vendors' names leading to the emulator.

The process becomes ``python program …``: the same interpreter, the same arguments, and an environment in which every
Python process finds ``startup/sitecustomize.py`` first. So argv, ``__main__``, tracebacks, signals and exit codes are
Python's own, and child processes are emulated too: they inherit the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Dict, List, Mapping, NoReturn, Sequence

from ipu_conformance.emulator import hook
from ipu_conformance.errors import ConformanceError
from ipu_conformance.targets import FRAMEWORKS, Emulator, Framework

STARTUP = Path(__file__).parent / "startup"
COMMANDS = STARTUP / "bin"
"""The commands that emulated Paddle programs start: poprun."""
VARIABLE = "IPU_CONFORMANCE_EMULATE"
"""The frameworks that a process emulates, separated by commas; ``startup/sitecustomize.py`` reads it."""
TARGET_VARIABLE = "IPU_CONFORMANCE_TARGET"
PYTHON_VARIABLE = "IPU_CONFORMANCE_PYTHON"
"""The interpreter that those commands run in."""


class EmulateError(ConformanceError):
    """A program cannot be run on the emulator."""


def frameworks(*, named: bool) -> List[str]:
    """The frameworks that can be emulated here; beside a real SDK only if the emulator was ``named``."""
    names: List[str] = []
    refusals: List[str] = []
    for framework in (FRAMEWORKS[name] for name in hook.FRONT_ENDS):
        if not named:
            _refuse_beside_an_sdk(framework)
        availability = Emulator().probe(framework)
        if availability.usable:
            names.append(framework.name)
        else:
            refusals.append(availability.reason)
    if not names:
        raise EmulateError(f"nothing can be emulated here: {'; '.join(refusals)}")
    return names


def _refuse_beside_an_sdk(framework: Framework) -> None:
    version = framework.find_sdk()
    if version is not None:
        raise EmulateError(
            f"{framework.sdk} {version} is installed, and a real SDK is not shadowed; run the program with python, or "
            "say --ipu-target emulator"
        )


def environment(names: Sequence[str], inherited: Mapping[str, str], *, named: bool) -> Dict[str, str]:
    """The environment in which every Python process emulates the frameworks called ``names``."""
    # An empty entry would stand for the current folder, which Python alone decides about.
    places = [place for place in inherited.get("PYTHONPATH", "").split(os.pathsep) if place != str(STARTUP)]
    path = [str(STARTUP), *places] if any(places) else [str(STARTUP)]
    result = {**inherited, VARIABLE: ",".join(names), "PYTHONPATH": os.pathsep.join(path)}
    if "paddle" in names:
        commands = [place for place in inherited.get("PATH", os.defpath).split(os.pathsep) if place != str(COMMANDS)]
        result["PATH"] = os.pathsep.join([str(COMMANDS), *commands])
        result[PYTHON_VARIABLE] = sys.executable
    if named:
        result[TARGET_VARIABLE] = Emulator.name
    return result


def require_program(arguments: Sequence[str]) -> None:
    """Refuse a script that does not exist; a folder, an archive and ``-`` for standard input are programs too."""
    script = arguments[0]
    if script not in ("-", "-m") and not os.path.exists(script):
        raise EmulateError(f"there is no program {script!r}; name a script, or a module with -m")


def exec_program(arguments: Sequence[str], *, named: bool) -> NoReturn:
    """Replace this process with Python, running a script or ``-m module`` and its arguments on the emulator."""
    require_program(arguments)
    emulated = environment(frameworks(named=named), os.environ, named=named)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *arguments], emulated)

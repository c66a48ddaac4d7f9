"""Report folders: where POPLAR_ENGINE_OPTIONS asks for them, one for each compiled program, with a profile of ours.

A front end describes what it has compiled, and ``write`` decides whether and where a report is written::

    reports.write(reports.Program("train_function", plan, graph=lambda: read(function), optimizer="adam"))
"""

from __future__ import annotations

import datetime
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ipu_conformance.emulator.core import trace
from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.config import environment
from ipu_conformance.emulator.tensorflow.reports import page
from ipu_conformance.emulator.tensorflow.reports import profile as report_profile
from ipu_conformance.ir.graph import Graph

PREFIX = "tf_report"
PROFILE, TRACE, PAGE = "profile.json", "trace.json", "report.html"


@dataclass(frozen=True)
class Program:
    """A compiled program: its name, what it executes, and the forward graph of one micro-batch, loss included."""

    name: str
    plan: Plan
    graph: Optional[Callable[[], Graph]] = None
    """Called only when a report is wanted; None, or an error, leaves the estimates out, with the reason."""
    optimizer: str = "sgd"


def wanted() -> bool:
    """Whether POPLAR_ENGINE_OPTIONS asks for reports now."""
    return environment.report_directory() is not None


def write(program: Program) -> Optional[Path]:
    """Write the report of a program that was compiled, and return its folder; None where none is asked for."""
    directory = environment.report_directory()
    if directory is None:
        return None
    profile = report_profile.profile(program.name, program.plan, program.graph, program.optimizer)
    timeline = report_profile.timeline(program.plan, profile)
    profile.update(_surroundings())
    folder = _new_folder(directory)
    parts = environment.report_parts()
    (folder / PROFILE).write_text(json.dumps(profile, indent=1) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(page.page(profile, timeline), encoding="utf-8")
    if parts.execution:
        trace.write(timeline, folder / TRACE)
    return folder


def _new_folder(directory: Path) -> Path:
    """A folder that did not exist: its name holds the time, so that names sort as the programs were compiled."""
    directory.mkdir(parents=True, exist_ok=True)
    while True:
        now = datetime.datetime.now().strftime("%Y-%m-%dT%H-%M-%S-%f")
        folder = directory / f"{PREFIX}__{now}__{os.getpid()}"
        try:
            folder.mkdir()
        except FileExistsError:
            time.sleep(1e-6)
        else:
            return folder


def _surroundings() -> Dict[str, Any]:
    import tensorflow as tf

    from ipu_conformance import __version__
    from ipu_conformance.emulator.tensorflow.config import system

    return {
        "written": datetime.datetime.now().astimezone().isoformat(),
        "process": os.getpid(),
        "versions": {"ipu_conformance": __version__, "tensorflow": tf.__version__},
        "environment": {
            name: os.environ.get(name, "") for name in (environment.FLAGS_VARIABLE, environment.ENGINE_VARIABLE)
        },
        "devices": list(system.devices()),
        "configuration": system.options().to_dict() if system.configured() else {},
    }

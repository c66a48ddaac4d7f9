"""The program of a case that took its process with it: another process collects the case and writes it.

``python -m ipu_conformance.report.alone.lost CASE TARGET FRAMEWORKS`` prints it; the last is JSON: a target each.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Mapping, Sequence

import pytest

from ipu_conformance.report.alone import programs
from ipu_conformance.report.alone.slices import UnslicedError
from ipu_conformance.suite_files import suite_folder

TIME_LIMIT = 60.0
"""Seconds to collect a case; a target that needs longer to answer leaves the case its command."""
WRITTEN = "ipu-conformance: program\n"
"""What precedes the program: pytest tells what it collects."""


def program(case: str, wanted_target: str, targets: Mapping[str, str]) -> str:
    """The program of a case of the suite; empty where there is none."""
    command = [sys.executable, "-m", __name__, case, wanted_target, json.dumps(dict(targets))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    return answer.stdout.partition(WRITTEN)[2]


class _Writing:
    def __init__(self, targets: Mapping[str, str]) -> None:
        self.targets, self.text = targets, ""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            with contextlib.suppress(UnslicedError):
                self.text = programs.program(item, self.targets)


def main(arguments: Sequence[str]) -> int:
    """Collect the case and print its program; 1 where there is none."""
    case, wanted_target, targets = arguments
    writing = _Writing(json.loads(targets))
    suite = suite_folder()
    words = [str(suite / case), "-c", os.devnull, "--rootdir", str(suite.parent), "--confcutdir", str(suite)]
    words += ["--collect-only", "-q", "-p", "no:cacheprovider", "--ipu-level", "soak", "--ipu-no-preflight"]
    words += ["--ipu-target", wanted_target, "--ipu-frameworks", ",".join(writing.targets)]
    pytest.main(words, plugins=[writing])
    print(WRITTEN + writing.text, end="")
    return 0 if writing.text else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Where the processor time of a run of the suite goes.

    python -m benchmarks.suite_time [--notes FOLDER] [arguments of pytest]

Without arguments that is tests/ipu -m ipu --ipu-level qualify -n 2. The notes of the processes, with the time of every
case, are kept in FOLDER: `ipu-conformance levels update` reads them.

Runs the suite once, and prints the processor time (user and system, of all processes) by framework, by phase and by
file, the slowest cases, and the peak memory of each worker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Sequence

from benchmarks.suite_time.clock import FOLDER
from ipu_conformance.text_table import text_table
from ipu_conformance.workers.scheduling import NEUTRAL, framework_of

DEFAULT = ["tests/ipu", "-m", "ipu", "--ipu-level", "qualify", "-n", "2", "-q"]
PHASES = ("import", "collection", "compiling", "executing", "oracle", "tolerance", "case", "teardown", "other")
SLOWEST, FILES = 30, 30


def report(notes: Sequence[Dict[str, Any]]) -> str:
    """The tables of a run from what its processes left behind."""
    spent: Counter[Any] = Counter()
    seconds: Dict[str, float] = {}
    for process in notes:
        for framework, phase, amount in process["spent"]:
            spent[framework, phase] += amount
        seconds.update(process["cases"])
    total = sum(spent.values())
    by_framework = Counter(framework_of(case) or NEUTRAL for case in seconds)
    by_file: Dict[str, float] = {}
    in_file: Counter[str] = Counter()
    for case, amount in seconds.items():
        name = case.partition("::")[0]
        by_file[name] = by_file.get(name, 0.0) + amount
        in_file[name] += 1
    frameworks = sorted({framework for framework, _ in spent})
    parts = [
        f"{len(seconds)} cases, {total:.1f} s of processor time in {len(notes)} processes",
        _table(
            ["phase", *frameworks, "all", "share"],
            [_row(phase, [spent[framework, phase] for framework in frameworks], total) for phase in PHASES]
            + [_row("all", [sum(spent[name, phase] for phase in PHASES) for name in frameworks], total)]
            + [["cases", *(str(by_framework[name]) for name in frameworks), str(len(seconds)), ""]],
        ),
        _table(
            ["file", "cases", "s", "ms/case"],
            [
                [name, str(in_file[name]), f"{amount:.1f}", f"{1000 * amount / in_file[name]:.0f}"]
                for name, amount in sorted(by_file.items(), key=lambda row: -row[1])[:FILES]
            ],
        ),
        _table(
            ["slowest cases", "s"],
            [[case, f"{amount:.2f}"] for case, amount in sorted(seconds.items(), key=lambda row: -row[1])[:SLOWEST]],
        ),
        _table(
            ["process", "cases", "peak MB"],
            [
                [process["worker"], str(len(process["cases"])), f"{process['peak'] / 2**20:.0f}"]
                for process in sorted(notes, key=lambda process: str(process["worker"]))
            ],
        ),
    ]
    return "\n\n".join(parts)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(text_table([header, *rows], ruled=True))


def _row(name: str, amounts: Sequence[float], total: float) -> List[str]:
    share = sum(amounts) / total if total else 0.0
    return [name, *(f"{amount:.1f}" for amount in amounts), f"{sum(amounts):.1f}", f"{share:.0%}"]


def main(arguments: Sequence[str]) -> int:
    """Run pytest with the clock, then print the tables; pytest's own exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite_time", description=__doc__.splitlines()[0])
    parser.add_argument("--notes", type=Path, help="where the notes of the processes are kept")
    args, for_pytest = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.notes or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pytest", "-p", "benchmarks.suite_time.clock", *(for_pytest or DEFAULT)]
        code = subprocess.run(command, env={**os.environ, FOLDER: str(folder)}, check=False).returncode
        notes = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    print(report(notes))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

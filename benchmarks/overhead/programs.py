"""What whole programs cost, start-up included, against their stock twins: processor time of all their processes.

    python -m benchmarks.overhead.programs [--repeats 3]

The two sides take turns. A program's processes are counted whoever started them: this process adopts those whose parent
has ended, and waits for all of them.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Dict, Sequence, Tuple

from benchmarks.overhead import turns

PR_SET_CHILD_SUBREAPER = 36
HERE = Path(__file__).resolve().parent
EMULATE = (sys.executable, "-m", "ipu_conformance", "emulate")
PROGRAMS: Dict[str, Tuple[Sequence[str], Sequence[str], str]] = {
    "PopTorch, 16 workers load": (
        (*EMULATE, str(HERE / "loading.py")),
        (sys.executable, str(HERE / "loading.py"), "--plain"),
        "aimed at 1.3",
    ),
}
"""By name: the command of the emulated side, that of the plain side, and the limit."""


def spent() -> float:
    """The processor time of all children that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command: Sequence[str]) -> None:
    """Run a program to the end of its last process."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def main() -> None:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="turns that are counted (3)")
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    turns.CLOCKS, turns.chosen = {"children": spent}, "children"
    turns.title("processor time of a program, ms", "emulated", "plain")
    for name, (emulated, plain, limit) in PROGRAMS.items():
        turns.row(name, partial(run, emulated), partial(run, plain), 1, args.repeats, limit)


if __name__ == "__main__":
    main()

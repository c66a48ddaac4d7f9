"""What whole programs cost, start-up included, against their stock twins: processor time of all their processes.

    python -m benchmarks.overhead.programs [--repeats 3] [NAME ...]

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
import tempfile
from functools import partial
from pathlib import Path
from typing import Dict, Sequence, Tuple

from benchmarks.overhead import turns

PR_SET_CHILD_SUBREAPER = 36
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
EMULATE = (sys.executable, "-m", "ipu_conformance", "emulate")
TRAIN = (sys.executable, "-m", "ipu_conformance", "train")
LIMIT = "at most 1.3"
PICTURES = ("--data", "synthetic-cifar", "--epochs", "1", "--train-size", "3200", "--test-size", "400")
PROGRAMS: Dict[str, Tuple[Sequence[str], Sequence[str], str]] = {
    "PopTorch, 16 workers load": (
        (*EMULATE, str(HERE / "loading.py")),
        (sys.executable, str(HERE / "loading.py"), "--plain"),
        LIMIT,
    ),
    **{
        f"LSTM of {length} steps, recomputed": (
            (*EMULATE, str(HERE / "recurring.py"), "--length", length),
            (sys.executable, str(HERE / "recurring.py"), "--length", length, "--plain"),
            LIMIT,
        )
        for length in ("16", "64")
    },
    "estimator trains, evaluates": (
        (*TRAIN, "estimator-cnn", *PICTURES, "--batches-per-step", "100"),
        (*TRAIN, "estimator-cnn", *PICTURES, "--batches-per-step", "100", "--native"),
        LIMIT,
    ),
    **{
        f"{approach} trains, predicts": (
            (*TRAIN, "keras-cifar10", "--approach", approach, *PICTURES, "--batch-size", "64"),
            (*TRAIN, "keras-cifar10", *PICTURES, "--batch-size", "64", "--native"),
            LIMIT,
        )
        for approach in ("estimator", "replica", "pipeline")
    },
}
"""By name: the command of the emulated side, that of the plain side, and the limit."""


def spent() -> float:
    """The processor time of all children that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command: Sequence[str]) -> None:
    """Run a program to the end of its last process, where the files that it leaves do not matter."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        # What a program says on stderr is not looked at: TensorFlow says much.
        silent = subprocess.DEVNULL
        subprocess.run(command, check=True, cwd=folder, env=environment, stdout=silent, stderr=silent)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def main() -> None:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="turns that are counted (3)")
    parser.add_argument("names", nargs="*", metavar="NAME", help="words of the rows that are wanted (all)")
    args = parser.parse_args()
    wanted = [name for name in PROGRAMS if not args.names or any(word in name for word in args.names)]
    if not wanted:
        parser.error(f"no row has any of these words: {' '.join(args.names)}; rows are {', '.join(PROGRAMS)}.")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    turns.CLOCKS, turns.chosen = {"children": spent}, "children"
    turns.title("processor time of a program, ms", "emulated", "plain")
    for name in wanted:
        emulated, plain, limit = PROGRAMS[name]
        turns.row(name, partial(run, emulated), partial(run, plain), 1, args.repeats, limit)


if __name__ == "__main__":
    main()

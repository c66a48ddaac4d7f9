"""What the emulated APIs cost: ratios against the same loop in the plain frameworks, both sides in one run.

    python -m benchmarks.overhead [--framework paddle] [--threads 1] [--repeats 9]

The two sides of a ratio take turns, and the ratio is the median over the turns, so that a busy machine disturbs both
alike. Each side trains the same network on the same batches with the same number of threads. What two replicas gain
needs two idle cores, which no turn-taking can replace: the gain of two threads that only multiply matrices stands
beside it, as the most that the machine gives at the time.

Memory is the growth of a process in which the framework is warm: the peak of its resident memory while it trains a new
model, over what it held before it made the model. An emulated device holds weights of its own besides the host's, as a
real one does; "per replica" leaves the host's weights out and is compared with all that the plain framework needs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from ipu_conformance.targets import FRAMEWORKS

MODULES = {name: f"benchmarks.overhead.{name}" for name in ("poptorch", "paddle", "tensorflow")}
ROOT = Path(__file__).resolve().parents[2]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Libraries read them when they are imported, so that each framework gets a process of its own."""


def main() -> int:
    """Start the benchmark of each framework in turn; the exit code is that of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--framework", action="append", choices=tuple(MODULES), help="by default all that are installed"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads that one operation uses (1)")
    parser.add_argument("--repeats", type=int, default=9, help="turns that are counted (9)")
    parser.add_argument(
        "--clock",
        choices=("wall", "processor"),
        default="wall",
        help="processor time is fair to one IPU on a busy machine, and says nothing of what replicas gain (wall)",
    )
    args = parser.parse_args()
    environment = {**os.environ, **{name: str(args.threads) for name in THREADS}}
    for framework in args.framework or [name for name in MODULES if FRAMEWORKS[name].installed]:
        load = os.getloadavg()[0]
        print(
            f"{framework}: {os.cpu_count()} cores, load {load:.1f}, {args.threads} threads an operation\n", flush=True
        )
        options = ["--threads", str(args.threads), "--repeats", str(args.repeats), "--clock", args.clock]
        command = [sys.executable, "-m", MODULES[framework], *options]
        code = subprocess.run(command, cwd=str(ROOT), env=environment, check=False).returncode
        if code:
            return code
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Kills a qualification at random times, goes on with it, and compares the report with that of an undisturbed run.

    python -m benchmarks.resume FOLDER --kills 20 -- --level smoke --frameworks paddle -n 2

What follows ``--`` are options of ``ipu-conformance qualify``. Every kill is SIGKILL to the command, some before the
first case and some after a number of cases that is drawn, so that all meet a run that is under way.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Sequence

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import verification
from ipu_conformance.report.difference import difference


def start(out: Path, options: Sequence[str], *, resume: bool) -> subprocess.Popen[bytes]:
    """Begin or go on with a qualification, in a process group of its own."""
    command = [sys.executable, "-m", "ipu_conformance", "qualify", "--out", str(out), *options]
    return subprocess.Popen(
        [*command, *(["--resume"] if resume else [])], start_new_session=True, stdout=subprocess.DEVNULL
    )


def disturbed(out: Path, options: Sequence[str], kills: int, lines: int, chance: random.Random) -> int:
    """Kill the run so many times, then let it end; how many kills met a run that was under way."""
    met = 0
    for number in range(kills):
        begin = _lines(out)
        run = start(out, options, resume=(out / "journal.jsonl").exists())
        more = chance.randrange(0, max(2, lines // kills))
        while more and run.poll() is None and _lines(out) < begin + more:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, 0.3 if more else 5.0))
        if run.poll() is None:
            met += 1
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        time.sleep(1.0)  # pytest dies with its parent, its workers with it
        print(f"kill {number + 1}: {_lines(out)} lines", flush=True)
    start(out, options, resume=(out / "journal.jsonl").exists()).wait()
    return met


def _lines(out: Path) -> int:
    path = out / "journal.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main(arguments: List[str]) -> int:
    """Run undisturbed, then disturbed; 0 if both leave the same results and verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    args, options = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    whole, killed = args.folder / "whole", args.folder / "killed"
    start(whole, options, resume=False).wait()
    met = disturbed(killed, options, args.kills, _lines(whole), random.Random(args.seed))
    complaints = verification.complaints(killed)
    reports = [report_folder.read_report(each) for each in (whole, killed)]
    found = difference(*reports)
    print("\n".join([*complaints, *found.lines]))
    same = reports[0]["verdict"] == reports[1]["verdict"] and not found.results_differ and not complaints
    print(f"{met} kills, then {reports[1]['verdict']['word']}: {'the same report' if same else 'another report'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

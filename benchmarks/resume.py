"""Kills a qualification at random times, goes on with it, and compares the report with that of an undisturbed run.

    python -m benchmarks.resume FOLDER --kills 20 -- --level smoke -n 2
    python -m benchmarks.resume FOLDER --troubles -- --level smoke -n 2

What follows ``--`` are options of ``ipu-conformance qualify``. Every kill is SIGKILL to the command, some before the
first case and some after a number of cases that is drawn, so that all meet a run that is under way. With ``--troubles``
the folder is on a disk that is full halfway (a small tmpfs, which takes the right to mount); when there is room again
the run goes on, one case crashes its worker and one hangs in native code. These two fail, and all else is the same.
An undisturbed run that FOLDER has is taken as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import verification
from ipu_conformance.report.difference import difference
from ipu_conformance.report.journal import canonical, read

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("begin", "plan", "case")


def start(
    out: Path, options: Sequence[str], *, resume: bool, troubles: Optional[Dict[str, str]] = None
) -> subprocess.Popen[bytes]:
    """Begin or go on with a qualification, in a process group of its own."""
    command = [sys.executable, "-m", "ipu_conformance", "qualify", "--out", str(out)]
    command += [*(["--resume"] if resume else []), *options]
    command += [*([] if "--" in options else ["--"]), "-p", "benchmarks.troubles"] if troubles else []
    environment = {**os.environ, "TROUBLES": json.dumps(troubles or {})}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, env=environment)


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


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """A disk of so many bytes at a place; what it holds afterwards stays there."""
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    kept = place.with_name(f"{place.name}.kept")
    try:
        yield
    finally:
        shutil.copytree(place, kept)
        subprocess.run(["umount", str(place)], check=True)
        place.rmdir()
        kept.rename(place)


def troubled(place: Path, options: Sequence[str], whole: Path, chance: random.Random) -> Dict[str, str]:
    """Let the disk be full, then a case crash and one hang; what was done to which case."""
    entries = read(whole / "journal.jsonl").entries
    sizes = {kind: sum(len(canonical(each)) + 1 for each in entries if each["kind"] == kind) for kind in KINDS}
    half = sizes["begin"] + sizes["plan"] + sizes["case"] // 2
    out = place / "report"
    with small_disk(place, half):
        code = start(out, options, resume=False).wait()
        journal = read(out / "journal.jsonl")
        done = {entry["case"] for entry in journal.entries if entry["kind"] == "case"}
        print(f"full disk: exit code {code}, {len(done)} cases were finished", flush=True)
        subprocess.run(["mount", "-o", "remount,size=256m", str(place)], check=True)
        cases = report_folder.read_report(whole)["cases"]
        left = sorted(row["case"] for row in cases if row["outcome"] == "passed" and row["case"] not in done)
        chosen = dict(zip(chance.sample(left, 2), ("crash", "hang")))
        code = start(out, options, resume=True, troubles=chosen).wait()
        print(f"room again, a crash and a hang: exit code {code}", flush=True)
    return chosen


def as_expected(whole: Path, out: Path, chosen: Dict[str, str]) -> List[str]:
    """What is not as it should be after the troubles, in sentences."""
    rows = [{row["case"]: row for row in report_folder.read_report(each)["cases"]} for each in (whole, out)]
    found = verification.complaints(out)
    for case, kind in chosen.items():
        if not rows[1][case].get("sentence", "").startswith(f"{kind}: "):
            found.append(f"{case} was to {kind} and says {rows[1][case].get('sentence')!r}")
    others = {*rows[0], *rows[1]} - set(chosen)
    found += [f"{case} differs" for case in sorted(others) if _bare(rows[0].get(case)) != _bare(rows[1].get(case))]
    word = report_folder.read_report(out)["verdict"]["word"]
    return found + ([] if word == "NOT QUALIFIED" else [f"two cases have failed, and the verdict is {word}"])


def _bare(row: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    return {name: value for name, value in (row or {}).items() if name != "seconds"}


def _lines(out: Path) -> int:
    path = out / "journal.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main(arguments: List[str]) -> int:
    """Run undisturbed, then disturbed; 0 if both leave the same results and verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--troubles", action="store_true", help="a full disk, a crash and a hang instead of kills")
    parser.add_argument("--seed", type=int, default=0)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    args, options = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    whole, killed, chance = args.folder / "whole", args.folder / "killed", random.Random(args.seed)
    begin = time.monotonic()
    if not (whole / report_folder.MANIFEST).exists():
        start(whole, options, resume=False).wait()
    if args.troubles:
        chosen = troubled(args.folder / "troubled", options, whole, chance)
        found = as_expected(whole, args.folder / "troubled" / "report", chosen)
        print("\n".join(found or ["a full disk, a crash and a hang: two cases have failed, all else is the same"]))
        return 1 if found else 0
    met = disturbed(killed, options, args.kills, _lines(whole), chance)
    complaints = verification.complaints(killed)
    reports = [report_folder.read_report(each) for each in (whole, killed)]
    between = difference(*reports)
    print("\n".join([*complaints, *between.lines]))
    same = reports[0]["verdict"] == reports[1]["verdict"] and not between.results_differ and not complaints
    words = f"{met} kills in {time.monotonic() - begin:.0f} s, then {reports[1]['verdict']['word']}"
    print(f"{words}: {'the same report' if same else 'another report'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

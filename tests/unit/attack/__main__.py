"""``python -m tests.unit.attack --seconds 1200``: attack every reader, each in a process of its own, for a time.

Prints the inputs tried, what was undeclared, what stalled and the most memory, by reader. An input that did harm is
kept in the folder ``attack-findings``, for the corpus. Exit code 1 says that there was one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional

from ipu_conformance.text_table import text_table
from tests.unit.attack.readers import READERS
from tests.unit.attack.run import Attack, Finding, memory, run

PATIENCE = 30
"""Seconds without an answer after which a reader hangs in native code."""
LEAST = 2.0
"""Seconds that each reader has at least, whatever importing a framework takes."""
STEP = 50
"""Inputs after which a process says how far it is, where nothing is wrong."""


def main() -> int:
    """Attack the readers that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.unit.attack", description="Attack every reader.")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long, all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", type=Path, default=Path("attack-findings"), help="where harmful inputs are kept")
    parser.add_argument("readers", nargs="*", metavar="reader", help=f"some of: {', '.join(READERS)}")
    args = parser.parse_args()
    unknown = [name for name in args.readers if name not in READERS]
    if unknown:
        parser.error(f"there is no reader {unknown[0]!r}; choose from {', '.join(READERS)}")
    names = args.readers or list(READERS)
    begun = time.monotonic()
    rows: List[List[str]] = [["reader", "inputs", "undeclared", "hangs", "over 1 GB", "peak MB"]]
    findings: List[Finding] = []
    totals = [0, 0, 0, 0, 0]
    for place, name in enumerate(names):
        left = args.seconds - (time.monotonic() - begun)
        outcome = Outcome(name, args.seed)
        outcome.attack(time.monotonic() + max(LEAST, left / (len(names) - place)))
        findings += outcome.findings
        numbers = outcome.numbers()
        totals = [sum(pair) for pair in zip(totals[:4], numbers[:4])] + [max(totals[4], numbers[4])]
        rows.append([name, *map(str, numbers)])
        print(f"{name}: {numbers[0]} inputs", file=sys.stderr, flush=True)
    rows.append(["all", *map(str, totals)])
    for line in text_table(rows, ruled=True):
        print(line)
    print(f"{totals[0] / (time.monotonic() - begun):.0f} inputs a second, seed {args.seed}")
    for finding in findings:
        print(f"FOUND: {finding.reader}, input {finding.input}: {finding.what}")
    _keep(findings, args.found, args.seed)
    return int(bool(findings))


class Outcome:
    """What became of the inputs of one reader."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self.tried, self.peak = 0, 0
        self.findings: List[Finding] = []

    def numbers(self) -> List[int]:
        """Inputs, undeclared exceptions and crashes, hangs, inputs over the memory, and the peak in megabytes."""
        said = [finding.what for finding in self.findings]
        hangs = sum(what.startswith(("took", "hung")) and what.endswith(" s") for what in said)
        heavy = sum(what.endswith(" MB") for what in said)
        return [self.tried, len(said) - hangs - heavy, hangs, heavy, self.peak >> 20]

    def attack(self, until: float) -> None:
        """Try inputs until a time; a process that dies or hangs is replaced, past the input that it had."""
        number = 0
        while time.monotonic() < until:
            number = self._attack(number, until - time.monotonic())

    def _attack(self, first: int, seconds: float) -> int:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_child, args=(self.name, self.seed, first, seconds, sender))
        process.start()
        sender.close()
        number = first
        why: Optional[str] = None
        while True:
            if not receiver.poll(PATIENCE):
                process.kill()
                why = f"hung: no answer for {PATIENCE} s"
                break
            try:
                answer: Dict[str, Any] = receiver.recv()
            except EOFError:
                break
            self.peak = max(self.peak, answer["memory"])
            number = answer["next"]
            if answer["wrong"] is not None:
                self.findings.append(Finding(self.name, str(answer["next"] - 1), answer["wrong"]))
        process.join()
        self.tried += number - first
        if why is None and process.exitcode:
            why = f"ended its process with exit code {process.exitcode}"
        if why is not None:
            # The process may have been some inputs further than it had said.
            self.findings.append(Finding(self.name, f"{number} or one of the next {STEP}", why))
            number += STEP
        return number


def _child(name: str, seed: int, first: int, seconds: float, sender: Any) -> None:
    warnings.simplefilter("ignore")  # Pillow and NumPy warn about odd files; that is no failure of a reader

    def report(number: int, wrong: Optional[str]) -> None:
        if wrong is not None or (number + 1) % STEP == 0 or number < STEP:
            sender.send({"next": number + 1, "wrong": wrong, "memory": memory()})

    run(name, seed, first, seconds, report)


def _keep(findings: List[Finding], folder: Path, seed: int) -> None:
    """Write the inputs that did harm, with what they did."""
    if not findings:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "findings.json").write_text(json.dumps([finding._asdict() for finding in findings], indent=1))
    for finding in findings:
        if finding.input.isdigit():
            with tempfile.TemporaryDirectory() as place:
                data = Attack(finding.reader, Path(place), seed).input(int(finding.input))
            (folder / f"{finding.reader}-{finding.input}").write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())

"""``ipu-conformance mandatory check|update``: does the frozen list fit the suite, and how it is remade."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, FrozenSet, Set

from ipu_conformance import levels
from ipu_conformance.matrix import table
from ipu_conformance.report import mandatory
from ipu_conformance.report.mandatory import MandatoryError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of the command."""
    actions = parser.add_subparsers(metavar="action", required=True)
    action = actions.add_parser("check", help="compare the list with the suite; fails if they do not fit")
    action.set_defaults(action=_check)
    action = actions.add_parser("update", help="remake the list from the levels and the matrix of faults")
    action.set_defaults(action=_update)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    code: int = args.action(args)
    return code


def _check(args: argparse.Namespace) -> int:
    frozen, collected = mandatory.shipped(), _collected()
    bound, rows = {case for case, is_bound in collected.items() if is_bound}, mandatory.advisory()
    complaints = [f"{case} is mandatory, and the suite has no such case." for case in frozen.cases - set(collected)]
    complaints += [f"{case} is mandatory, and bound to a kind of target or to a tool." for case in frozen.cases & bound]
    complaints += [f"{case} is mandatory, and advisory: {rows.why(case)}." for case in frozen.cases if rows.why(case)]
    complaints += [
        f"the advisory row {pattern} fits no case of the suite."
        for pattern in rows.rows
        if not any(mandatory.matches(case, pattern) for case in collected)
    ]
    for complaint in sorted(complaints):
        print(complaint)
    print(f"{len(frozen.cases)} mandatory cases of {len(collected)}, digest {frozen.digest}")
    return 1 if complaints else 0


def _update(args: argparse.Namespace) -> int:
    collected = _collected()
    try:
        before = mandatory.shipped().cases
    except mandatory.MandatoryError:  # whatever is wrong with the list, this remakes it
        before = frozenset()
    lists = levels.shipped()
    matrix = table.read()
    made = mandatory.computed(
        premerge=[case for case in collected if lists.of(case) in ("smoke", "premerge")],
        smoke=[case for case in collected if lists.of(case) == "smoke"],
        killers={case for rows in matrix.rows.values() for row in rows.values() for case in row.kills},
        bound=[case for case, is_bound in collected.items() if is_bound],
        rows=mandatory.advisory(),
    )
    made.write()
    mandatory.shipped.cache_clear()
    _say_changes(before, made.cases)
    print(f"{len(made.cases)} mandatory cases, digest {made.digest}")
    return 0


def _say_changes(before: FrozenSet[str], after: FrozenSet[str]) -> None:
    changes: Set[str] = {f"+ {case}" for case in after - before} | {f"- {case}" for case in before - after}
    for line in sorted(changes, key=lambda each: each[2:]):
        print(line)


def _collected() -> Dict[str, bool]:
    """Every case of the suite on all frameworks, and whether it is bound to a kind of target or to a tool."""
    from ipu_conformance.suite_files import suite_folder

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "cases.json")
        options = ["--ipu-target", "emulator", "--ipu-frameworks", "poptorch,tensorflow,paddle", "--ipu-level", "soak"]
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", str(suite_folder()), *options]
        plugins = ["-p", "ipu_conformance.report.listing", "-p", "no:cacheprovider", "--ipu-listing", str(out)]
        answer = subprocess.run([*command, *plugins], capture_output=True, text=True, check=False)
        if answer.returncode or not out.exists():
            said = (answer.stderr.strip() or answer.stdout.strip()).splitlines()[-1:]
            raise MandatoryError(f"The suite cannot be collected: {' '.join(said)}; all three frameworks are needed.")
        cases: Dict[str, bool] = json.loads(out.read_text(encoding="utf-8"))
        return cases

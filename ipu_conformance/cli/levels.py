"""``ipu-conformance levels show|update``: which cases smoke and premerge have, and how the lists are remade."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import Dict

from ipu_conformance import levels
from ipu_conformance.matrix import kill_tables
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.text_table import text_table
from ipu_conformance.workers.scheduling import framework_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of the command."""
    actions = parser.add_subparsers(metavar="action", required=True)
    action = actions.add_parser("show", help="how many cases the levels have, by framework")
    action.set_defaults(action=_show)
    action = actions.add_parser("update", help="remake the lists from measured times and the matrix of faults")
    action.add_argument(
        "notes",
        type=Path,
        nargs="+",
        help="folders with the notes of benchmarks.suite_time; of several times of a case the longest counts: a case "
        "that reads what another one ran looks cheap where that one was there",
    )
    action.add_argument(
        "--kills",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE",
        help=kill_tables.HELP,
    )
    action.add_argument(
        "--slower",
        type=_factor,
        default=1.0,
        metavar="N",
        help="how many times slower the machine that the lists are for is than that of the notes (1)",
    )
    action.set_defaults(action=_update)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no factor; give a number above zero, as 2.5")
    return factor


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    code: int = args.action(args)
    return code


def _show(args: argparse.Namespace) -> int:
    lists = levels.shipped()
    rows = [["level", *FRAMEWORKS, "all"]]
    for name, table in (("smoke", lists.smoke), ("premerge", lists.premerge)):
        counts = Counter(framework_of(f"{family}[{each}]") for family, members in table.items() for each in members)
        rows.append([name, *(str(counts[framework]) for framework in FRAMEWORKS), str(sum(counts.values()))])
    print("\n".join(text_table(rows, ruled=True)))
    print(f"digest {lists.digest}")
    return 0


def _update(args: argparse.Namespace) -> int:
    from ipu_conformance.matrix import table
    from ipu_conformance.suite_files import suite_folder

    seconds: Dict[str, float] = {}
    for path in sorted(path for folder in args.notes for path in folder.glob("*.json")):
        for case, amount in json.loads(path.read_text(encoding="utf-8"))["cases"].items():
            seconds[case] = max(amount, seconds.get(case, 0.0))
    prefix = f"tests/{suite_folder().name}/"
    cases = {case[len(prefix) :]: amount * args.slower for case, amount in seconds.items() if case.startswith(prefix)}
    if not cases:
        raise levels.LevelsError(
            f"{args.notes[0]} holds no notes of a run of the suite; run benchmarks.suite_time first."
        )
    killers = kill_tables.read(args.kills).killers
    kills = {f"{name} {fault}": each for name, rows in killers.items() for fault, each in rows.items()}
    if table.PUBLISHED.exists():
        for framework, rows in table.read().rows.items():
            known = {fault: row.kills for fault, row in rows.items() if row.kills and not fault.startswith(table.SLIP)}
            kills.update({f"{framework} {fault}": cases for fault, cases in known.items()})
    made = levels.computed(cases, kills)
    made.write()
    levels.shipped.cache_clear()
    for name, lists in (("smoke", made.smoke), ("premerge", made.premerge)):
        listed = {(family, each) for family, members in lists.items() for each in members}
        noticed = sum(not listed.isdisjoint(map(levels.parted, killers)) for killers in kills.values())
        print(f"{name}: {noticed} of {len(kills)} faults have a known killer among its cases")
    return _show(args)

"""``ipu-conformance faults``: the ways for a device to be wrong, and who notices them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Callable, List

from ipu_conformance.matrix import kill_tables
from ipu_conformance.matrix.table import SLIP, Matrix
from ipu_conformance.selection import LEVELS
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.text_table import text_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of the command."""
    actions = parser.add_subparsers(metavar="action", required=True)
    action = actions.add_parser("list", help="every fault of a framework's device, with its place")
    action.add_argument("framework", choices=list(FRAMEWORKS))
    action.set_defaults(action=_list)
    action = actions.add_parser("run", help="run cases under a fault and say what became of each")
    action.add_argument("framework", choices=list(FRAMEWORKS))
    action.add_argument("fault", metavar="NAME")
    action.add_argument(
        "cases", nargs="*", metavar="CASE", help="cases of the suite; the published killers without any"
    )
    action.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="append the runs to <framework>.*.jsonl; a failure counts if the case passes again without the fault",
    )
    action.set_defaults(action=_run)
    action = actions.add_parser("grow", help="add runs to the published matrix, without running a case")
    action.add_argument("runs", type=Path, nargs="+", metavar="FILE", help="recorded runs (<framework>.*.jsonl)")
    action.add_argument("-o", "--output", type=Path, help="another file than the matrix of the package")
    action.set_defaults(action=_grow)
    action = actions.add_parser("matrix", help="find the cases that notice each fault, and write the matrix")
    action.add_argument(
        "--frameworks", nargs="+", choices=list(FRAMEWORKS), default=list(FRAMEWORKS), help="whose faults (all)"
    )
    action.add_argument(
        "--folder", type=Path, required=True, help="where the runs are kept; one that ended is not repeated"
    )
    action.add_argument(
        "--level",
        choices=LEVELS,
        default="premerge",
        help="the cases that are tried, beside one of every other test function (premerge)",
    )
    action.add_argument("--kills", type=Path, nargs="*", default=[], metavar="FILE", help=kill_tables.HELP)
    action.add_argument(
        "--runs",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE",
        help="runs of earlier tries (<framework>.*.jsonl); the kills among them are tried first",
    )
    action.add_argument("--processes", type=int, default=2, metavar="N", help="processes side by side (2)")
    action.add_argument("--paths", nargs="*", default=[], metavar="PATH", help="files of the suite instead of all")
    action.add_argument("--publish", action="store_true", help="replace the matrix of the package")
    action.set_defaults(action=_matrix)
    action = actions.add_parser("confirm", help="try every kill that is known again")
    action.add_argument(
        "--frameworks", nargs="+", choices=list(FRAMEWORKS), default=list(FRAMEWORKS), help="whose faults (all)"
    )
    action.add_argument(
        "--folder", type=Path, required=True, help="where the runs are kept; one that ended is not repeated"
    )
    action.add_argument("--one-in", type=int, default=1, metavar="N", help="the kills of one fault in so many (1: all)")
    action.add_argument("--kills", type=Path, nargs="*", default=[], metavar="FILE", help=kill_tables.HELP)
    action.add_argument(
        "--publish", action="store_true", help="replace the matrix of the package by what these runs say"
    )
    action.add_argument("--processes", type=int, default=2, metavar="N", help="processes side by side (2)")
    action.set_defaults(action=_confirm)
    action = actions.add_parser("page", help="write the published matrix as an HTML page with search")
    action.add_argument("-o", "--output", type=Path, default=Path("faults.html"), help="the file (faults.html)")
    action.set_defaults(action=_page)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    code: int = args.action(args)
    return code


def _list(args: argparse.Namespace) -> int:
    from ipu_conformance.matrix import session

    session.wake(args.framework)
    rows = [[fault.name, fault.area, fault.point, fault.what] for fault in session.known(args.framework)]
    print("\n".join(text_table([["fault", "area", "place", "what the device does"], *rows], ruled=True)))
    return 0


def _run(args: argparse.Namespace) -> int:
    from ipu_conformance.emulator.faults import catalogue
    from ipu_conformance.matrix import session, table
    from ipu_conformance.matrix.verdict import Verdict

    session.wake(args.framework)
    fault = catalogue.get(args.fault)
    cases: List[str] = args.cases
    if not cases:
        rows = table.read().rows.get(args.framework, {})
        if fault.name not in rows or not rows[fault.name].kills:
            raise table.MatrixError(f"no case is known to notice {fault.name} on {args.framework}; name some.")
        cases = rows[fault.name].kills
    verdicts: List[Verdict] = []
    unknown: List[str] = []

    def work(loop: session.Loop) -> None:
        unknown.extend(case for case in cases if case not in loop.cases)
        for case in [] if unknown else cases:
            if args.record is None:
                with catalogue.inject(fault.name):
                    note = loop.run(case)._asdict()
            else:
                with args.record.open("a", encoding="utf-8") as out:
                    session.attempt(loop, fault.name, case, out)
                note = session.lines(args.record)[-1]
            verdicts.append(Verdict(note["verdict"]))
            print(f"{verdicts[-1].value:8}{case}\n        {note['sentence']}".rstrip())

    session.pytest_session(sorted({case.partition("::")[0] for case in cases}), args.framework, work)
    if unknown:
        raise table.MatrixError(f"the suite has no case {unknown[0]!r} of {args.framework}.")
    return 0 if Verdict.KILLED in verdicts else 1


def _grow(args: argparse.Namespace) -> int:
    from ipu_conformance.emulator.faults import catalogue
    from ipu_conformance.matrix import campaign, session, table

    matrix = table.read()
    for name, runs in campaign.recorded(args.runs).items():
        catalogue.load(name)
        matrix = table.grown(matrix, name, session.described(name), runs)
    table.write(matrix, args.output or table.PUBLISHED)
    print("\n".join(text_table([HEADER, *(_counts(matrix, name) for name in matrix.rows)], ruled=True)))
    return 0


def _sayer() -> Callable[[str], None]:
    """A function that prints a line with the seconds since now."""
    started = time.monotonic()
    return lambda line: print(f"{time.monotonic() - started:7.0f} s  {line}", file=sys.stderr, flush=True)


def _confirm(args: argparse.Namespace) -> int:
    from ipu_conformance.matrix import campaign, table

    if args.publish and (args.one_in != 1 or set(args.frameworks) != set(FRAMEWORKS)):
        raise table.MatrixError("only all faults of all frameworks are published: leave out --one-in and --frameworks.")
    tables = kill_tables.read(args.kills)
    before = os.times()
    found = campaign.confirm(args.folder, args.frameworks, args.processes, _sayer(), args.one_in, tables.killers)
    after = os.times()
    rows = [["framework", "faults", "noticed again", "kills", "confirmed"]]
    for name, each in found.items():
        counts = (each.faults, each.faults - len(each.lost), each.kills, each.kills - len(each.unconfirmed))
        rows.append([name, *map(str, counts)])
    print("\n".join(text_table(rows, ruled=True)))
    for name, each in found.items():
        for run in each.unconfirmed:
            print(f"not noticed again on {name}: {run['fault']} by {run['case']} ({run['verdict']}) {run['sentence']}")
        for fault in each.lost:
            print(f"no case notices it any more on {name}: {fault}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{spent / 60:.1f} minutes of processor time, {(after.elapsed - before.elapsed) / 60:.1f} minutes in all")
    if args.publish:
        matrix = table.joined([each.matrix for each in found.values()])
        defects = _judged(matrix, tables)
        table.write(matrix)
        return 1 if defects else 0
    return 1 if any(each.unconfirmed for each in found.values()) else 0


def _matrix(args: argparse.Namespace) -> int:
    from ipu_conformance.matrix import campaign, table

    tables = kill_tables.read(args.kills)
    hints = campaign.joint(campaign.published(), tables.killers, campaign.killers(args.runs))
    matrix = campaign.make(args.folder, args.frameworks, args.level, args.processes, _sayer(), args.paths, hints)
    defects = _judged(matrix, tables)
    table.write(matrix, table.PUBLISHED if args.publish else args.folder / "matrix.json")
    return 1 if defects else 0


HEADER = ["framework", "faults", "killed", "spared", "survivors", "of these by crash", "slips", "families", "idle"]


def _judged(matrix: Matrix, tables: kill_tables.KillTables) -> List[str]:
    """Print what a new matrix comes to; its survivors and idle families, where the tables spare no fault."""
    for name, reasons in tables.spared.items():
        for fault, reason in reasons.items():
            if fault in matrix.rows.get(name, {}):
                matrix.rows[name][fault].spared = reason
    print("\n".join(text_table([HEADER, *(_counts(matrix, name) for name in matrix.rows)], ruled=True)))
    defects = [f"survives on {name}: {fault}" for name in matrix.rows for fault in matrix.survivors(name)]
    defects += [f"notices nothing on {name}: {family}" for name in matrix.rows for family in matrix.idle(name)]
    print("\n".join(defects) or "no survivor, and no family of cases without a kill")
    return defects


def _counts(matrix: Matrix, name: str) -> List[str]:
    rows, survivors = matrix.rows[name], matrix.survivors(name)
    slips = sum(fault.startswith(SLIP) for fault in rows)
    spared = sum(bool(row.spared and not row.kills) for row in rows.values())
    faults = len(rows) - slips
    killed = faults - spared - len(survivors)
    counts = (faults, killed, spared, len(survivors), len(matrix.crashed_only(name)), slips)
    return [name, *map(str, (*counts, len(matrix.families[name]), len(matrix.idle(name))))]


def _page(args: argparse.Namespace) -> int:
    from ipu_conformance.atomic_write import replacing
    from ipu_conformance.matrix import table
    from ipu_conformance.matrix.page import page

    with replacing(args.output) as beside:
        beside.write_text(page(table.read()), encoding="utf-8")
    print(args.output)
    return 0

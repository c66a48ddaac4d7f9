"""``ipu-conformance coverage``: what the suite asks of each framework, op by op, and what it does not ask, and why."""

from __future__ import annotations

import argparse
import csv
import sys
import textwrap
from collections import Counter
from typing import Collection, Dict, Iterable, List, Sequence, Tuple

from ipu_conformance import levels
from ipu_conformance.ops import TABLE, Row
from ipu_conformance.ops.cases import DIRECTIONS, EDGES, NO_SUCH_EDGE, OpCase, combinations
from ipu_conformance.ops.dtypes import DTYPES
from ipu_conformance.ops.row import LIBRARIES
from ipu_conformance.text_table import text_table

SHORT = {"float32": "f32", "float16": "f16", "int32": "i32", "bool": "bool"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--op", metavar="NAME", help="one op of the table, edge by edge")
    parser.add_argument("--gaps", action="store_true", help="what is not asked, and why")
    parser.add_argument("--open", action="store_true", help="where vendors allow several results or any, and why")
    parser.add_argument("--training", action="store_true", help="the rules of training instead of ops")
    parser.add_argument("--csv", action="store_true", help="a line for every combination, as comma-separated values")


def run(args: argparse.Namespace) -> int:
    """Print what is asked for."""
    if args.training:
        from ipu_conformance.cli.training_coverage import training
        from ipu_conformance.suite_files import suite_folder

        print("\n".join(training(suite_folder() / "training")))
        return 0
    rows: Sequence[Row] = [TABLE[args.op]] if args.op else list(TABLE.values())
    known = list(combinations(rows))
    if args.csv:
        _write_csv(known)
    elif args.gaps:
        print("\n".join(_reasons([case for case in known if case.gap], "gap")))
    elif args.open:
        print("\n".join(_open(known)))
    elif args.op:
        print("\n".join(_edges(known)))
    else:
        print("\n".join(summary(known)))
    return 0


def summary(known: Sequence[OpCase]) -> List[str]:
    """Op by op what is asked of each framework, then the number of cases."""
    asked: Dict[Tuple[str, str], List[OpCase]] = {}
    for case in known:
        if not case.gap:
            asked.setdefault((case.row.name, case.framework), []).append(case)
    rows = {case.row.name: case.row for case in known}
    lines = [["op", "family", *LIBRARIES]]
    for name, row in sorted(rows.items(), key=lambda pair: (pair[1].op.family, pair[0])):
        cells = [_cell(asked.get((name, framework), [])) for framework in LIBRARIES]
        lines.append([name, row.op.family, *cells])
    counts = Counter(case.framework for cases in asked.values() for case in cases)
    ops = Counter(framework for _, framework in asked)
    totals = [f"{framework}: {ops[framework]} ops, {counts[framework]} cases" for framework in LIBRARIES]
    legend = (
        "f32' is float32 with gradients; --gaps says what is not asked and why, --op NAME shows the edges of one op."
    )
    return [*text_table(lines, ruled=True), "", *totals, legend]


def _cell(asked: Sequence[OpCase]) -> str:
    """The types of a framework's cases, those with a gradient marked, and the number of edges."""
    if not asked:
        return "-"
    types = []
    for dtype in DTYPES:
        directions = {case.direction for case in asked if case.dtype == dtype}
        if directions:
            types.append(SHORT[dtype] + ("'" if "gradient" in directions else ""))
    return f"{' '.join(types)}, {len({case.edge for case in asked})} edges"


def _edges(known: Sequence[OpCase]) -> List[str]:
    """One op: an edge a line, a framework and type a column."""
    columns = [(framework, dtype) for framework in LIBRARIES for dtype in DTYPES]
    states = {(case.framework, case.dtype, case.direction, case.edge): case for case in known}
    lines = [["direction", "edge", *(f"{framework} {SHORT[dtype]}" for framework, dtype in columns)]]
    for direction in DIRECTIONS:
        for edge in EDGES:
            cells = [_mark(states[framework, dtype, direction, edge]) for framework, dtype in columns]
            if any(cells):
                lines.append([direction, edge, *cells])
    return text_table(lines, ruled=True)


def _mark(case: OpCase) -> str:
    return "" if case.gap else "open" if case.open else "several" if case.latitude else "yes"


def _open(known: Sequence[OpCase]) -> List[str]:
    """What is asked with latitude, first where any result will do, then where several are known."""
    asked = [case for case in known if not case.gap]
    parts = {
        "Any result of the right shape": _reasons([case for case in asked if case.open], "open"),
        "Several results": _reasons([case for case in asked if case.latitude], "latitude"),
    }
    return [line for title, lines in parts.items() if lines for line in (f"# {title}", "", *lines, "")]


def _reasons(cases: Sequence[OpCase], kind: str) -> List[str]:
    """The reasons, each with the combinations that it is about, and their ops."""
    combined: Dict[Tuple[str, str], List[OpCase]] = {}
    for case in cases:
        reason = getattr(case, kind)
        if reason != NO_SUCH_EDGE:  # which edges an op has follows from its family
            combined.setdefault((reason, case.row.name), []).append(case)
    ops: Dict[str, Dict[str, List[str]]] = {}
    for (reason, name), each in combined.items():
        words = [
            _listed((case.framework for case in each), LIBRARIES, "every framework"),
            _listed((SHORT[case.dtype] for case in each), DTYPES, "every type"),
            _listed((case.direction for case in each), DIRECTIONS, "both directions"),
            _listed((case.edge for case in each), EDGES, "every edge"),
        ]
        ops.setdefault(reason, {}).setdefault(", ".join(words), []).append(name)
    lines = []
    for reason, places in ops.items():
        lines += ["", f"{reason[0].upper()}{reason[1:]}:"]
        for place, names in places.items():
            lines += textwrap.wrap(f"{place}: {' '.join(names)}", 116, initial_indent="  ", subsequent_indent="    ")
    return lines[1:]


def _listed(words: Iterable[str], everything: Collection[str], name: str) -> str:
    distinct = list(dict.fromkeys(words))
    return name if len(distinct) == len(everything) else " ".join(distinct)


def _write_csv(known: Sequence[OpCase]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(["op", "family", "framework", "dtype", "direction", "edge", "level", "state", "why"])
    for case in known:
        state = "gap" if case.gap else "open" if case.open else "several" if case.latitude else "asked"
        level = "" if case.gap else levels.shipped().of(f"ops/test_ops_ipu.py::test_{case.direction}[{case}]")
        place = (case.row.name, case.row.op.family, case.framework, case.dtype, case.direction, case.edge)
        writer.writerow([*place, level, state, case.gap or case.open or case.latitude])

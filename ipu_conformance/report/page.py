"""index.html: one file that loads nothing from elsewhere and can be read without scripts, on screen and on paper."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

import jinja2

from ipu_conformance.report import mandatory, scripts
from ipu_conformance.report.repetitions import Repeats, told
from ipu_conformance.report.results import FAILED, OUTCOMES, PASSED, SKIPPED, Result
from ipu_conformance.report.timelines import KINDS, drawn
from ipu_conformance.report.verdict import INCOMPLETE, NOT_QUALIFIED, QUALIFIED, Verdict
from ipu_conformance.targets import FRAMEWORKS

if TYPE_CHECKING:
    from ipu_conformance.report.folder import Record

SECTIONS = (
    ("rests", "what it rests on"),
    ("areas", "areas"),
    ("failures", "failures"),
    ("skipped", "skipped"),
    ("margins", "margins"),
    ("curves", "curves"),
    ("timelines", "timelines and memory"),
    ("faults", "faults"),
    ("cases", "cases"),
    ("environment", "environment"),
)
BINS = 10
"""Columns of a histogram up to a whole tolerance; one more is beyond."""
HEIGHT = 100.0
TIGHTEST = 10
MEANING = {
    QUALIFIED: "Every planned case was run, none failed that counts, and every mandatory case is among them.",
    NOT_QUALIFIED: "The device does not do what the specification says: {failed} of {planned} cases failed.",
    INCOMPLETE: "No case failed that counts, and not everything that a verdict needs was run.",
}
"""What a verdict says to somebody who meets it for the first time."""
ON_PURPOSE = "The device was wrong on purpose (fault {fault}), which says nothing about any other: "
MOST_CAUSES = 12
"""Causes at the head of a page; the others are folded away there."""


def page(record: Record, verdict: Verdict, report: Mapping[str, Any]) -> str:
    """The page of a report."""
    results = [record.results[case] for case in sorted(record.results)]
    columns = _columns(results)
    listed = mandatory.of_frameworks(record.run["mandatory"]["cases"], list(record.run["frameworks"]))
    groups = _groups(results, mandatory.Advisory(record.run["advisory"]), record.repeats)
    failures = [reason for reason in verdict.reasons if _is_failure(reason, record.results)]
    return _template().render(
        verdict=verdict,
        tone="good" if verdict.word == QUALIFIED else "open" if verdict.word == INCOMPLETE else "bad",
        meaning=_meaning(record, verdict, report["counts"][FAILED]),
        most_causes=MOST_CAUSES,
        failures=failures,
        gaps=[reason for reason in verdict.reasons if reason not in failures],
        sections=SECTIONS,
        run=record.run,
        environment=record.environment,
        frameworks=[(name, record.run["frameworks"][name]) for name in FRAMEWORKS if name in record.run["frameworks"]],
        counts=report["counts"],
        planned=len(record.planned),
        mandatory={
            "digest": record.run["mandatory"]["digest"],
            "count": len(listed),
            "passed": sum(record.results[case].outcome == PASSED for case in listed if case in record.results),
        },
        times=record.times,
        seconds=sum(result.seconds for result in results),
        columns=columns,
        chapters=_chapters(report["areas"], columns),
        totals=[sum(row[PASSED] for row in report["areas"] if row["framework"] == name) for name in columns],
        groups=groups,
        devices=report["devices"],
        skipped=_skipped(results, listed),
        histograms=histograms(results),
        tightest=_tightest(results),
        curves=[_curve(each) for each in report["curves"]],
        timelines=drawn(record),
        kinds=KINDS,
        matrix=_matrix(list(record.run["frameworks"]), record.results),
        outcomes=OUTCOMES,
        listing=_listing(report["cases"]),
    )


def _meaning(record: Record, verdict: Verdict, failed: int) -> str:
    """What the verdict says; of a device that was wrong on purpose, first that it was."""
    if record.environment["fault"]:
        return (
            f"{ON_PURPOSE.format(fault=record.environment['fault'])}{failed:,} of {len(record.planned):,} cases failed."
        )
    return MEANING[verdict.word].format(failed=f"{failed:,}", planned=f"{len(record.planned):,}")


@functools.lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def _columns(results: Sequence[Result]) -> List[str]:
    present = {result.framework for result in results}
    return [name for name in (*FRAMEWORKS, "none") if name in present]


def _chapters(areas: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> List[Tuple[str, List[Any]]]:
    cells = {(row["chapter"], row["framework"]): row for row in areas}
    chapters = sorted({row["chapter"] for row in areas})
    return [(chapter, [cells.get((chapter, column)) for column in columns]) for chapter in chapters]


def _groups(results: Sequence[Result], rows: mandatory.Advisory, repeats: Repeats) -> List[Dict[str, Any]]:
    """The failures that share a cause, the largest group first."""
    groups: Dict[str, List[Dict[str, Any]]] = {}
    failed = [result for result in results if result.outcome == FAILED]
    for number, result in enumerate(failed, start=1):
        name = scripts.name_of(number, result)
        row = {**result.facts(), "details": result.details, "file": f"{name}.txt"}
        row["repeated"] = told(result, repeats)
        row["program"] = f"{name}.py" if result.program else ""
        groups.setdefault(result.kind_of_failure, []).append({**row, "advisory": rows.why(result.case)})
    order = sorted(groups, key=lambda each: (-len(groups[each]), each))
    return [
        {
            "number": number,
            "kind": kind,
            "rows": groups[kind],
            "count": len(groups[kind]),
            "frameworks": ", ".join(name for name in FRAMEWORKS if name in {row["framework"] for row in groups[kind]}),
            "place": min((row["place"] for row in groups[kind] if row["place"]), default=""),
        }
        for number, kind in enumerate(order, start=1)
    ]


def _is_failure(reason: str, results: Mapping[str, Result]) -> bool:
    """Whether a reason of a verdict is about failed cases, which the page shows by cause."""
    return reason.partition(" failed: ")[0] in results or reason.endswith("more cases failed.")


def _skipped(results: Sequence[Result], listed: Any) -> List[Dict[str, Any]]:
    counts = Counter(result.sentence for result in results if result.outcome == SKIPPED)
    binding = Counter(result.sentence for result in results if result.outcome == SKIPPED and result.case in listed)
    return [{"why": why, "count": count, "mandatory": binding[why]} for why, count in counts.most_common()]


def histograms(results: Sequence[Result]) -> List[Dict[str, Any]]:
    """For each framework how many cases used which share of their tolerance."""
    figures = []
    for framework in _columns(results):
        used = [
            float(result.margin["used"])
            for result in results
            if result.margin is not None and result.framework == framework
        ]
        if not used:
            continue
        counts = Counter(min(int(share * BINS), BINS) if share <= 1 else BINS for share in used)
        counts[BINS - 1] += sum(share == 1 for share in used)
        counts[BINS] -= sum(share == 1 for share in used)
        most = max(counts.values())
        figures.append(
            {
                "framework": framework,
                "count": len(used),
                "median": f"{statistics.median(used):.0%}",
                "largest": _share(max(used)),
                "most": most,
                "columns": [
                    {
                        "height": HEIGHT * counts[number] / most,
                        "over": number == BINS,
                        "title": f"{_bin(number)}: {counts[number]} case{'' if counts[number] == 1 else 's'}",
                    }
                    for number in range(BINS + 1)
                ],
            }
        )
    return figures


def _bin(number: int) -> str:
    return "beyond 100 %" if number == BINS else f"{number * 100 // BINS} to {(number + 1) * 100 // BINS} %"


def _share(used: float) -> str:
    return f"{used:.0%}" if used < 1000 else f"{used:.2g} times"


def _tightest(results: Sequence[Result]) -> List[Dict[str, Any]]:
    rows = [(float(result.margin["used"]), result) for result in results if result.margin is not None]
    rows.sort(key=lambda row: (-row[0], row[1].case))
    return [
        {"used": _share(used), "over": used > 1, "what": (result.margin or {})["what"], "case": result.case}
        for used, result in rows[:TIGHTEST]
    ]


def _curve(each: Mapping[str, Any]) -> Dict[str, Any]:
    """A curve with its band as points of a picture, 300 by 145 from (50, 10)."""
    numbers = [*each["values"], *each["low"], *each["high"]]
    least, most = min(numbers), max(numbers)
    span, last = (most - least) or 1.0, max(1, len(each["mean"]) - 1)

    def at(place: int, value: float) -> Tuple[float, float]:
        return round(50 + 300 * place / last, 1), round(155 - 145 * (value - least) / span, 1)

    def line(values: Sequence[float]) -> List[Tuple[float, float]]:
        return [at(place, value) for place, value in enumerate(values)]

    points = line(each["values"])
    return {
        "case": each["case"],
        "metric": each["metric"],
        "passed": each["passed"],
        "band": _points([*line(each["high"]), *reversed(line(each["low"]))]),
        "mean": _points(line(each["mean"])),
        "line": _points(points),
        "points": [
            (x, y, f"point {number}: {value:.6g}")
            for number, ((x, y), value) in enumerate(zip(points, each["values"]), start=1)
        ],
        "top": f"{most:.4g}",
        "bottom": f"{least:.4g}",
        "width": f"{len(each['mean'])} point{'' if len(each['mean']) == 1 else 's'}",
    }


def _points(points: Sequence[Tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _matrix(frameworks: Sequence[str], results: Mapping[str, Result]) -> Optional[List[Dict[str, Any]]]:
    """The published matrix of faults in numbers, and what this run could have noticed; None where none is published."""
    from ipu_conformance.matrix import table

    if not table.PUBLISHED.exists():
        return None
    matrix = table.read()
    executed = {case for case, result in results.items() if result.outcome != SKIPPED}
    rows = []
    for name in FRAMEWORKS:
        if name in frameworks and name in matrix.rows:
            faults = {fault: row for fault, row in matrix.rows[name].items() if not fault.startswith(table.SLIP)}
            rows.append(
                {
                    "framework": name,
                    "faults": len(faults),
                    "noticed": sum(bool(row.kills) for row in faults.values()),
                    "here": sum(not executed.isdisjoint(row.kills) for row in faults.values()),
                    "spared": sum(bool(row.spared) for row in faults.values()),
                    "survivors": sum(fault in faults for fault in matrix.survivors(name)),
                }
            )
    return rows


def _listing(cases: Sequence[Mapping[str, Any]]) -> List[Tuple[str, List[Dict[str, Any]]]]:
    """Every case by chapter."""
    chapters: Dict[str, List[Dict[str, Any]]] = {}
    for row in cases:
        chapters.setdefault(row["chapter"], []).append({"sentence": "", **row})
    return sorted(chapters.items())

"""Timelines of pipelines: chosen from the results, drawn for the page, written for Perfetto."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from ipu_conformance.report.results import Result

if TYPE_CHECKING:
    from ipu_conformance.report.folder import Record

KINDS = ("forward", "recompute", "backward", "reduce", "update")
MOST_OF_A_FRAMEWORK = 3
LEFT, WIDTH, ROW = 60.0, 930.0, 20
LABELLED = 15.0
"""The width from which a slot bears the number of its micro-batch."""
TICK = 1000.0
"""Microseconds of a trace that stand for a tick: a plan has no other time."""

Slot = Tuple[int, int, int, int, int, str]
"""Tick, replica, IPU, stage, micro-batch and kind."""


def chosen(record: Record) -> List[Tuple[Result, Mapping[str, Any]]]:
    """Of each framework the timelines of a few cases, those with the most IPUs first, each number of IPUs once."""
    found = [(result, timeline) for _, result in sorted(record.results.items()) for timeline in result.timelines]
    found.sort(key=lambda row: (row[1]["framework"], -len(_ipus(row[1])), row[0].case))
    picked: Dict[Tuple[str, int], Tuple[Result, Mapping[str, Any]]] = {}
    for result, timeline in found:
        picked.setdefault((timeline["framework"], len(_ipus(timeline))), (result, timeline))
    counts: Dict[str, int] = {}
    rows = []
    for (framework, _), row in picked.items():
        counts[framework] = counts.get(framework, 0) + 1
        if counts[framework] <= MOST_OF_A_FRAMEWORK:
            rows.append(row)
    return rows


def files(record: Record) -> Dict[str, str]:
    """The chosen timelines in the Trace Event Format, by file name."""
    return {name_of(result): json.dumps(_chrome(timeline)) + "\n" for result, timeline in chosen(record)}


def name_of(result: Result) -> str:
    """A file's name for the timeline of a case."""
    return re.sub(r"[^A-Za-z0-9]+", "-", result.case).strip("-")[:120] + ".json"


def drawn(record: Record) -> List[Dict[str, Any]]:
    """The chosen timelines as boxes of a picture, with the memory of their IPUs."""
    figures = []
    for result, timeline in chosen(record):
        ipus = _ipus(timeline)
        slots: List[Slot] = [tuple(slot) for slot in timeline["slots"]]
        ticks = max(slot[0] for slot in slots) + 1
        step = WIDTH / ticks
        memory = timeline.get("memory") or []
        parts = sorted(set(memory[0]) - {"ipu"}, key=lambda part: (part == "peak", part)) if memory else []
        figures.append(
            {
                "case": result.case,
                "file": name_of(result),
                "framework": timeline["framework"],
                "height": ROW * len(ipus),
                "ipus": [(ipu, number * ROW) for number, ipu in enumerate(ipus)],
                "slots": [
                    {
                        "left": LEFT + tick * step,
                        "top": ipus.index(ipu) * ROW + 2,
                        "width": max(1.0, step - 1),
                        "kind": kind,
                        "title": _words(tick, ipu, stage, micro_batch, kind),
                        "label": str(micro_batch) if micro_batch >= 0 and step >= LABELLED else "",
                    }
                    for tick, _, ipu, stage, micro_batch, kind in slots
                ],
                "parts": [part.replace("_", " ") for part in parts],
                "memory": [{"ipu": row["ipu"], "sizes": [_size(row[part]) for part in parts]} for row in memory],
            }
        )
    return figures


def _chrome(timeline: Mapping[str, Any]) -> Dict[str, Any]:
    events: List[Dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": ipu, "args": {"name": f"IPU {ipu}"}}
        for ipu in _ipus(timeline)
    ]
    for tick, replica, ipu, stage, micro_batch, kind in timeline["slots"]:
        events.append(
            {
                "ph": "X",
                "name": f"{kind} {stage}" + ("" if micro_batch < 0 else f" micro-batch {micro_batch}"),
                "cat": kind,
                "ts": tick * TICK,
                "dur": TICK,
                "pid": replica,
                "tid": ipu,
            }
        )
    return {"traceEvents": events}


def _ipus(timeline: Mapping[str, Any]) -> List[int]:
    return sorted({slot[2] for slot in timeline["slots"]})


def _words(tick: int, ipu: int, stage: int, micro_batch: int, kind: str) -> str:
    of = "" if micro_batch < 0 else f", micro-batch {micro_batch}"
    return f"tick {tick}, IPU {ipu}: {kind} of stage {stage}{of}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:,.1f} KiB"

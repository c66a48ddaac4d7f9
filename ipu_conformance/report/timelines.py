"""Timelines of pipelines: chosen from the results, drawn for the page, written for Perfetto."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from ipu_conformance.report.results import Result, stem_of

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
    """Of each framework the timelines of its workloads and of a few other cases, the most IPUs first.

    No two of a workload, and no two of the others, have the same number of IPUs.
    """
    found = [(result, timeline) for _, result in sorted(record.results.items()) for timeline in result.timelines]
    found.sort(key=lambda row: (row[1]["framework"], "workload" not in row[1], -len(_ipus(row[1])), row[0].case))
    picked: Dict[Tuple[str, str, int], Tuple[Result, Mapping[str, Any]]] = {}
    for result, timeline in found:
        key = timeline["framework"], timeline.get("workload", ""), len(_ipus(timeline))
        picked.setdefault(key, (result, timeline))
    counts: Counter[str] = Counter()
    rows = []
    for (framework, workload, _), row in picked.items():
        counts[framework] += not workload
        if workload or counts[framework] <= MOST_OF_A_FRAMEWORK:
            rows.append(row)
    return rows


def files(record: Record) -> Dict[str, str]:
    """The chosen timelines in the Trace Event Format, by file name."""
    return {f"{stem_of(result.case)}.json": json.dumps(_chrome(timeline)) + "\n" for result, timeline in chosen(record)}


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
                "file": f"{stem_of(result.case)}.json",
                "framework": timeline["framework"],
                "workload": timeline.get("workload", ""),
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

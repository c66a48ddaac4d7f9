"""One HTML page about a compiled program: its memory by IPU and its timeline, with nothing to fetch from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator.core.memory import PERSISTENT, VARYING, size_text
from ipu_conformance.emulator.core.plan import Kind
from ipu_conformance.emulator.core.trace import Trace

PARTS = {
    "weights": "#4477aa",
    "optimizer_state": "#66ccee",
    "gradients": "#228833",
    "code": "#bbbbbb",
    "io_buffers": "#ccbb44",
    "stash": "#ee6677",
    "boundaries": "#aa3377",
    "working": "#ee8866",
}
"""A colour for every part of an IPU's memory; the set can be told apart by the colour-blind."""
KINDS = {"forward": "#4477aa", "recompute": "#66ccee", "backward": "#ee6677", "reduce": "#aa3377", "update": "#228833"}
MOST_SLOTS = 150
"""So many slots of one IPU can be told apart in a picture; the trace holds all of them."""
WIDTH, ROW = 1000, 22

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.key span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem; }
svg { max-width: 100%; height: auto; } p.note { color: #555; }
"""


def page(profile: Mapping[str, Any], timeline: Trace) -> str:
    """The page of a profile and its timeline."""
    program = profile["program"]
    kind = "training" if program["training"] else "inference"
    body = [
        f"<h1>{escape(program['name'])}</h1>",
        f"<p class=note>A {kind} program of {program['stages']} stages on {program['ipus_per_replica']} IPUs per "
        f"replica, {program['replicas']} replicas. Memory and time are estimates of a virtual device.</p>",
        "<h2>Memory by IPU</h2>",
        *_memory(profile["memory"]),
        "<h2>Timeline</h2>",
        *_timeline(timeline),
        *_cost(profile["cost"]),
        "<h2>Program</h2>",
        _table((name.replace("_", " "), _text(value)) for name, value in program.items()),
        *_ops(profile["ops"]),
        "<h2>Configuration</h2>",
        _table(_flat(profile.get("configuration", {}))),
    ]
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f"<title>{escape(program['name'])}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _memory(memory: Mapping[str, Any]) -> List[str]:
    if "not_estimated" in memory:
        return [_missing(memory)]
    ipus, capacity = memory["ipus"], memory["capacity"]
    scale = WIDTH / max(capacity, memory["peak"])
    height = ROW * len(ipus) + 20
    drawn = [f"<svg viewBox='0 0 {WIDTH + 120} {height}' role=img aria-label='memory by IPU'>"]
    for row, ipu in enumerate(ipus):
        left = 60.0
        drawn.append(f"<text x=0 y={row * ROW + 15}>IPU {ipu['ipu']}</text>")
        for part in (*PERSISTENT, *VARYING):
            width = ipu[part] * scale
            title = f"IPU {ipu['ipu']} {part.replace('_', ' ')}: {size_text(ipu[part])}"
            drawn.append(_box(left, row * ROW + 2, width, ROW - 4, PARTS[part], title))
            left += width
    limit = 60 + capacity * scale
    drawn.append(f"<line x1={limit:.1f} x2={limit:.1f} y1=0 y2={height - 16} stroke=#222 stroke-dasharray=4 />")
    drawn.append(f"<text x={limit - 4:.1f} y={height - 3} text-anchor=end>{size_text(capacity)} per IPU</text></svg>")
    rows = [
        [f"IPU {ipu['ipu']}", *(size_text(ipu[part]) for part in (*PERSISTENT, *VARYING)), size_text(ipu["peak"])]
        for ipu in ipus
    ]
    heads = ["", *(part.replace("_", " ") for part in (*PERSISTENT, *VARYING)), "peak"]
    largest = (
        (f"IPU {ipu['ipu']}: {held['name']}", f"{size_text(held['nbytes'] * held['copies'])} ({held['part']})")
        for ipu in ipus
        for held in ipu["largest"]
    )
    return [_key(PARTS), *drawn, _grid(heads, rows), "<h2>Largest tensors</h2>", _table(largest)]


def _timeline(timeline: Trace) -> List[str]:
    events = _first(timeline.events)
    if not len(events):
        return ["<p class=note>Nothing is executed.</p>"]
    end = int((events["start"] + events["duration"]).max())
    rows = _places(events)
    drawn = [f"<svg viewBox='0 0 {WIDTH + 120} {ROW * len(rows)}' role=img aria-label='timeline'>"]
    drawn += [f"<text x=0 y={row * ROW + 15}>{replica}: IPU {ipu}</text>" for row, (replica, ipu) in enumerate(rows)]
    for event in events:
        kind = str(Kind(int(event["kind"])))
        of = "" if event["micro_batch"] < 0 else f", micro-batch {event['micro_batch']}"
        title = f"{kind} of stage {event['stage']}{of}, tick {event['tick']}, {event['duration']} ns"
        row = rows.index((int(event["replica"]), int(event["ipu"])))
        left, width = 100 + event["start"] / end * WIDTH, max(0.5, event["duration"] / end * WIDTH - 0.5)
        drawn.append(_box(left, row * ROW + 2, width, ROW - 4, KINDS[kind], title))
    drawn.append("</svg>")
    if len(timeline) > len(events):
        drawn.append(f"<p class=note>The first {len(events):,} of {len(timeline):,} slots; the trace holds all.</p>")
    return [_key(KINDS), *drawn]


def _first(events: np.ndarray) -> np.ndarray:
    """The slots that begin before one of the IPUs has more of them than can be told apart."""
    rows = [events["start"][(events["replica"] == r) & (events["ipu"] == i)] for r, i in _places(events)]
    ends = [np.sort(starts)[MOST_SLOTS] for starts in rows if len(starts) > MOST_SLOTS]
    return events[events["start"] < min(ends)] if ends else events


def _places(events: np.ndarray) -> List[Tuple[int, int]]:
    return [(int(replica), int(ipu)) for replica, ipu in np.unique(events[["replica", "ipu"]])]


def _cost(cost: Mapping[str, Any]) -> List[str]:
    if "not_estimated" in cost:
        return [_missing(cost)]
    rows = [
        ("cycles", f"{cost['cycles']:,.0f}"),
        ("seconds", f"{cost['seconds']:.6f}"),
        ("waiting", f"{cost['bubble']:.1%}"),
        *((f"IPU {ipu} busy", f"{share:.1%}") for ipu, share in enumerate(cost["utilisation"])),
        ("multiply-accumulates", f"{cost['macs']:,.0f}"),
    ]
    return [_table(rows)]


def _ops(ops: Mapping[str, Any]) -> List[str]:
    if "not_estimated" in ops:
        return []
    return ["<h2>Operations</h2>", _table((name, str(count)) for name, count in ops.items())]


def _missing(part: Mapping[str, Any]) -> str:
    return f"<p class=note>Not estimated: {escape(part['not_estimated'])}.</p>"


def _box(left: float, top: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f"<rect x={left:.2f} y={top} width={width:.2f} height={height} fill='{colour}'>"
        f"<title>{escape(title)}</title></rect>"
    )


def _key(colours: Mapping[str, str]) -> str:
    marks = (f"<span style='background:{colour}'></span>{name.replace('_', ' ')}" for name, colour in colours.items())
    return f"<p class=key>{''.join(marks)}</p>"


def _table(rows: Iterable[Sequence[str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows) + "</table>"


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td class=number>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _flat(tree: Mapping[str, Any], prefix: str = "") -> List[Sequence[str]]:
    rows: List[Sequence[str]] = []
    for name, value in tree.items():
        rows += (
            _flat(value, f"{prefix}{name}.")
            if isinstance(value, dict) and value
            else [(f"{prefix}{name}", _text(value))]
        )
    return rows


def _text(value: Any) -> str:
    if isinstance(value, Dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return str(value)

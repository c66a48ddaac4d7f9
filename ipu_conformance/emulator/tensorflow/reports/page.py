"""One HTML page about a compiled program: its memory by IPU and its timeline, with nothing to fetch from elsewhere."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import jinja2
import numpy as np

from ipu_conformance.emulator.core.memory import PERSISTENT, VARYING, size_text
from ipu_conformance.emulator.core.plan import Kind
from ipu_conformance.emulator.core.trace import Trace

_COLOURS = {
    "weights": "#4477aa",
    "optimizer_state": "#66ccee",
    "gradients": "#228833",
    "code": "#bbbbbb",
    "io_buffers": "#ccbb44",
    "stash": "#ee6677",
    "boundaries": "#aa3377",
    "working": "#ee8866",
}
PARTS = {part: _COLOURS[part] for part in (*PERSISTENT, *VARYING)}
"""A colour for every part of an IPU's memory; the colour-blind can tell them apart."""
KINDS = {"forward": "#4477aa", "recompute": "#66ccee", "backward": "#ee6677", "reduce": "#aa3377", "update": "#228833"}
MOST_SLOTS = 150
"""How many slots of one IPU a picture can show; the trace holds all of them."""
WIDTH, ROW = 1000, 22


def page(profile: Mapping[str, Any], timeline: Trace) -> str:
    """The page of a profile and its timeline."""
    events = _first(timeline.events)
    places = _places(events)
    return _template().render(
        program=profile["program"],
        memory=profile["memory"],
        cost=profile["cost"],
        ops=profile["ops"],
        places=places,
        slots=list(_slots(events, places)),
        all_slots=len(timeline),
        cost_rows=_cost_rows(profile["cost"]),
        program_rows=[(_words(name), _text(value)) for name, value in profile["program"].items()],
        configuration_rows=list(_flat(profile.get("configuration", {}))),
    )


@functools.lru_cache(maxsize=None)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.ChainableUndefined
    )
    environment.filters.update(words=_words, size=size_text)
    environment.globals.update(PARTS=PARTS, KINDS=KINDS, WIDTH=WIDTH, ROW=ROW)
    return environment.get_template("page.html")


def _slots(events: np.ndarray, places: List[Tuple[int, int]]) -> Iterator[Dict[str, Any]]:
    """What is drawn of each slot; the last one ends at the right edge."""
    end = int((events["start"] + events["duration"]).max()) if len(events) else 0
    for event in events:
        kind = str(Kind(int(event["kind"])))
        of = "" if event["micro_batch"] < 0 else f", micro-batch {event['micro_batch']}"
        yield {
            "kind": kind,
            "row": places.index((int(event["replica"]), int(event["ipu"]))),
            "left": event["start"] / end * WIDTH,
            "width": max(0.5, event["duration"] / end * WIDTH - 0.5),
            "title": f"{kind} of stage {event['stage']}{of}, tick {event['tick']}, {event['duration']} ns",
        }


def _first(events: np.ndarray) -> np.ndarray:
    """The slots that begin before one of the IPUs has more of them than a picture can show."""
    rows = [events["start"][(events["replica"] == r) & (events["ipu"] == i)] for r, i in _places(events)]
    ends = [np.sort(starts)[MOST_SLOTS] for starts in rows if len(starts) > MOST_SLOTS]
    return events[events["start"] < min(ends)] if ends else events


def _places(events: np.ndarray) -> List[Tuple[int, int]]:
    return [(int(replica), int(ipu)) for replica, ipu in np.unique(events[["replica", "ipu"]])]


def _cost_rows(cost: Mapping[str, Any]) -> List[Tuple[str, str]]:
    if "not_estimated" in cost:
        return []
    return [
        ("cycles", f"{cost['cycles']:,.0f}"),
        ("seconds", f"{cost['seconds']:.6f}"),
        ("waiting", f"{cost['bubble']:.1%}"),
        *((f"IPU {ipu} busy", f"{share:.1%}") for ipu, share in enumerate(cost["utilisation"])),
        ("multiply-accumulates", f"{cost['macs']:,.0f}"),
    ]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _text(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str:
    return ", ".join(f"{name} {inner}" for name, inner in value.items()) if isinstance(value, dict) else str(value)

"""Traces of events, which programs of SDK 1.x fetch and print: there is no compiler here that writes any."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from ipu_conformance.emulator.tensorflow import legacy
from ipu_conformance.emulator.tensorflow.refusals import legacy as refusals


def ipu_event_trace(name: Optional[str] = None) -> Any:
    """The events since the last trace, serialised one by one: none."""
    import tensorflow as tf

    legacy.entered("gen_ipu_ops.ipu_event_trace")
    tf.get_logger().warning("The emulator records no events: a trace is empty, see autoReport.all for its reports.")
    with tf.device("/device:CPU:0"):
        return tf.zeros([0], tf.string, name=name)


def _reading(empty: Callable[[], Any]) -> Callable[[Any], Any]:
    """A function that reads a trace; only an empty one has a meaning here."""

    def read(events: Any) -> Any:
        refusals.EVENTS_READ(number=len(events))
        return empty()

    return read


def _nothing() -> List[Any]:
    return []


FUNCTIONS: Dict[str, Callable[[Any], Any]] = {
    "extract_all_strings_from_event_trace": _reading(str),
    "extract_all_types_from_event_trace": _reading(_nothing),
    "extract_all_events": _reading(_nothing),
    "extract_compile_reports": _reading(_nothing),
    "extract_execute_reports": _reading(_nothing),
}
"""What ``ipu.utils`` had to read a trace."""

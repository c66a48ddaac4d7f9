"""Ways for loaders to be wrong: combined batches of the wrong size, shared or lost samples, mixed passes."""

from __future__ import annotations

from typing import Any, Tuple

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault

catalogue.register_point(
    "loader.factor", "value: how many micro-batches one call consumes; options: the loader's options"
)
catalogue.register_point("loader.share", "value: the index of the first sample of this process")
catalogue.register_point("loader.rebatched", "value: whether the rows left at the end are dropped")
catalogue.register_point(
    "loader.received", "value: (kind, item) from the worker; consumed: how many elements came before"
)


def _cut_short(value: Tuple[str, Any], consumed: int) -> Tuple[str, Any]:
    return ("end", None) if value[0] == "element" and consumed == 1 else value


for _fault in (
    Fault("loader-ignores-accumulation", "streams", "loader.factor", "a combined batch has one micro-batch an update",
          lambda value, options, **context: value // options.Training.gradient_accumulation),
    Fault("loader-ignores-device-iterations", "streams", "loader.factor", "a combined batch has one device iteration",
          lambda value, options, **context: value // options.device_iterations),
    Fault("loader-ignores-input-groups", "streams", "loader.factor", "grouped replicas are each fed their own input",
          lambda value, options, **context: value * options.input_group_size),
    Fault("loader-shares-overlap", "streams", "loader.share", "every process loads the same samples",
          lambda value, **context: 0),
    Fault("loader-rebatch-keeps-rest", "streams", "loader.rebatched", "the rows left at the end are never dropped",
          lambda value, **context: False),
    Fault("loader-rebatch-loses-rest", "streams", "loader.rebatched", "the rows left at the end are always dropped",
          lambda value, **context: True),
    Fault("loader-pass-ends-early", "streams", "loader.received", "a pass in another process ends after one element",
          lambda value, consumed, **context: _cut_short(value, consumed)),
    Fault("loader-failure-is-an-end", "streams", "loader.received", "a failure in the worker looks like the end",
          lambda value, **context: ("end", None) if value[0] == "failure" else value),
):  # fmt: skip
    catalogue.register(_fault, __name__)

"""The engines that execute a graph."""

from __future__ import annotations

from typing import Callable, Iterable, Mapping, Optional, Sequence

from ipu_conformance.interpreter import machine, onnx_runtime
from ipu_conformance.interpreter.calls import Array, ExecutionError
from ipu_conformance.interpreter.machine import Outcome
from ipu_conformance.ir.graph import Graph

ENGINES: Mapping[str, Callable[..., Outcome]] = {"oracle": machine.run, "onnxruntime": onnx_runtime.run}


def execute(
    graph: Graph,
    inputs: Mapping[str, Array],
    *,
    engine: str = "oracle",
    schedule: str = "grouped",
    fetches: Iterable[str] = (),
    rates: Optional[Sequence[float]] = None,
) -> Outcome:
    """What an engine makes of a graph and its inputs.

    A dump holds the learning rate of one update; ``rates`` are those of all updates, as shares of it.
    """
    if engine not in ENGINES:
        raise ExecutionError(f"engine {engine!r} is unknown: choose one of {', '.join(ENGINES)}.")
    return ENGINES[engine](graph, inputs, schedule=schedule, fetches=fetches, rates=rates)

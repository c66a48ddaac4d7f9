"""A device in NumPy: it computes calls of ops with the oracle's functions, and may be wrong on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from ipu_conformance.frameworks import OpCall, OpResult
from ipu_conformance.ops import TABLE, Row
from ipu_conformance.ops.row import LIBRARIES
from ipu_conformance.oracle.op import as_tuple
from ipu_conformance.trials.bench import Bench

Forward = Callable[..., Any]
Gradient = Callable[..., Sequence[Optional[np.ndarray]]]


class NumpyDevice:
    """What a driver of single ops offers; results are rounded to the type that is asked for."""

    def __init__(self, row: Row, forward: Optional[Forward] = None, gradient: Optional[Gradient] = None) -> None:
        calls = dict.fromkeys(LIBRARIES.values(), lambda module, *inputs, **attributes: None)
        self.row = replace(row, **calls)  # type: ignore[arg-type]
        self.forward = forward or row.op.forward
        self.gradient = gradient or row.op.vjp
        self.programs: List[int] = []

    def run_ops(self, calls: Sequence[OpCall], dtype: str) -> Sequence[OpResult]:
        """The outputs by micro-batch, and the gradients' sums."""
        self.programs.append(len(calls))
        return [self._result(call, dtype) for call in calls]

    def why_inexpressible(self, call: OpCall, dtype: str) -> Optional[str]:
        """It can express everything."""
        return None

    def _result(self, call: OpCall, dtype: str) -> OpResult:
        with np.errstate(all="ignore"):
            outputs = [
                tuple(_held(value, dtype) for value in as_tuple(self.forward(*inputs, **call.attributes)))
                for inputs in call.inputs
            ]
            gradients: Dict[int, np.ndarray] = {}
            for inputs, factors in zip(call.inputs, call.factors):
                cotangents = factors if len(outputs[0]) > 1 else factors[0]
                pulled = self.gradient(cotangents, *inputs, **call.attributes)
                for place in call.wanted:
                    value = np.asarray(pulled[place]).astype(dtype)
                    gradients[place] = gradients[place] + value if place in gradients else value
        return OpResult(tuple(outputs), gradients)


def _held(value: Any, dtype: str) -> np.ndarray:
    array = np.asarray(value)
    kind = str(array.dtype)
    return array.astype(dtype if array.dtype.kind == "f" else {"int64": "int32"}.get(kind, kind))


def bench(name: str, edges: Sequence[str], dtype: str = "float32", **wrong: Any) -> Bench:
    """The bench of one op on a device in NumPy."""
    device: Any = NumpyDevice(TABLE[name], **wrong)
    return Bench("poptorch", device, dtype, [(device.row, edge) for edge in edges])

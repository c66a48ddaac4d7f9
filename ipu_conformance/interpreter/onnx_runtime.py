"""ONNX Runtime as an engine: the forward pass of a dump, by an implementation that is nobody's here."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.interpreter.calls import NUMPY, Array, Call, ExecutionError, placed
from ipu_conformance.interpreter.inputs import Feed, feed
from ipu_conformance.interpreter.machine import Outcome
from ipu_conformance.interpreter.soundness import COPY
from ipu_conformance.interpreter.updates import UPDATES
from ipu_conformance.ir import files
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor

MODULE = "onnxruntime"

KEPT = ("mode", "nearest_mode", "coordinate_transformation_mode")
"""The attributes of a Resize that ONNX has, too."""
UNUSED = np.zeros(0, "<f4")
"""What a Resize has for regions and scales where it is given sizes."""


def _slice(call: Call) -> Iterator[Tuple[str, Array]]:
    starts = call.attribute("starts")
    for word, default in (("starts", ()), ("ends", ()), ("axes", range(len(starts))), ("steps", (1,) * len(starts))):
        yield word, np.array(call.attribute(word, default=tuple(default) or None), "<i8")


READ: Mapping[str, Callable[[Call], Iterable[Tuple[str, Array]]]] = {
    "Reshape": lambda call: [("shape", np.array(call.shape(), "<i8"))],
    "Slice": _slice,
    "Resize": lambda call: [("roi", UNUSED), ("scales", UNUSED), ("sizes", np.array(call.shape(), "<i8"))],
}
"""What these ops of ONNX read besides their value, in their order."""


def run(
    graph: Graph,
    given: Mapping[str, Array],
    *,
    schedule: str = "grouped",
    fetches: Iterable[str] = (),
    rates: Optional[Sequence[float]] = None,
) -> Outcome:
    """Execute the forward pass of a graph, micro-batch by micro-batch; schedule and rates make no difference to it."""
    wanted = list(dict.fromkeys((*graph.outputs, *fetches)))
    fed = feed(graph, given)
    plain = _plain(graph, wanted)
    session = _session(files.dumps(plain, "onnx"))
    rows: Dict[str, List[Array]] = {name: [] for name in wanted}
    for place in np.ndindex(*fed.counts):
        values = session.run(wanted, _fed(plain, fed, place))
        for name, value in zip(wanted, values):
            rows[name].append(np.asarray(value, np.float64))
    outputs = {name: np.stack(each).reshape((*fed.counts, *each[0].shape)) for name, each in rows.items()}
    return Outcome(outputs, tuple(dict(fed.held) for _ in range(fed.counts[2])))


def _plain(graph: Graph, wanted: Sequence[str]) -> Graph:
    """The same graph without placement: copies are identities, and what has no value is an input.

    PopART has in attributes, or in the declared shape of an output, what ops of ONNX read as inputs.
    """
    ops: List[Op] = []
    read: Dict[str, Array] = {}
    for op in graph.ops:
        if op.type in UPDATES or op.type.endswith("Grad") or "::" in op.type:
            raise ExecutionError(f"{placed(op)} is not known to the engine {MODULE}, which runs ONNX' forward ops.")
        attributes = {key: value for key, value in op.attributes.items() if not _ours(op, key)}
        # The runtime takes no two ops of one name.
        plain = replace(op, name="", attributes=attributes, ipu=None, stage=None)
        if op.type == COPY:
            plain = replace(plain, type="Identity", attributes={})
        elif op.type in READ and len(op.inputs) == 1:
            values = {f"{op.outputs[0]}/{word}": value for word, value in READ[op.type](Call(op, (None,), graph))}
            read.update(values)
            kept = {key: value for key, value in attributes.items() if key in KEPT}
            plain = replace(plain, inputs=(*op.inputs, *values), attributes=kept)
        ops.append(plain)
    valueless = [name for name, data in graph.initializers.items() if data is None]
    held = {name: data for name, data in graph.initializers.items() if data is not None}
    held.update({name: value.tobytes() for name, value in read.items()})
    return Graph(
        name=graph.name,
        ops=ops,
        inputs=[*graph.inputs, *valueless],
        outputs=wanted,
        tensors=[
            *graph.tensors.values(),
            *(
                Tensor(name, "INT64" if value.dtype.kind == "i" else "FLOAT", value.shape)
                for name, value in read.items()
            ),
        ],
        initializers=held,
        opset=graph.opset,
    )


def _ours(op: Op, key: str) -> bool:
    """Is an attribute PopART's alone?"""
    return key.startswith("__") or key in ("recompute", "availableMemoryProportion", "training")


def _session(model: bytes) -> Any:
    try:
        runtime = importlib.import_module(MODULE)
    except ImportError as error:
        raise ExecutionError(f"the engine {MODULE} is not installed: pip install ipu-conformance[{MODULE}].") from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has no common base class for what it raises
        raise ExecutionError(f"{MODULE} does not take the model: {str(error).splitlines()[0]}") from error


def _fed(graph: Graph, fed: Feed, place: Any) -> Dict[str, Array]:
    """The values of one micro-batch in the types that the graph declares."""
    values = {name: fed.streams[name][place] if name in fed.streams else fed.held[name] for name in graph.inputs}
    return {
        name: np.asarray(value).astype(NUMPY.get(graph.tensors[name].dtype, "<f4")) for name, value in values.items()
    }

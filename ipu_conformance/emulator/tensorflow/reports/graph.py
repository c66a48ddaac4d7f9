"""A TensorFlow function in the terms of the estimates: which ops it computes, and how large its tensors are.

Ops whose cost is known get ONNX's names; any other keeps its own under the domain ``tensorflow``, is taken for
element-wise, and the profile names it. Functions that are called are read as a part of their caller.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import BITS, Tensor

StageOf = Callable[[str], int]
"""The stage of an op, by its name: ``sequential/dense/MatMul``."""

DOMAIN = "tensorflow"
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LEFT_OUT = ("NoOp", "Placeholder", "VarHandleOp")
"""What takes no time and no room of its own."""

_NAMES = (
    ("Add", "Add AddV2 BiasAdd AddN"),
    ("MatMul", "BatchMatMulV2"),
    ("Mul", "Mul Square SquaredDifference"),
    ("Div", "RealDiv Div DivNoNan"),
    ("Sqrt", "Sqrt Rsqrt"),
    ("Where", "Select SelectV2"),
    ("Relu", "Relu Relu6"),
    ("Max", "Maximum"),
    ("Min", "Minimum"),
    ("ReduceSum", "Sum"),
    ("ReduceMean", "Mean"),
    ("ReduceMax", "Max"),
    ("ReduceMin", "Min"),
    ("BatchNormalization", "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"),
    ("SoftmaxCrossEntropyLoss", "SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits"),
    ("Constant", "Const"),
    ("Gather", "GatherV2 ResourceGather"),
    ("Concat", "ConcatV2 Pack"),
    ("Split", "Split SplitV Unpack"),
    ("Slice", "StridedSlice Slice"),
    ("Pad", "Pad PadV2 MirrorPad"),
    ("Expand", "BroadcastTo"),
    ("Unsqueeze", "ExpandDims"),
    ("Identity", "Identity StopGradient PreventGradient"),
)
SAME = (
    "Sub Neg Abs LeakyRelu Cast Floor Ceil Round Sign Exp Log Pow Sigmoid Tanh Sin Cos Erf Elu Selu Softplus Softsign "
    "Softmax LogSoftmax Equal Greater Less ArgMax ArgMin Transpose Reshape Squeeze Shape Tile"
)
TYPES: Mapping[str, str] = {
    **{name: name for name in SAME.split()},
    **{name: ours for ours, names in _NAMES for name in names.split()},
}
_DTYPES = {"float32": "FLOAT", "float64": "DOUBLE", **{name.lower(): name for name in BITS}}


def of_function(
    function: Callable[..., Any],
    specs: Sequence[Any],
    stage_of: Optional[StageOf] = None,
    *,
    results_only: bool = False,
) -> Graph:
    """The graph of a function that is built for tensors of these specs, which must have full shapes.

    With ``results_only``, what its results do not depend on (the state of metrics, for one) is left out.
    """
    import tensorflow as tf

    concrete = tf.function(function).get_concrete_function(*specs)
    graph = read(concrete.graph, function_name(concrete), stage_of)
    return needed(graph) if results_only else graph


def function_name(concrete: Any) -> str:
    """The name of a ConcreteFunction, which some versions give as bytes."""
    return concrete.name if isinstance(concrete.name, str) else concrete.name.decode()


def needed(graph: Graph) -> Graph:
    """The part of a graph that its outputs depend on."""
    wanted = set(graph.outputs)
    kept: List[Op] = []
    for op in reversed(graph.ops):
        if wanted.intersection(op.outputs):
            kept.append(op)
            wanted.update(name for name in op.inputs if name)
    declared = {*wanted, *graph.inputs, *(name for op in kept for name in op.outputs if name)}
    return Graph(
        graph.name,
        reversed(kept),
        graph.inputs,
        graph.outputs,
        [tensor for name, tensor in graph.tensors.items() if name in declared],
        [name for name in graph.initializers if name in wanted],
    )


def read(graph: Any, name: str = "program", stage_of: Optional[StageOf] = None) -> Graph:
    """A graph of TensorFlow (a FuncGraph, or that of a ConcreteFunction) in the terms of the estimates."""
    reader = _Reader(stage_of)
    variables = {id(variable.handle): variable for variable in getattr(graph, "variables", ())}
    for outer, inner in getattr(graph, "captures", ()):
        if id(outer) in variables:
            reader.add_variable(inner, variables[id(outer)])
    for tensor in getattr(graph, "inputs", ()):
        if reader.is_value(tensor) and id(tensor) not in reader.names:
            reader.inputs.append(reader.add(tensor, tensor.name))
    reader.add_ops(graph, "")
    outputs = [reader.names[id(tensor)] for tensor in getattr(graph, "outputs", ()) if id(tensor) in reader.names]
    return Graph(name, reader.ops, reader.inputs, list(dict.fromkeys(outputs)), reader.tensors.values(), reader.weights)


class _Reader:
    """Collects ops and tensors; ``names`` holds what each of TensorFlow's tensors is called here."""

    def __init__(self, stage_of: Optional[StageOf]) -> None:
        self.stage_of = stage_of
        self.ops: List[Op] = []
        self.inputs: List[str] = []
        self.tensors: Dict[str, Tensor] = {}
        self.names: Dict[int, str] = {}
        self.variables: Dict[int, Any] = {}
        """By the tensor that refers to it, the variable that is read or written through it."""
        self.weights: List[str] = []
        self.stages: Dict[str, int] = {}

    def is_value(self, tensor: Any) -> bool:
        """Whether a tensor holds numbers, and so takes room."""
        return _DTYPES.get(tensor.dtype.base_dtype.name) is not None

    def add(self, tensor: Any, name: str, shape: Optional[Tuple[int, ...]] = None) -> str:
        """Declare a tensor."""
        rank = tensor.shape.rank
        known = shape if shape is not None else None if rank is None else tuple(tensor.shape.as_list())
        self.tensors[name] = Tensor(name, _DTYPES[tensor.dtype.base_dtype.name], known)
        self.names[id(tensor)] = name
        return name

    def add_variable(self, reference: Any, variable: Any) -> None:
        """Declare what a reference to a variable leads to."""
        self.variables[id(reference)] = variable
        if variable.name not in self.tensors:
            self.tensors[variable.name] = Tensor(
                variable.name, _DTYPES[variable.dtype.base_dtype.name], tuple(variable.shape.as_list())
            )
            self.weights.append(variable.name)

    def add_ops(self, graph: Any, prefix: str) -> None:
        """Read every op of a graph, in the order in which they were made."""
        for op in graph.get_operations():
            if op.type in LEFT_OUT:
                continue
            if op.type == "ReadVariableOp" and id(op.inputs[0]) in self.variables:
                self.names[id(op.outputs[0])] = self.variables[id(op.inputs[0])].name
            elif op.type in CALLS and self._called(graph, op) is not None:
                self._inline(graph, op, prefix)
            else:
                self._add_op(op, prefix)

    @staticmethod
    def _called(graph: Any, op: Any) -> Any:
        found = graph._get_function(op.get_attr("f").name)
        return getattr(found, "graph", None)

    def _inline(self, graph: Any, op: Any, prefix: str) -> None:
        inner = self._called(graph, op)
        for given, taken in zip(op.inputs, inner.inputs):
            if id(given) in self.variables:
                self.variables[id(taken)] = self.variables[id(given)]
            elif id(given) in self.names:
                self.names[id(taken)] = self.names[id(given)]
        self.add_ops(inner, f"{prefix}{op.name}/")
        for made, result in zip(inner.outputs, op.outputs):
            if id(made) in self.names:
                self.names[id(result)] = self.names[id(made)]

    def _add_op(self, op: Any, prefix: str) -> None:
        kind, attributes = _kind(op)
        inputs = [
            self.variables[id(tensor)].name if id(tensor) in self.variables else self.names.get(id(tensor), "")
            for tensor in op.inputs
        ]
        outputs = [self.add(tensor, prefix + tensor.name) if self.is_value(tensor) else "" for tensor in op.outputs]
        if kind == "Conv" and len(inputs) > 1 and inputs[1] in self.tensors:
            self._turn_filter(op, inputs[1])
        stage = self._stage(prefix + op.name, inputs)
        self.ops.append(Op(kind, prefix + op.name, _trimmed(inputs), _trimmed(outputs), attributes, stage=stage))
        self.stages.update(dict.fromkeys(outputs, stage or 0))

    def _stage(self, name: str, inputs: Sequence[str]) -> Optional[int]:
        """The stage of an op: what its name leads to, but never before what it reads."""
        if self.stage_of is None:
            return None
        return max([self.stage_of(name), *(self.stages.get(given, 0) for given in inputs)])

    def _turn_filter(self, op: Any, name: str) -> None:
        """TensorFlow's filters have their channels last, ONNX's first."""
        tensor = self.tensors[name]
        shape = tuple(op.inputs[1].shape.as_list())
        if op.type == "DepthwiseConv2dNative":
            turned: Tuple[Optional[int], ...] = (shape[2] * shape[3], 1, *shape[:2])
        else:
            turned = (shape[-1], shape[-2], *shape[:-2])
        self.tensors[name] = Tensor(tensor.name, tensor.dtype, turned)


def _kind(op: Any) -> Tuple[str, Dict[str, Any]]:
    """The type and the attributes that the cost of an op depends on."""
    if op.type == "MatMul":
        return ("Gemm", {"transA": 1}) if op.get_attr("transpose_a") else ("MatMul", {})
    if op.type in ("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2dNative"):
        return "Conv", {}
    if op.type in ("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"):
        sizes = list(op.get_attr("ksize"))
        last = op.get_attr("data_format") in (b"NHWC", b"NDHWC")
        window = sizes[1:-1] if last else sizes[2:]
        return ("MaxPool" if op.type.startswith("Max") else "AveragePool"), {"kernel_shape": window}
    if op.type == "BatchMatMulV2" and op.get_attr("adj_x"):
        return f"{DOMAIN}::{op.type}", {}
    return TYPES.get(op.type, f"{DOMAIN}::{op.type}"), {}


def _trimmed(names: Sequence[str]) -> Tuple[str, ...]:
    """The names without those that stand for nothing at the end."""
    length = max((index + 1 for index, name in enumerate(names) if name), default=0)
    return tuple(names[:length])

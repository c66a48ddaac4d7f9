"""Small networks that the tests of the IR share."""

from __future__ import annotations

import struct
from typing import Any, Optional

from ipu_conformance.ir import Graph, IRError, Op, Tensor, read

FLOAT = "FLOAT"


def survives(data: bytes, format: Optional[str] = None) -> None:
    """Read bytes: a graph comes of it, or the declared error in one line."""
    try:
        outcome: Any = read(data, format)
    except IRError as error:
        outcome = error
    assert isinstance(outcome, Graph) or "\n" not in str(outcome)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def convnet() -> Graph:
    """Conv, Relu and MaxPool on IPU 0, then Conv, Relu, Flatten and Gemm on IPU 1; valid ONNX with right shapes."""
    ops = [
        Op("Conv", "conv1", ("x", "w1"), ("c1",), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, ipu=0, stage=0),
        Op("Relu", "relu1", ("c1",), ("r1",), ipu=0, stage=0),
        Op("MaxPool", "pool1", ("r1",), ("p1",), {"kernel_shape": (2, 2), "strides": (2, 2)}, ipu=0, stage=0),
        Op("IpuCopy", "copy1", ("p1",), ("p1_copy",), ipu=0, stage=0),
        Op("Conv", "conv2", ("p1_copy", "w2"), ("c2",), {"kernel_shape": (3, 3)}, ipu=1, stage=1),
        Op("Relu", "relu2", ("c2",), ("r2",), ipu=1, stage=1),
        Op("Flatten", "flatten", ("r2",), ("f",), ipu=1, stage=1),
        Op("Gemm", "fc1", ("f", "w3", "b3"), ("y",), {"transB": 1, "alpha": 1.0}, ipu=1, stage=1),
    ]
    tensors = [
        Tensor("x", FLOAT, (5, 1, 8, 8)),
        Tensor("w1", FLOAT, (2, 1, 3, 3)),
        Tensor("c1", FLOAT, (5, 2, 8, 8)),
        Tensor("r1", FLOAT, (5, 2, 8, 8)),
        Tensor("p1", FLOAT, (5, 2, 4, 4)),
        Tensor("p1_copy", FLOAT, (5, 2, 4, 4)),
        Tensor("w2", FLOAT, (3, 2, 3, 3)),
        Tensor("c2", FLOAT, (5, 3, 2, 2)),
        Tensor("r2", FLOAT, (5, 3, 2, 2)),
        Tensor("f", FLOAT, (5, 12)),
        Tensor("w3", FLOAT, (4, 12)),
        Tensor("b3", FLOAT, (4,)),
        Tensor("y", FLOAT, (5, 4)),
    ]
    weights = {"w1": None, "w2": None, "w3": None, "b3": floats(1, 2, 3, 4)}
    return Graph("convnet", ops, ["x"], ["y"], tensors, weights)


def training(*, reduced: bool = True) -> Graph:
    """Two MatMuls in two stages with their backward pass mirrored, replicated gradients and updates."""
    ops = [
        Op("MatMul", "fwd0", ("x", "w0"), ("a",), ipu=0, stage=0),
        Op("IpuCopy", "send", ("a",), ("a1",), ipu=0, stage=0),
        Op("MatMul", "fwd1", ("a1", "w1"), ("y",), ipu=1, stage=1),
        Op("MatMulLhsGrad", "bwd1_in", ("y", "w1"), ("da",), ipu=1, stage=1),
        Op("MatMulRhsGrad", "bwd1_w", ("a1", "y"), ("dw1",), ipu=1, stage=1),
        Op("IpuCopy", "send_back", ("da",), ("da0",), ipu=1, stage=1),
        Op("MatMulRhsGrad", "bwd0_w", ("x", "da0"), ("dw0",), ipu=0, stage=0),
    ]
    for index in (0, 1):
        gradient = f"dw{index}"
        if reduced:
            ops.append(Op("ReplicatedAllReduce", f"reduce{index}", (gradient,), (f"r{index}",), ipu=index, stage=index))
            gradient = f"r{index}"
        ops.append(Op("Mul", f"scale{index}", (gradient, "rate"), (f"s{index}",), ipu=index, stage=index))
        update = ("SGD0VarUpdate", f"update{index}", (f"w{index}", f"s{index}"), (f"w{index}_new",))
        ops.append(Op(*update, ipu=index, stage=index))
    made = [name for op in ops for name in op.outputs]
    square = {"x": (5, 3), "w0": (3, 7), "w1": (7, 2), "rate": ()}
    tensors = [Tensor(name, FLOAT, shape) for name, shape in square.items()]
    return Graph(
        "training", ops, ["x"], ["y", "w0_new", "w1_new"], [*tensors, *map(Tensor, made)], ["w0", "w1", "rate"]
    )


def chain(types: str) -> Graph:
    """One op after the other, each reading the one before; ``types`` are separated by spaces."""
    kinds = types.split()
    ops = [Op(kind, f"{index}", (f"t{index}",), (f"t{index + 1}",)) for index, kind in enumerate(kinds)]
    tensors = [Tensor(f"t{index}", FLOAT, (2,)) for index in range(len(kinds) + 1)]
    return Graph("chain", ops, ["t0"], [f"t{len(kinds)}"], tensors)


def without(graph: Graph, name: str) -> Graph:
    """The graph without one op of one input and one output; what read it reads its input instead."""
    gone = next(op for op in graph.ops if op.name == name)
    old, new = gone.outputs[0], gone.inputs[0]

    def renamed(names):
        return tuple(new if given == old else given for given in names)

    ops = [
        Op(op.type, op.name, renamed(op.inputs), op.outputs, op.attributes, op.ipu, op.stage)
        for op in graph.ops
        if op is not gone
    ]
    tensors = [tensor for tensor in graph.tensors.values() if tensor.name != old]
    return Graph(graph.name, ops, graph.inputs, renamed(graph.outputs), tensors, graph.initializers, graph.opset)


def renamed(graph: Graph, order=None) -> Graph:
    """The same graph with other names everywhere and, if given, its ops in another order."""

    def new(name):
        return f"other/{name}" if name else name

    ops = [
        Op(
            op.type,
            new(op.name),
            tuple(map(new, op.inputs)),
            tuple(map(new, op.outputs)),
            op.attributes,
            op.ipu,
            op.stage,
        )
        for op in graph.ops
    ]
    return Graph(
        new(graph.name),
        [ops[index] for index in order] if order else ops,
        map(new, graph.inputs),
        map(new, graph.outputs),
        [Tensor(new(tensor.name), tensor.dtype, tensor.shape) for tensor in graph.tensors.values()],
        {new(name): data for name, data in graph.initializers.items()},
        graph.opset,
    )


def layer(ipu: Optional[int] = None, stage: Optional[int] = None) -> Graph:
    """A matrix times a weight plus a bias, through a tanh: what the layers of the frameworks' files are read as."""
    ops = [
        Op("MatMul", "", ("in", "weight"), ("product",), ipu=ipu, stage=stage),
        Op("Add", "", ("product", "bias"), ("sum",), ipu=ipu, stage=stage),
        Op("Tanh", "", ("sum",), ("out",), ipu=ipu, stage=stage),
    ]
    shapes = {"in": (None, 3), "weight": (3, 4), "bias": (4,), "product": (None, 4), "sum": (None, 4), "out": (None, 4)}
    tensors = [Tensor(name, FLOAT, shape) for name, shape in shapes.items()]
    return Graph("expected", ops, ["in"], ["out"], tensors, ["weight", "bias"])

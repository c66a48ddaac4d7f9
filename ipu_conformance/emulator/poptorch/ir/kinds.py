"""How the operations of each kind of row become ops: one function a kind, which writes through the forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, Tuple

import torch
from torch.fx import Node

from ipu_conformance.emulator.poptorch.ir import recurrent
from ipu_conformance.emulator.poptorch.ir.rows import TYPES, Row, adaptive
from ipu_conformance.ir.tensor import Tensor

if TYPE_CHECKING:
    from ipu_conformance.emulator.poptorch.ir.forward import Forward

_REDUCED = ("", "ReduceMean", "ReduceSum")


def described(name: str, value: torch.Tensor) -> Tensor:
    return tensor(name, TYPES[value.dtype], value.shape)


def tensor(name: str, dtype: str, shape: Sequence[int]) -> Tensor:
    return Tensor(name, dtype, tuple(int(length) for length in shape))


def window(forward: Forward, node: Node, row: Row) -> None:
    """A convolution or pool; a single image is a batch of one in between."""
    rank = int(forward.base(node)[-2])
    inputs = forward.tensors(node, row.inputs)
    shape = forward.program.shape(inputs[0])
    if len(shape) == rank + 2:
        forward.plain(node, row)
        return
    batch = (1, *shape)
    inputs[0] = forward.between(node, "Reshape", [inputs[0]], batch, {"shape": batch})
    attributes = row.attributes(forward.values(node), batch)
    result = tuple(int(length) for length in node.meta["val"].shape)
    pooled = forward.between(node, row.types[0], inputs, (1, *result), attributes)
    forward.add(node, "Reshape", [pooled], {"shape": result})


def softmax(forward: Forward, node: Node, row: Row) -> None:
    """A softmax, of values in the type of its result."""
    name = forward.cast(node, forward.tensors(node)[0], TYPES[node.meta["val"].dtype])
    forward.add(node, row.types[0], [name], row.attributes(forward.values(node), forward.program.shape(name)))


def broadcast(forward: Forward, node: Node, row: Row) -> None:
    """Every tensor in the shape of all; those that have it already are left alone."""
    names = []
    for value in forward.values(node)["tensors"]:
        name, shape = forward.name(value), tuple(node.meta["val"][0].shape)
        names.append(name if forward.program.shape(name) == shape else forward.between(node, "Expand", [name], shape))
    forward.names[node] = tuple(names)


def binary(forward: Forward, node: Node, row: Row) -> None:
    """Two operands of one type; numbers become constants."""
    values = forward.values(node)
    operands = [values[name] for name in row.inputs or () if values.get(name) is not None]
    result = node.meta["val"]
    kind = TYPES[result.dtype]
    if kind == "BOOL" and row.types[0] in ("Equal", "Greater", "Less"):
        kind = TYPES[_common([value.meta["val"] if isinstance(value, Node) else value for value in operands])]
    names = [
        forward.cast(node, forward.name(value), kind)
        if isinstance(value, Node)
        else forward.program.constant(f"{node.name}/constant", kind, value)
        for value in operands
    ]
    alpha = values.get("alpha", 1)
    if alpha != 1 and not isinstance(alpha, Node):
        last = 0 if row.inputs and row.inputs[0] == "other" else 1
        names[last] = forward.between(
            node, "Scale", [names[last]], forward.program.shape(names[last]), {"scale": alpha}
        )
    if len(row.types) > 1:
        compared = tensor(f"{node.name}/{row.types[0]}", "BOOL", result.shape)
        names = [forward.emit(node, row.types[0], names, [compared], {})[0]]
    forward.add(node, row.types[-1], names, {})


def linear(forward: Forward, node: Node, row: Row) -> None:
    """The transposed weight times the input, and the bias added."""
    values = forward.values(node)
    x, weight = forward.name(values["input"]), forward.name(values["weight"])
    shape = forward.program.shape(weight)
    turned = forward.between(node, "Transpose", [weight], shape[::-1], {"perm": tuple(range(len(shape)))[::-1]})
    if values.get("bias") is None:
        forward.add(node, "MatMul", [x, turned], {})
        return
    product = forward.between(node, "MatMul", [x, turned], (*forward.program.shape(x)[:-1], shape[0]))
    forward.add(node, "Add", [product, forward.name(values["bias"])], {})


def reshape(forward: Forward, node: Node, row: Row) -> None:
    """Other dimensions for the same values."""
    result = tuple(int(length) for length in node.meta["val"].shape)
    forward.add(node, "Reshape", forward.tensors(node, ("self",)), {"shape": result})


def select(forward: Forward, node: Node, row: Row) -> None:
    """A slice of length one, and its dimension taken away."""
    values = forward.values(node)
    name = forward.name(values["self"])
    shape = list(forward.program.shape(name))
    attributes = row.attributes(values, shape)
    shape[attributes["axes"][0]] = 1
    cut = forward.between(node, "Slice", [name], shape, attributes)
    forward.add(node, "Reshape", [cut], {"shape": tuple(int(length) for length in node.meta["val"].shape)})


def stack(forward: Forward, node: Node, row: Row) -> None:
    """The tensors with a dimension more, joined along it."""
    axis = row.attributes(forward.values(node), node.meta["val"].shape)["axis"]
    names = []
    for value in forward.values(node)["tensors"]:
        shape = list(forward.program.shape(forward.name(value)))
        shape.insert(axis, 1)
        names.append(forward.between(node, "Reshape", [forward.name(value)], shape, {"shape": tuple(shape)}))
    forward.add(node, "Concat", names, {"axis": axis})


def extremum(forward: Forward, node: Node, row: Row) -> None:
    """A reduction; with its positions, or of two tensors, it is another op."""
    values = forward.values(node)
    if isinstance(node.meta["val"], (list, tuple)):
        shape = forward.program.shape(forward.name(values["self"]))
        forward.add(node, "TopK", forward.tensors(node), {"axis": int(values["dim"]) % max(len(shape), 1), "k": 1})
    elif "other" in values:
        forward.add(node, row.types[0][len("Reduce") :], forward.tensors(node), {})
    else:
        forward.plain(node, row)


def adaptive_pool(forward: Forward, node: Node, row: Row) -> None:
    """A pool whose windows follow from the size of its result."""
    inputs = forward.tensors(node)
    type, attributes = adaptive(forward.program.shape(inputs[0]), node.meta["val"].shape)
    forward.add(node, type, inputs, attributes)


def cast(forward: Forward, node: Node, row: Row) -> None:
    """Another type, or the tensor as it is."""
    inputs = forward.tensors(node, ("self",))
    kind = TYPES[node.meta["val"].dtype]
    if forward.program.dtype(inputs[0]) == kind:
        forward.add(node, "Identity", inputs, {})
    else:
        forward.add(node, "Cast", inputs, {"to": kind})


def dropout(forward: Forward, node: Node, row: Row) -> None:
    """Dropout where it drops, else nothing."""
    values = forward.values(node)
    if values.get("train", True):
        forward.add(node, "Dropout", forward.tensors(node), row.attributes(values, ()))
    else:
        forward.add(node, "Identity", forward.tensors(node), {})


def filled(forward: Forward, node: Node, row: Row) -> None:
    """A constant of one number, which is a tensor with its values and no op."""
    values = forward.values(node)
    number = values["fill_value"] if "fill_value" in values else float("ones" in forward.base(node))
    if isinstance(number, Node):
        forward.add(node, row.types[0], (), {})
    else:
        forward.names[node] = (forward.program.filled(described(node.name, node.meta["val"]), number),)


def masked(forward: Forward, node: Node, row: Row) -> None:
    """A choice between a number and the tensor."""
    values = forward.values(node)
    kind = TYPES[node.meta["val"].dtype]
    filled = values["value"]
    value = forward.name(filled) if isinstance(filled, Node) else forward.program.constant(
        f"{node.name}/constant", kind, filled
    )  # fmt: skip
    forward.add(node, "Where", [forward.name(values["mask"]), value, forward.name(values["self"])], {})


def cross_entropy(forward: Forward, node: Node, row: Row) -> None:
    """The logarithm of the softmax, and its negative log likelihood, for which classes are the last axis."""
    values = forward.values(node)
    name = forward.name(values["self"])
    shape = forward.program.shape(name)
    if len(shape) > 2:
        order = (0, *range(2, len(shape)), 1)
        shape = tuple(shape[axis] for axis in order)
        name = forward.between(node, "Transpose", [name], shape, {"perm": order})
    logs = forward.between(node, "LogSoftmax", [name], shape, {"axis": len(shape) - 1})
    forward.add(node, "Nll", [logs, *forward.tensors(node, row.inputs)[1:]], row.attributes(values, shape))


def lstm(forward: Forward, node: Node, row: Row) -> None:
    """ONNX's LSTM for one layer in one direction; any other is an op of its own."""
    values = forward.values(node)
    if not recurrent.fits(values):
        forward.add(node, forward.generic(node), forward.tensors(node), {})
        return

    def between(
        type: str, inputs: Sequence[str], shapes: Sequence[Sequence[int]], attributes: Mapping[str, Any]
    ) -> Tuple[str, ...]:
        outputs = [tensor(f"{node.name}/{type}", forward.program.dtype(inputs[0]), shape) for shape in shapes]
        return forward.emit(node, type, inputs, outputs, attributes)

    x = forward.name(values["input"])
    if values["batch_first"]:
        x = recurrent.turned(between, x, forward.program.shape(x))
    weights = [forward.name(each) for each in values["params"]]
    ordered = [recurrent.gates(between, name, forward.program.shape(name)) for name in weights]
    hidden = forward.program.shape(weights[1])[1]
    (bias,) = between("Concat", ordered[2:], [(8 * hidden,)], {"axis": 0})
    stacked = [
        between("Unsqueeze", [name], [(1, *forward.program.shape(name))], {"axes": (0,)})[0]
        for name in (*ordered[:2], bias)
    ]
    steps, batch, _ = forward.program.shape(x)
    state = (1, batch, hidden)
    states = [forward.name(each) for each in values["hx"]]
    sequence, *ends = between(
        "LSTM", [x, *stacked, "", *states], [(steps, 1, batch, hidden), state, state], {"hidden_size": hidden}
    )
    (flat,) = between("Squeeze", [sequence], [(steps, batch, hidden)], {"axes": (1,)})
    forward.names[node] = (recurrent.turned(between, flat, (steps, batch, hidden)) if values["batch_first"] else flat,
                        *ends)  # fmt: skip


def distance(forward: Forward, node: Node, row: Row) -> None:
    """A function of the difference, and its mean or sum."""
    values = forward.values(node)
    first, second = (forward.name(values[name]) for name in ("self", "target"))
    shape = torch.broadcast_shapes(forward.program.shape(first), forward.program.shape(second))
    second = forward.cast(node, second, forward.program.dtype(first))
    reduced = _REDUCED[int(values.get("reduction", 1))]
    difference = forward.between(node, "Sub", [first, second], shape)
    if not reduced:
        forward.add(node, row.types[1], [difference], {})
        return
    distances = forward.between(node, row.types[1], [difference], shape)
    forward.add(node, reduced, [distances], {"axes": tuple(range(len(shape))), "keepdims": 0})


def _common(operands: Sequence[Any]) -> torch.dtype:
    if len(operands) < 2:
        return torch.float32
    return torch.result_type(operands[0], operands[1])


KINDS: Mapping[str, Callable[[Any, Node, Row], None]] = {
    "window": window,
    "softmax": softmax,
    "broadcast": broadcast,
    "binary": binary,
    "linear": linear,
    "reshape": reshape,
    "select": select,
    "stack": stack,
    "extremum": extremum,
    "adaptive_pool": adaptive_pool,
    "cast": cast,
    "dropout": dropout,
    "filled": filled,
    "masked": masked,
    "cross_entropy": cross_entropy,
    "distance": distance,
    "lstm": lstm,
}
"""By the kind of a row; a plain one is the forward pass's own."""

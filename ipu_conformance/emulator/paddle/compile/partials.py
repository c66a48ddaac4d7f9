"""Matrix products whose partial sums are held in float16, where the strategy asks for it.

Paddle's kernels sum in float32. With ``partials_type_matmuls`` (or ``enable_half_partial``) set to half, the products
of float16 matrices, forwards and backwards, are computed by the core's model of the matrix unit instead. Convolutions
hold their partial sums in float32 on the emulator.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Tuple

import numpy as np

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core import numerics
from ipu_conformance.emulator.paddle.compile import subprograms

Array = np.ndarray

_ATTRIBUTES: Mapping[str, Tuple[str, ...]] = {
    "matmul_v2": ("trans_x", "trans_y"),
    "mul": ("x_num_col_dims", "y_num_col_dims"),
}
"""The products of Paddle's, with the attributes that say what is multiplied."""

_GRADIENT = "_grad"


def are_half(strategy: Any) -> bool:
    """Whether the strategy asks for partial sums in float16."""
    held = "float16" if strategy.value("partials_type_matmuls") == "half" else "float32"
    return faults.at("numerics.partials", held) == "float16"


def replace(block: Any, halves: FrozenSet[str]) -> None:
    """Turn products of float16 matrices into calls that hold partial sums in float16."""
    for index in range(block.op_size()):
        op = block.op(index)
        kind = op.type()[: -len(_GRADIENT)] if op.type().endswith(_GRADIENT) else op.type()
        if kind not in _ATTRIBUTES or not halves.issuperset([*op.input("X"), *op.input("Y")]):
            continue
        attributes = {name: op.attr(name) for name in _ATTRIBUTES[kind]}
        if kind == op.type():
            _call(op, ["X", "Y"], ["Out"], _forward(kind, attributes))
        else:
            wanted = [slot for slot in ("X@GRAD", "Y@GRAD") if slot in op.output_names() and op.output(slot)]
            _call(op, ["X", "Y", "Out@GRAD"], wanted, _backward(kind, attributes, wanted))


def _call(op: Any, read: List[str], written: List[str], function: Callable[..., List[Array]]) -> None:
    """Turn an op into a call of a function on the arrays of its slots."""
    inputs = [name for slot in read for name in op.input(slot)]
    outputs = [name for slot in written for name in op.output(slot)]

    def called(*tensors: Any) -> List[Any]:
        arrays = [np.array(tensor).astype(np.float16) for tensor in tensors]
        return [subprograms.tensor(result.astype(np.float32)) for result in function(*arrays)]

    for slot in op.input_names():
        op.remove_input(slot)
    for slot in op.output_names():
        op.remove_output(slot)
    op.set_type(subprograms.CALL)
    op.set_input("X", inputs)
    op.set_output("Out", outputs)
    op._set_attr("forward_callable_id", subprograms.register(called))
    op._set_attr("backward_callable_id", subprograms.NO_FUNCTION)
    op._set_attr("backward_skip_vars", [])


def _forward(kind: str, attributes: Mapping[str, Any]) -> Callable[..., List[Array]]:
    def forward(x: Array, y: Array) -> List[Array]:
        left, right = _matrices(kind, attributes, x, y)
        product = _dot(left, right)
        if kind == "mul":
            product = product.reshape(x.shape[: attributes["x_num_col_dims"]] + y.shape[attributes["y_num_col_dims"] :])
        return [product]

    return forward


def _backward(kind: str, attributes: Mapping[str, Any], wanted: List[str]) -> Callable[..., List[Array]]:
    def backward(x: Array, y: Array, grad: Array) -> List[Array]:
        left, right = _matrices(kind, attributes, x, y)
        if kind == "mul":
            grad = grad.reshape(left.shape[0], right.shape[1])
        gradients: Dict[str, Callable[[], Array]] = {
            "X@GRAD": lambda: _as_given(_dot(grad, _turned(right)), x, attributes.get("trans_x", False)),
            "Y@GRAD": lambda: _as_given(_dot(_turned(left), grad), y, attributes.get("trans_y", False)),
        }
        return [gradients[slot]() for slot in wanted]

    return backward


def _dot(left: Array, right: Array) -> Array:
    return numerics.dot(left, right, partials="float16")


def _turned(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)


def _matrices(kind: str, attributes: Mapping[str, Any], x: Array, y: Array) -> Tuple[Array, Array]:
    """The two factors as they are multiplied."""
    if kind == "mul":
        rows, inner = (int(np.prod(x.shape[: attributes["x_num_col_dims"]])), attributes["y_num_col_dims"])
        return x.reshape(rows, -1), y.reshape(int(np.prod(y.shape[:inner])), -1)
    return _turned(x) if attributes["trans_x"] else x, _turned(y) if attributes["trans_y"] else y


def _as_given(gradient: Array, value: Array, turned: bool) -> Array:
    """A factor's gradient in the factor's shape: turned back, and summed over what the factor was repeated for."""
    result = _turned(gradient) if turned else gradient
    while result.ndim > value.ndim:
        result = numerics.to_float16(result.astype(np.float32).sum(axis=0))
    for axis, (length, repeated) in enumerate(zip(value.shape, result.shape)):
        if length == 1 and repeated > 1:
            result = numerics.to_float16(result.astype(np.float32).sum(axis=axis, keepdims=True))
    return result.reshape(value.shape)

"""torch's LSTM of one layer as ONNX's op: sequences with steps first, and gates in another order."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Sequence, Tuple

ORDER = (0, 3, 1, 2)
"""Where ONNX's gates (input, output, forget, cell) are among torch's (input, forget, cell, output)."""

Between = Callable[[str, Sequence[str], Sequence[Tuple[int, ...]], Mapping[str, Any]], Tuple[str, ...]]
"""Adds an op of a type that reads tensors and makes values of these shapes, with these attributes."""


def fits(values: Mapping[str, Any]) -> bool:
    """Whether an operation is one layer in one direction with biases, of sequences in one tensor."""
    plain = values.get("num_layers") == 1 and not values.get("bidirectional") and not values.get("dropout")
    return "hx" in values and "params" in values and plain and len(values["params"]) == len(("w", "r", "b", "b"))


def gates(between: Between, name: str, shape: Sequence[int]) -> str:
    """A weight or a bias with its gates in ONNX's order."""
    whole, *rest = shape
    size = whole // len(ORDER)
    parts = between("Split", [name], [(size, *rest)] * len(ORDER), {"axis": 0, "split": (size,) * len(ORDER)})
    return between("Concat", [parts[gate] for gate in ORDER], [tuple(shape)], {"axis": 0})[0]


def turned(between: Between, name: str, shape: Sequence[int]) -> str:
    """A tensor with its first two dimensions swapped."""
    other: List[int] = [1, 0, *range(2, len(shape))]
    return between("Transpose", [name], [tuple(shape[axis] for axis in other)], {"perm": tuple(other)})[0]

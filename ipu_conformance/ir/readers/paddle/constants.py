"""Rows for the ops of Paddle's that make constants, ranges, masks and random numbers."""

from __future__ import annotations

import math
from dataclasses import replace

from ipu_conformance.ir.readers.op_writer import FLOATS, LARGEST_CONSTANT, LONGEST_LIST, length_of
from ipu_conformance.ir.readers.paddle.ops import Call, Writer, row
from ipu_conformance.ir.tensor import IRError, Literal


@row("shape")
def _shape(call: Call, to: Writer) -> None:
    wide = to.add("Shape", (call.read("Input"),), None, None, dtype="INT64", shape=to.shape(call.output()))
    to.cast(wide, to.dtype(call.output()), call.output())


@row("size")
def _size(call: Call, to: Writer) -> None:
    source, output = call.read("Input"), call.output()
    lengths = [length_of(length, source) for length in to.shape(source)]
    to.constant([math.prod(lengths)], to.dtype(output), to.sizes(output), output)


@row("fill_constant")
def _fill(call: Call, to: Writer) -> None:
    output = call.output()
    if call.inputs.get("ShapeTensor") or call.inputs.get("ValueTensor"):
        raise IRError(f"fill_constant that makes {output!r} has a shape or a value that is a tensor; give numbers")
    written = call.get("str_value")
    value = float(written) if written else float(call.get("value", 0.0))
    to.full(value, to.dtype(output), call.ints("shape"), output)


@row("fill_any_like", "fill_zeros_like")
def _fill_like(call: Call, to: Writer) -> None:
    output = call.output()
    sizes = to.sizes(call.read("X"))
    if -1 in sizes:
        raise IRError(f"{call.type} needs the shape of {call.read('X')!r}, which is not known")
    to.full(float(call.get("value", 0.0)) if call.type == "fill_any_like" else 0.0, to.dtype(output), sizes, output)


@row("assign_value")
def _assign_value(call: Call, to: Writer) -> None:
    output = call.output()
    lists = ("fp32_values", "int32_values", "int64_values", "bool_values", "fp64_values", "values")
    values = next((list(call.get(name)) for name in lists if call.get(name)), [])
    to.constant(values, to.dtype(output), call.ints("shape"), output)


@row("range")
def _range(call: Call, to: Writer) -> None:
    output = call.output()
    ends = [
        to.reshape(call.read(slot), ()) if to.shape(call.read(slot)) else call.read(slot)
        for slot in ("Start", "End", "Step")
    ]
    to.add("Range", ends, output)


@row("linspace")
def _linspace(call: Call, to: Writer) -> None:
    start, stop, output = call.read("Start"), call.read("Stop"), call.output()
    count = _written_number(call.read("Num"), to)
    if to.dtype(output) not in FLOATS or not 0 < count <= LARGEST_CONSTANT:
        raise IRError(
            f"linspace makes {count} of {to.dtype(output)}; 1 to {LARGEST_CONSTANT} numbers of floating point are made"
        )
    shares = to.constant([place / max(count - 1, 1) for place in range(count)], to.dtype(output))
    dtype = to.dtype(output)
    low, high = (name if to.dtype(name) == dtype else to.cast(name, dtype) for name in (start, stop))
    way = to.add("Mul", (to.add("Sub", (high, low)), shares), None, None, shape=(count,))
    to.add("Add", (low, way), output)
    to.tensors[output] = replace(to.tensors[output], shape=(count,))  # Paddle forgets it when it infers shapes


def _written_number(name: str, to: Writer) -> int:
    """The whole number that the program itself writes into a variable."""
    for op in reversed(to.ops):
        if name in op.outputs:
            literal = op.attributes.get("value")
            if op.type == "Constant" and isinstance(literal, Literal):
                return int.from_bytes(literal.data, "little", signed=True)
            break
    raise IRError(f"{name!r} is a number that is computed or fed; give it as a number")


@row("tril_triu")
def _triangle(call: Call, to: Writer) -> None:
    made, source = call.output(), call.read("X")
    sizes = to.sizes(source)[-2:]
    if -1 in sizes or len(sizes) < 2 or max(sizes) > LONGEST_LIST:
        raise IRError(f"tril_triu needs a known last matrix of {source!r}, of at most {LONGEST_LIST} rows and columns")
    lower, offset = bool(call.get("lower", True)), int(call.get("diagonal", 0))
    kept = [(column <= line + offset) if lower else (column >= line + offset)
            for line in range(sizes[0]) for column in range(sizes[1])]  # fmt: skip
    mask = to.constant([int(flag) for flag in kept], "BOOL", sizes)
    to.add("Where", (mask, source, to.number(0, source)), made)


@row("eye")
def _eye(call: Call, to: Writer) -> None:
    lines, columns = int(call.get("num_rows", 1)), int(call.get("num_columns", -1))
    columns = lines if columns < 0 else columns
    if max(lines, columns) > LONGEST_LIST:
        raise IRError(f"eye has {lines} rows and {columns} columns; at most {LONGEST_LIST} are written")
    values = [int(line == column) for line in range(lines) for column in range(columns)]
    to.constant(values, to.dtype(call.output()), (lines, columns), call.output())


@row("uniform_random", "gaussian_random", "truncated_gaussian_random")
def _random(call: Call, to: Writer) -> None:
    output = call.output()
    common = {
        "shape": call.ints("shape"),
        "dtype": 1 if to.dtype(output) == "FLOAT" else 10,
        "seed": float(call.get("seed", 0)),
    }
    if call.type == "uniform_random":
        bounds = {"low": float(call.get("min", -1)), "high": float(call.get("max", 1))}
        to.add("RandomUniform", (), output, {**common, **bounds})
    else:
        parts = {"mean": float(call.get("mean", 0)), "scale": float(call.get("std", 1))}
        to.add("RandomNormal", (), output, {**common, **parts})


@row("bernoulli")
def _bernoulli(call: Call, to: Writer) -> None:
    source = call.read("X")
    drawn = to.add("RandomUniformLike", (source,), None, {"low": 0.0, "high": 1.0})
    to.cast(to.add("Less", (drawn, source), dtype="BOOL"), to.dtype(call.output()), call.output())


@row("fill_constant_batch_size_like")
def _fill_batch(call: Call, to: Writer) -> None:
    output = call.output()
    sizes = to.sizes(output)
    if -1 in sizes:
        raise IRError(f"{call.type} needs the shape of {output!r}, which is not known")
    written = call.get("str_value")
    to.full(float(written) if written else float(call.get("value", 0.0)), to.dtype(output), sizes, output)

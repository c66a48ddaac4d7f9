"""Rows for the ops of Paddle's that contract tensors by names of dimensions, and that read or write diagonals."""

from __future__ import annotations

import math
from typing import Dict, List, Sequence, Set, Tuple

from ipu_conformance.ir.readers.op_writer import LARGEST_CONSTANT, length_of
from ipu_conformance.ir.readers.paddle.ops import Call, Writer, row
from ipu_conformance.ir.tensor import IRError

_DOTS = "..."


@row("einsum")
def _einsum(call: Call, to: Writer) -> None:
    """Products of two at a time from the left, each a product of stacks of matrices."""
    names = list(call.inputs.get("Operands", ()))
    labels, wanted = _labels(str(call.get("equation", "")), [len(to.shape(name)) for name in names])
    if len(labels) != len(names):
        raise IRError(f"einsum has {len(names)} operands for {len(labels)} parts of its equation")
    so_far = _Labelled(*_without_repeats(to, names[0], labels[0]))
    for place in range(1, len(names)):
        later = set(wanted).union(*labels[place + 1 :])
        so_far = _product(to, so_far, _Labelled(*_without_repeats(to, names[place], labels[place])), later)
    so_far = _summed(to, so_far, set(wanted))
    order = [so_far.labels.index(label) for label in wanted]
    if order == sorted(order):
        to.add("Identity", (so_far.name,), call.output())
    else:
        to.transpose(so_far.name, order, call.output())


class _Labelled:
    """A tensor whose dimensions have names."""

    def __init__(self, name: str, labels: Sequence[str]) -> None:
        self.name, self.labels = name, tuple(labels)


def _labels(equation: str, ranks: Sequence[int]) -> Tuple[List[Tuple[str, ...]], Tuple[str, ...]]:
    """The names of the dimensions of each operand and of the result; dots stand for dimensions counted from the end."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    wide = max((rank - len(part.replace(_DOTS, "")) for part, rank in zip(parts, ranks) if _DOTS in part), default=0)
    operands = []
    for part, rank in zip(parts, ranks):
        named = part.replace(_DOTS, "")
        operands.append(_spelled(part, rank - len(named)))
        if len(operands[-1]) != rank:
            raise IRError(f"einsum names {part!r} for an operand of {rank} dimensions")
    if not arrow:
        once = sorted(letter for letter in set(left) - set(",.") if left.count(letter) == 1)
        right = (_DOTS if _DOTS in left else "") + "".join(once)
    return operands, _spelled(right, wide)


def _spelled(part: str, hidden: int) -> Tuple[str, ...]:
    """The names of one part, with numbers for what dots stand for; the last dimension has the number 1."""
    before, dots, after = part.partition(_DOTS)
    numbers = tuple(str(place) for place in range(hidden, 0, -1)) if dots else ()
    return (*before, *numbers, *after)


def _without_repeats(to: Writer, name: str, labels: Sequence[str]) -> Tuple[str, Sequence[str]]:
    """A tensor whose dimensions have different names: those of one name give way to their diagonal, at the end."""
    remaining = list(labels)
    for label in dict.fromkeys(labels):
        while remaining.count(label) > 1:
            first, second = [place for place, other in enumerate(remaining) if other == label][:2]
            name = diagonal(to, name, first, second, 0)
            remaining = [other for place, other in enumerate(remaining) if place not in (first, second)] + [label]
    return name, remaining


def _product(to: Writer, one: _Labelled, other: _Labelled, later: Set[str]) -> _Labelled:
    """The product of two tensors, summed over what neither the result nor a later operand names."""
    one, other = _summed(to, one, later.union(other.labels)), _summed(to, other, later.union(one.labels))
    sizes = _sizes(to, one, other)
    shared = [label for label in one.labels if label in other.labels]
    stacked = [label for label in shared if label in later]
    inner = [label for label in shared if label not in later]
    rows = [label for label in one.labels if label not in shared]
    columns = [label for label in other.labels if label not in shared]
    left, right = _as_matrices(to, one, stacked, rows, inner), _as_matrices(to, other, stacked, inner, columns)
    lengths = [math.prod(sizes[label] for label in group) for group in (rows, columns)]
    stack = [sizes[label] for label in stacked]
    product = to.add("MatMul", (left, right), None, None, shape=(*stack, *lengths))
    labels = (*stacked, *rows, *columns)
    return _Labelled(to.reshape(product, [sizes[label] for label in labels]), labels)


def _sizes(to: Writer, one: _Labelled, other: _Labelled) -> Dict[str, int]:
    """The length of every name; a length of 1 gives way to another where dots stand for the dimension."""
    sizes: Dict[str, int] = {}
    for part in (one, other):
        for label, length in zip(part.labels, to.shape(part.name)):
            size = length_of(length, part.name)
            known = sizes.get(label, size)
            if known != size and not (label.isdigit() and 1 in (known, size)):
                raise IRError(f"einsum has the lengths {known} and {size} for {label!r}; they must be the same")
            sizes[label] = max(known, size)
    return sizes


def _as_matrices(
    to: Writer, part: _Labelled, stacked: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> str:
    """A stack of matrices: the dimensions in the order of the three groups, the last two groups as one each."""
    order = [part.labels.index(label) for label in (*stacked, *rows, *columns)]
    turned = part.name if order == sorted(order) else to.transpose(part.name, order)
    lengths = [length_of(length, part.name) for length in to.shape(turned)]
    first, second = len(stacked), len(stacked) + len(rows)
    return to.reshape(turned, (*lengths[:first], math.prod(lengths[first:second]), math.prod(lengths[second:])))


def _summed(to: Writer, part: _Labelled, kept: Set[str]) -> _Labelled:
    """A tensor without the dimensions that nobody needs, which are added up."""
    axes = tuple(place for place, label in enumerate(part.labels) if label not in kept)
    if not axes:
        return part
    shape = [length for place, length in enumerate(to.shape(part.name)) if place not in axes]
    total = to.add("ReduceSum", (part.name,), None, {"axes": axes, "keepdims": 0}, shape=shape)
    return _Labelled(total, [label for label in part.labels if label in kept])


@row("kron")
def _kron(call: Call, to: Writer) -> None:
    names = call.read("X"), call.read("Y")
    rank = max(len(to.shape(name)) for name in names)
    apart = []
    for place, name in enumerate(names):
        lengths = [length_of(length, name) for length in to.shape(name)]
        lengths = [1] * (rank - len(lengths)) + lengths
        pairs = [(length, 1) if place == 0 else (1, length) for length in lengths]
        apart.append(to.reshape(name, [size for pair in pairs for size in pair]))
    one, other = (to.shape(name) for name in apart)
    shape = [max(length_of(a, names[0]), length_of(b, names[1])) for a, b in zip(one, other)]
    product = to.add("Mul", apart, None, None, shape=shape)
    to.reshape(product, to.sizes(call.output()), call.output())


def diagonal(to: Writer, source: str, first: int, second: int, offset: int, output: str = "") -> str:
    """The diagonal of two dimensions, as the last one; ``offset`` counts diagonals above the main one."""
    rank = len(to.shape(source))
    rest = [place for place in range(rank) if place not in (first, second)]
    order = [*rest, first, second]
    turned = source if order == sorted(order) else to.transpose(source, order)
    *outer, rows, columns = (length_of(length, source) for length in to.shape(turned))
    places = [line * columns + line + offset for line in range(rows) if 0 <= line + offset < columns]
    flat = to.reshape(turned, (*outer, rows * columns))
    index = to.constant(places, "INT64")
    return to.add("Gather", (flat, index), output or None, {"axis": len(outer)}, shape=(*outer, len(places)))


@row("diagonal")
def _diagonal(call: Call, to: Writer) -> None:
    source = call.read("Input")
    first, second = (to.axis(int(call.get(name, default)), source) for name, default in (("axis1", 0), ("axis2", 1)))
    diagonal(to, source, first, second, int(call.get("offset", 0)), call.output())


@row("trace")
def _trace(call: Call, to: Writer) -> None:
    source = call.read("Input")
    axes = (to.axis(int(call.get(name, default)), source) for name, default in (("axis1", 0), ("axis2", 1)))
    first, second = sorted(axes)  # whichever axis is named first, Paddle's kernel has rows along the smaller one
    line = diagonal(to, source, first, second, int(call.get("offset", 0)))
    to.add("ReduceSum", (line,), call.output(), {"axes": (len(to.shape(line)) - 1,), "keepdims": 0})


@row("diag_v2")
def _diag(call: Call, to: Writer) -> None:
    source, offset = call.read("X"), int(call.get("offset", 0))
    if len(to.shape(source)) == 2:
        diagonal(to, source, 0, 1, offset, call.output())
    else:
        to.add("Identity", (_on_diagonal(to, source, offset, float(call.get("padding_value", 0.0))),), call.output())


@row("diag_embed")
def _diag_embed(call: Call, to: Writer) -> None:
    source = call.read("Input")
    diagonal = _on_diagonal(to, source, int(call.get("offset", 0)), 0.0)
    rank = len(to.shape(diagonal))
    first, second = (int(call.get(name, default)) % rank for name, default in (("dim1", -2), ("dim2", -1)))
    order = list(range(rank - 2))
    for place, own in sorted(((first, rank - 2), (second, rank - 1))):
        order.insert(place, own)
    to.transpose(diagonal, order, call.output())


def _on_diagonal(to: Writer, source: str, offset: int, value: float) -> str:
    """Square matrices with the last dimension on a diagonal and a number everywhere else."""
    *outer, length = (length_of(size, source) for size in to.shape(source))
    side = length + abs(offset)
    if side * side > LARGEST_CONSTANT:
        raise IRError(f"a diagonal of {length} makes a matrix of {side} rows; at most {LARGEST_CONSTANT} elements fit")
    below = max(-offset, 0)
    places = [
        line - below if column == line + offset and 0 <= line - below < length else length
        for line in range(side)
        for column in range(side)
    ]
    filling = to.full(value, to.dtype(source), (*outer, 1))
    longer = to.add("Concat", (source, filling), None, {"axis": len(outer)}, shape=(*outer, length + 1))
    index = to.constant(places, "INT64", (side, side))
    return to.add("Gather", (longer, index), None, {"axis": len(outer)}, shape=(*outer, side, side))

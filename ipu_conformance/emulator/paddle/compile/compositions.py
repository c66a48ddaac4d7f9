"""Ops of the executed Program whose kernels on the host are wrong or missing, as compositions of others.

The device has none of these defects: the host's gradient of gather is wrong along any axis but the first, those of
products fail where stacks have different ranks, logarithms of a softmax end at -64, the largest distance is searched
for unrounded where it was rounded, and truth values cannot be unstacked. Several functions give NaN at infinities or at
numbers of which they form an exponential that overflows, and the gradient of a product divides by its factors.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from paddle.base import core

from ipu_conformance.emulator.paddle.compile.compilation import place_like
from ipu_conformance.emulator.paddle.compile.subprograms import new_variable

_TYPES = core.VarDesc.VarType
SUFFIX = "@PART@"
"""What stands between the name of a result and the number of a value on the way to it."""


class Writer:
    """Writes ops in place of one op, each before the next."""

    def __init__(self, block: Any, index: int, op: Any) -> None:
        self._block, self._index, self._like = block, index, op
        self._parts = 0

    def variable(self, name: str) -> Any:
        """The description of a variable of the block."""
        return self._block.find_var(name.encode())

    def shape(self, name: str) -> List[int]:
        return list(self.variable(name).shape())

    def add(
        self,
        kind: str,
        inputs: Mapping[str, Union[str, Sequence[str]]],
        output: Optional[str] = None,
        *,
        made_in: Any = None,
        slot: str = "Out",
        more: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """Write an op; an output without a name is a new variable, of the first input's type unless one is given."""
        listed = {slot: [names] if isinstance(names, str) else list(names) for slot, names in inputs.items()}
        dtype = made_in or self.variable(output or next(iter(listed.values()))[0]).dtype()
        output = output or self._part(dtype)
        desc = self._block._insert_op(self._index)
        self._index += 1
        desc.set_type(kind)
        for slot_of, names in listed.items():
            desc.set_input(slot_of, names)
        desc.set_output(slot, [output])
        for other in more:
            desc.set_output(other, [self._part(dtype)])
        for name, value in attributes.items():
            desc._set_attr(name, value)
        place_like(desc, self._like)
        desc.check_attrs()
        desc.infer_shape(self._block)
        self.variable(output).set_dtype(dtype)
        return output

    def _part(self, dtype: Any) -> str:
        name = f"{self._like.output_arg_names()[0]}{SUFFIX}{self._parts}"
        self._parts += 1
        new_variable(self._block, name, dtype, [])
        return name


def _gather(op: Any, to: Writer) -> bool:
    """Along any axis but the first the gradient of gather is wrong, and that of index_select is not."""
    axis, index = int(op.attr("axis")) if op.has_attr("axis") else 0, op.input("Index")[0]
    if axis == 0 or len(to.shape(index)) != 1:
        return False
    to.add("index_select", {"X": op.input("X")[0], "Index": index}, op.output("Out")[0], dim=axis)
    return True


def _distance(op: Any, to: Writer) -> bool:
    """The largest difference is found again among differences that are rounded as it is."""
    difference = to.add("elementwise_sub", {"X": op.input("X")[0], "Y": op.input("Y")[0]}, axis=-1)
    order = float(op.attr("p"))
    to.add("p_norm", {"X": difference}, op.output("Out")[0], porder=order, asvector=True, axis=-1, epsilon=0.0)
    return True


def _product(op: Any, to: Writer) -> bool:
    """Stacks of matrices get the same rank, and vectors are not turned."""
    factors = {slot: op.input(slot)[0] for slot in ("X", "Y")}
    ranks = {slot: len(to.shape(name)) for slot, name in factors.items()}
    turned = {slot: bool(op.attr(f"trans_{slot.lower()}")) for slot in factors}
    low, high = min(ranks.values()), max(ranks.values())
    if not (2 < low < high or any(turned[slot] and ranks[slot] == 1 for slot in factors)):
        return False
    for slot, name in factors.items():
        if 2 < ranks[slot] < high:
            shape = [1] * (high - ranks[slot]) + to.shape(name)
            factors[slot] = to.add("reshape2", {"X": name}, more=["XShape"], shape=shape)
    flags: Dict[str, Any] = {f"trans_{slot.lower()}": turned[slot] and ranks[slot] > 1 for slot in factors}
    to.add("matmul_v2", factors, op.output("Out")[0], **flags)
    return True


def _log_softmax(op: Any, to: Writer) -> bool:
    _logarithms(op.input("X")[0], int(op.attr("axis")), to, op.output("Out")[0])
    return True


def _logarithms(scores: str, axis: int, to: Writer, output: Optional[str] = None) -> str:
    """The logarithms of the softmax along an axis."""
    axis %= len(to.shape(scores))
    total = to.add("logsumexp", {"X": scores}, made_in=_TYPES.FP32, axis=[axis], keepdim=True, reduce_all=False)
    return to.add("elementwise_sub", {"X": scores, "Y": total}, output, axis=-1)


def _cross_entropy(op: Any, to: Writer) -> bool:
    """The loss follows from the logarithms of the softmax."""
    scores, label, axis = op.input("Logits")[0], op.input("Label")[0], int(op.attr("axis"))
    to.add("softmax", {"X": scores}, op.output("Softmax")[0], axis=axis)
    logarithms = _logarithms(scores, axis, to)
    kind, ignored = to.variable(label).dtype(), int(op.attr("ignore_index"))
    constant: Dict[str, Any] = {"shape": [1], "value": float(ignored), "str_value": str(ignored), "dtype": int(kind)}
    class_ignored = to.add("fill_constant", {}, made_in=kind, **constant)
    counts = to.add("not_equal", {"X": label, "Y": class_ignored}, made_in=_TYPES.BOOL, axis=-1)
    factor = to.add("cast", {"X": counts}, made_in=kind, in_dtype=int(_TYPES.BOOL), out_dtype=int(kind))
    place = to.add("elementwise_mul", {"X": label, "Y": factor}, axis=-1)
    axis %= len(to.shape(scores))
    picked = to.add("take_along_axis", {"Input": logarithms, "Index": place}, slot="Result", Axis=axis)
    loss = to.add("scale", {"X": picked}, scale=-1.0)
    nothing = to.add("fill_any_like", {"X": loss}, value=0.0, dtype=-1)
    to.add("where", {"Condition": counts, "X": loss, "Y": nothing}, op.output("Loss")[0])
    return True


def _lookup(op: Any, to: Writer) -> bool:
    """The device has no sparse gradients: a handler does not read whether a table asks for them."""
    op._set_attr("is_sparse", False)
    return False


def _unstack(op: Any, to: Writer) -> bool:
    """There is no kernel for truth values; slices have one."""
    source = op.input("X")[0]
    if to.variable(source).dtype() != _TYPES.BOOL:
        return False
    axis = int(op.attr("axis")) % len(to.shape(source))
    for number, output in enumerate(op.output("Y")):
        part: Dict[str, Any] = {"axes": [axis], "starts": [number], "ends": [number + 1], "infer_flags": [1]}
        to.add("slice", {"Input": source}, output, decrease_axis=[axis], **part)
    return True


def _constant(to: Writer, like: str, value: float) -> str:
    return to.add("fill_any_like", {"X": like}, value=value, dtype=-1)


def _chosen(to: Writer, condition: str, left: str, right: str, output: Optional[str] = None) -> str:
    return to.add("where", {"Condition": condition, "X": left, "Y": right}, output)


def _compared(to: Writer, kind: str, source: str, value: float) -> str:
    other = _constant(to, source, value)
    return to.add(kind, {"X": source, "Y": other}, made_in=_TYPES.BOOL, axis=-1)


def _root(op: Any, to: Writer) -> bool:
    """The host multiplies by a reciprocal root: NaN at infinity, and infinite just below zero."""
    source = op.input("X")[0]
    finite = _compared(to, "less_than", source, float("inf"))
    root = to.add("sqrt", {"X": _chosen(to, finite, source, _constant(to, source, 1.0))})
    above = _chosen(to, finite, root, source)
    known = _compared(to, "greater_equal", source, 0.0)
    _chosen(to, known, above, _constant(to, source, float("nan")), op.output("Out")[0])
    return True


def _silu(op: Any, to: Writer) -> bool:
    """The host's gradient divides infinities far below zero."""
    source = op.input("X")[0]
    gate = to.add("sigmoid", {"X": source})
    to.add("elementwise_mul", {"X": source, "Y": gate}, op.output("Out")[0], axis=-1)
    return True


def _celu(op: Any, to: Writer) -> bool:
    """The host's gradient multiplies an exponential that overflows by zero."""
    source = op.input("X")[0]
    above = _compared(to, "greater_than", source, 0.0)
    below = _chosen(to, above, _constant(to, source, 0.0), source)
    curved = to.add("celu", {"X": below}, alpha=op.attr("alpha"))
    _chosen(to, above, source, curved, op.output("Out")[0])
    return True


def _softshrink(op: Any, to: Writer) -> bool:
    """The host multiplies infinities by zero."""
    source, width = op.input("X")[0], float(op.attr("lambda"))
    inside = to.add("clip", {"X": source}, min=-width, max=width)
    to.add("elementwise_sub", {"X": source, "Y": inside}, op.output("Out")[0], axis=-1)
    return True


def _log_sigmoid(op: Any, to: Writer) -> bool:
    """The host subtracts infinities; far below zero the result is the input."""
    source = op.input("X")[0]
    near = _compared(to, "greater_than", source, -1e3)
    value = to.add("logsigmoid", {"X": _chosen(to, near, source, _constant(to, source, 0.0))})
    _chosen(to, near, value, source, op.output("Out")[0])
    return True


def _logsumexp(op: Any, to: Writer) -> bool:
    """The host subtracts an infinite maximum from itself; where there is one, it is the result."""
    source = op.input("X")[0]
    axis, kept, every = op.attr("axis"), bool(op.attr("keepdim")), bool(op.attr("reduce_all"))
    infinite = _compared(to, "equal", source, float("inf"))
    rest = _chosen(to, infinite, _constant(to, source, 0.0), source)
    total = to.add("logsumexp", {"X": rest}, axis=axis, keepdim=kept, reduce_all=every)
    largest = to.add("reduce_max", {"X": source}, dim=axis, keep_dim=kept, reduce_all=every)
    ordinary = _compared(to, "less_than", largest, float("inf"))
    _chosen(to, ordinary, total, largest, op.output("Out")[0])
    return True


def _part(to: Writer, source: str, start: int, end: int) -> str:
    cut: Dict[str, Any] = {"axes": [0], "starts": [start], "ends": [end], "infer_flags": [1], "decrease_axis": []}
    return to.add("slice", {"Input": source}, **cut)


def _factors(op: Any, to: Writer) -> bool:
    """The host's gradient divides the product by the factor; factors that are multiplied in pairs need no quotient."""
    source, result = op.input("X")[0], op.output("Out")[0]
    shape = to.shape(source)
    axes = list(range(len(shape))) if op.attr("reduce_all") else [int(axis) % len(shape) for axis in op.attr("dim")]
    count = math.prod(shape[axis] for axis in axes)
    if count < 2:
        return False
    others = [axis for axis in range(len(shape)) if axis not in axes]
    left = to.add("transpose2", {"X": source}, more=["XShape"], axis=[*sorted(axes), *others])
    left = to.add("reshape2", {"X": left}, more=["XShape"], shape=[count, *(shape[axis] for axis in others)])
    while count > 1:
        half = count // 2
        pairs = {"X": _part(to, left, 0, half), "Y": _part(to, left, half, 2 * half)}
        rest = [_part(to, left, 2 * half, count)] if count % 2 else []
        left = to.add("elementwise_mul", pairs, axis=-1)
        if rest:
            left = to.add("concat", {"X": [left, *rest]}, axis=0)
        count = half + count % 2
    to.add("reshape2", {"X": left}, result, more=["XShape"], shape=to.shape(result))
    return True


Composition = Callable[[Any, Writer], bool]
"""Writes others in place of an op; False where it stays."""

COMPOSITIONS: Dict[str, Composition] = {
    "gather": _gather,
    "dist": _distance,
    "matmul_v2": _product,
    "log_softmax": _log_softmax,
    "softmax_with_cross_entropy": _cross_entropy,
    "lookup_table": _lookup,
    "lookup_table_v2": _lookup,
    "unstack": _unstack,
    "sqrt": _root,
    "silu": _silu,
    "celu": _celu,
    "softshrink": _softshrink,
    "logsigmoid": _log_sigmoid,
    "logsumexp": _logsumexp,
    "reduce_prod": _factors,
}
"""What writes each op otherwise, if it must be."""


def composed(program: Any, compositions: Mapping[str, Composition] = COMPOSITIONS) -> Any:
    """The Program with other ops in place of those that the host computes otherwise than the device."""
    block = program.desc.block(0)
    for index in reversed(range(block.op_size())):
        op = block.op(index)
        write = compositions.get(op.type())
        before = block.op_size()
        if write is not None and write(op, Writer(block, index, op)):
            last = index + block.op_size() - before
            block._remove_op(last, last + 1)
    return program

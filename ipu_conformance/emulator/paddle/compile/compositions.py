"""Ops of the executed Program whose kernels on the host are wrong or missing, as compositions of others.

The device has none of these defects: the host's gradient of gather is wrong along any axis but the first, those of
products fail where stacks have different ranks, logarithms of a softmax end at -64, the largest distance is searched
for unrounded where it was rounded, and truth values cannot be unstacked.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from paddle.base import core

from ipu_conformance.emulator.paddle.compile.compilation import place_like
from ipu_conformance.emulator.paddle.compile.subprograms import new_variable, program_of

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
        inputs: Mapping[str, str],
        output: Optional[str] = None,
        *,
        made_in: Any = None,
        slot: str = "Out",
        more: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """Write an op; an output without a name is a new variable, of the first input's type unless one is given."""
        dtype = made_in or self.variable(output or next(iter(inputs.values()))).dtype()
        output = output or self._part(dtype)
        desc = self._block._insert_op(self._index)
        self._index += 1
        desc.set_type(kind)
        for name, variable in inputs.items():
            desc.set_input(name, [variable])
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
    """The loss follows from the logarithms of the softmax; where probabilities are given, the kernel is right."""
    if not op.attr("use_softmax"):
        return False
    scores, label, axis = op.input("Logits")[0], op.input("Label")[0], int(op.attr("axis"))
    to.add("softmax", {"X": scores}, op.output("Softmax")[0], axis=axis)
    logarithms = _logarithms(scores, axis, to)
    if op.attr("soft_label"):
        shares = to.add("elementwise_mul", {"X": label, "Y": logarithms}, axis=-1)
        picked = to.add("reduce_sum", {"X": shares}, dim=[axis], keep_dim=True)
        to.add("scale", {"X": picked}, op.output("Loss")[0], scale=-1.0)
        return True
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


Composition = Callable[[Any, Writer], bool]
"""Writes others in place of an op; False where it stays."""

COMPOSITIONS: Dict[str, Composition] = {
    "gather": _gather,
    "dist": _distance,
    "matmul_v2": _product,
    "log_softmax": _log_softmax,
    "softmax_with_cross_entropy": _cross_entropy,
    "unstack": _unstack,
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
    return program_of(program.desc)

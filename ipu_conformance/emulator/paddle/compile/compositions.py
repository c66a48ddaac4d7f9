"""Ops of the executed Program whose kernels on the host are wrong or missing, as compositions of others.

The device has none of these defects: the host's gradient of gather is wrong along any axis but the first, its cross
entropy of probabilities bounds the logarithm, its distance is compared unrounded with a rounded maximum, and it cannot
unstack truth values.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional

from paddle.base import core

from ipu_conformance.emulator.paddle.compile.compilation import place_like
from ipu_conformance.emulator.paddle.compile.subprograms import new_variable, program_of

SUFFIX = "@PART@"
"""What stands between the name of a result and the number of a value on the way to it."""


class _Writer:
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
        self, kind: str, inputs: Mapping[str, str], output: Optional[str] = None, slot: str = "Out", **attributes: Any
    ) -> str:
        """Write an op; without a name for its output, it is a new variable like the first input."""
        if output is None:
            like = self.variable(next(iter(inputs.values())))
            output = f"{self._like.output_arg_names()[0]}{SUFFIX}{self._parts}"
            self._parts += 1
            new_variable(self._block, output, like.dtype(), like.shape())
        desc = self._block._insert_op(self._index)
        self._index += 1
        desc.set_type(kind)
        for name, variable in inputs.items():
            desc.set_input(name, [variable])
        desc.set_output(slot, [output])
        for name, value in attributes.items():
            desc._set_attr(name, value)
        place_like(desc, self._like)
        desc.check_attrs()
        desc.infer_shape(self._block)
        return output


def _gather(op: Any, to: _Writer) -> bool:
    """Along any axis but the first the gradient of gather is wrong, and that of index_select is not."""
    axis, index = int(op.attr("axis")) if op.has_attr("axis") else 0, op.input("Index")[0]
    if axis == 0 or len(to.shape(index)) != 1:
        return False
    to.add("index_select", {"X": op.input("X")[0], "Index": index}, op.output("Out")[0], dim=axis)
    return True


def _distance(op: Any, to: _Writer) -> bool:
    """The largest difference is found again among differences that are rounded as it is."""
    difference = to.add("elementwise_sub", {"X": op.input("X")[0], "Y": op.input("Y")[0]}, axis=-1)
    order = float(op.attr("p"))
    to.add("p_norm", {"X": difference}, op.output("Out")[0], porder=order, asvector=True, axis=-1, epsilon=0.0)
    return True


def _soft_cross_entropy(op: Any, to: _Writer) -> bool:
    """The kernel takes the logarithm of probabilities, which it keeps from vanishing."""
    if not op.attr("soft_label"):
        return False
    scores, axis = op.input("Logits")[0], int(op.attr("axis"))
    to.add("softmax", {"X": scores}, op.output("Softmax")[0], axis=axis)
    logarithms = to.add("log_softmax", {"X": scores}, axis=axis)
    shares = to.add("elementwise_mul", {"X": op.input("Label")[0], "Y": logarithms}, axis=-1)
    total = to.add("reduce_sum", {"X": shares}, dim=[axis], keep_dim=True)
    to.add("scale", {"X": total}, op.output("Loss")[0], scale=-1.0)
    return True


def _unstack(op: Any, to: _Writer) -> bool:
    """There is no kernel for truth values; slices have one."""
    source = op.input("X")[0]
    if to.variable(source).dtype() != core.VarDesc.VarType.BOOL:
        return False
    axis = int(op.attr("axis")) % len(to.shape(source))
    for number, output in enumerate(op.output("Y")):
        where = {"axes": [axis], "starts": [number], "ends": [number + 1]}
        to.add("slice", {"Input": source}, output, decrease_axis=[axis], infer_flags=[1], **where)
    return True


COMPOSITIONS: Dict[str, Callable[[Any, _Writer], bool]] = {
    "gather": _gather,
    "dist": _distance,
    "softmax_with_cross_entropy": _soft_cross_entropy,
    "unstack": _unstack,
}
"""What writes each op otherwise, if it must be."""


def composed(program: Any) -> Any:
    """The Program with other ops in place of those that the host computes wrongly."""
    block = program.desc.block(0)
    for index in reversed(range(block.op_size())):
        op = block.op(index)
        write = COMPOSITIONS.get(op.type())
        before = block.op_size()
        if write is not None and write(op, _Writer(block, index, op)):
            last = index + block.op_size() - before
            block._remove_op(last, last + 1)
    return program_of(program.desc)

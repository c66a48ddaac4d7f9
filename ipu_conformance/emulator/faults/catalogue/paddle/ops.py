"""Ways for single ops to be computed wrongly: other attributes, other ops, other inputs, too little precision.

A fault edits the program that a slot runs, which nothing else shares, before it is first run.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Sequence, Tuple

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, Wrong

_NARROW = "@NARROW"
_GRADIENT = "_grad"
"""How the types of ops end that make gradients."""

Change = Callable[[Any, Any, int], None]
"""``change(block, op, index)`` edits the description of one op."""


def _ops(block: Any) -> Iterator[Tuple[int, Any]]:
    """The ops from the last to the first, so that ops may be inserted behind each."""
    for index in reversed(range(block.op_size())):
        yield index, block.op(index)


def _where(types: Sequence[str], change: Change) -> Wrong:
    """Every op of these types is changed."""

    def wrong(program: Any, **context: Any) -> Any:
        block = program.desc.block(0)
        for index, op in _ops(block):
            if op.type() in types:
                change(block, op, index)
        return program

    return wrong


def _attribute(types: str, name: str, change: Callable[[Any], Any]) -> Wrong:
    """An attribute of these types, and of those that make their gradients, has another value."""

    def edit(block: Any, op: Any, index: int) -> None:
        value = change(op.attr(name))
        # Told nothing else, Paddle takes truth values of ops that make gradients for whole numbers.
        (op._set_bool_attr if isinstance(value, bool) else op._set_attr)(name, value)

    return _where(_with_gradients(types), edit)


def _with_gradients(types: str) -> Sequence[str]:
    return [type + end for type in types.split() for end in ("", _GRADIENT)]


def _four(paddings: Sequence[int]) -> Sequence[int]:
    """What is padded above, below, to the left and to the right."""
    return [each for each in paddings for _ in range(2)] if len(paddings) == 2 else list(paddings)


def _on_one_side(paddings: Sequence[int]) -> Sequence[int]:
    above, below, left, right = _four(paddings)
    return [above + below, 0, left + right, 0]


def _other_side(paddings: Sequence[int]) -> Sequence[int]:
    above, below, left, right = _four(paddings)
    return [below, above, right, left]


def _larger_dilation(block: Any, op: Any, index: int) -> None:
    """More padding makes up for it, so that the shape stays."""
    first, second = op.attr("dilations")
    height, width = block.find_var(op.input("Filter")[0].encode()).shape()[2:]
    larger = max(first, second)
    above, below, left, right = _four(op.attr("paddings"))
    more = [above, below + (larger - first) * (height - 1), left, right + (larger - second) * (width - 1)]
    op._set_attr("dilations", [larger, larger])
    op._set_attr("paddings", more)


def _not_expanded(block: Any, op: Any, index: int) -> None:
    given = list(block.find_var(op.input("X")[0].encode()).shape())
    op._set_attr("shape", [1] * (len(op.attr("shape")) - len(given)) + given)


def _taken_for(type: str, other: str, without: str = "") -> Wrong:
    """One type is computed as another one, which may have one input less."""

    def edit(block: Any, op: Any, index: int) -> None:
        op.set_type(other)
        if without:
            op.remove_input(without)

    return _where([type], edit)


def _swapped(type: str, one: str, other: str) -> Wrong:
    """Two inputs of a type are taken for each other."""

    def edit(block: Any, op: Any, index: int) -> None:
        first, second = op.input(one), op.input(other)
        op.set_input(one, second)
        op.set_input(other, first)

    return _where([type], edit)


def _without_last(type: str, slot: str) -> Wrong:
    """The last of several inputs of a type is left out."""
    return _where([type], lambda block, op, index: op.set_input(slot, op.input(slot)[:-1]))


def _narrow(*types: str, slot: str = "Out") -> Wrong:
    """The results of these types pass through float16."""

    def edit(block: Any, op: Any, index: int) -> None:
        from paddle.base import core

        half, full = core.VarDesc.VarType.FP16, core.VarDesc.VarType.FP32
        names = op.output(slot) if slot in op.output_names() else []
        for name in (name for name in names if name and block.find_var(name.encode()).dtype() == full):
            between = block.var((name + _NARROW).encode())
            between.set_type(core.VarDesc.VarType.LOD_TENSOR)
            between.set_dtype(half)
            between.set_shape(block.find_var(name.encode()).shape())
            for place, (source, target, kinds) in enumerate(
                ((name, name + _NARROW, (full, half)), (name + _NARROW, name, (half, full)))
            ):
                cast = block._insert_op(index + 1 + place)
                cast.set_type("cast")
                cast.set_input("X", [source])
                cast.set_output("Out", [target])
                cast._set_attr("in_dtype", int(kinds[0]))
                cast._set_attr("out_dtype", int(kinds[1]))

    return _where(types, edit)


def _one_memory(program: Any, **context: Any) -> Any:
    """A scale by one is left out, and its output is its input from there on, for who reads and for who writes."""
    block = program.desc.block(0)
    same: Dict[str, str] = {}
    for index in range(block.op_size()):
        op = block.op(index)
        for output, name in list(same.items()):
            op._rename_input(output, name)
            op._rename_output(output, name)
        if op.type() == "scale" and op.attr("scale") == 1 and op.attr("bias") == 0:
            same[op.output("Out")[0]] = op.input("X")[0]
    return program


def _other(value: Any) -> Any:
    return not value


def _reversed(values: Any) -> Any:
    return list(values)[::-1]


_NORMS = "batch_norm layer_norm group_norm instance_norm"

for _name, _what, _wrong in (
    ("op-slope-doubled", "leaky_relu has twice its slope", _attribute("leaky_relu", "alpha", lambda value: 2 * value)),
    ("op-gelu-approximated", "gelu is computed by its approximation",
     _attribute("gelu", "approximate", lambda value: True)),
    ("op-prelu-is-relu", "the slope of prelu is taken for 0", _taken_for("prelu", "relu", without="Alpha")),
    ("op-softmax-along-first", "softmax runs along the first dimension",
     _attribute("softmax", "axis", lambda value: 0)),
    ("op-norm-without-epsilon", "normalizations add no epsilon", _attribute(_NORMS, "epsilon", lambda value: 0.0)),
    ("op-larger-dilation", "a convolution has the larger of its dilations in both dimensions",
     _where(_with_gradients("conv2d"), _larger_dilation)),
    ("op-padding-on-one-side", "a convolution pads above and to the left alone",
     _attribute("conv2d", "paddings", _on_one_side)),
    ("op-transposed-cut-turned", "a transposed convolution cuts off at the other side",
     _attribute("conv2d_transpose", "paddings", _other_side)),
    ("op-pool-counts-padding", "the mean of a pool counts the padding, or does not, against what is asked for",
     _attribute("pool2d", "exclusive", _other)),
    ("op-pool-of-the-other-type", "a pool of largest values takes means, and the other way round",
     _attribute("pool2d", "pooling_type", lambda value: "max" if value == "avg" else "avg")),
    ("op-product-in-half", "products of matrices pass through float16", _narrow("matmul_v2", "bmm")),
    ("op-product-gradient-in-half", "gradients of products of matrices pass through float16",
     _narrow("matmul_v2_grad", slot="X@GRAD")),
    ("op-exponential-in-half", "exponentials pass through float16", _narrow("exp")),
    ("op-mean-is-sum", "a mean over dimensions is a sum", _taken_for("reduce_mean", "reduce_sum")),
    ("op-difference-is-sum", "a difference is a sum", _taken_for("elementwise_sub", "elementwise_add")),
    ("op-sum-without-last", "the last of several tensors is not added", _without_last("sum", "X")),
    ("op-scale-before-bias", "a term that is added before the factor is added after it, and the other way round",
     _attribute("scale", "bias_after_scale", _other)),
    ("op-clipped-at-zero", "the lower bound is 0 whatever is given", _attribute("clip", "min", lambda value: 0.0)),
    ("op-less-or-equal", "what is equal is less", _taken_for("less_than", "less_equal")),
    ("op-xor-is-or", "one of two or both is taken for one of two", _taken_for("logical_xor", "logical_or")),
    ("op-base-of-logarithm", "a logarithm to the base 2 is the natural one", _taken_for("log2", "log")),
    ("op-sums-from-the-end", "running sums begin at the end", _attribute("cumsum", "reverse", _other)),
    ("op-largest-is-smallest", "the largest numbers are the smallest", _attribute("top_k_v2", "largest", _other)),
    ("op-place-of-smallest", "the place of the largest number is that of the smallest",
     _taken_for("arg_max", "arg_min")),
    ("op-concat-turned", "tensors are put side by side in the other order",
     _where(["concat"], lambda block, op, index: op.set_input("X", op.input("X")[::-1]))),
    ("op-stack-turned", "tensors are stacked in the other order",
     _where(["stack"], lambda block, op, index: op.set_input("X", op.input("X")[::-1]))),
    ("op-split-turned", "a tensor is cut into parts in the other order", _attribute("split", "sections", _reversed)),
    ("op-repeats-swapped", "a tensor is repeated along the other dimensions",
     _attribute("tile", "repeat_times", _reversed)),
    ("op-not-expanded", "a tensor is not repeated where it should", _where(["expand_v2"], _not_expanded)),
    ("op-reshape-swapped", "a tensor gets its new dimensions in the other order",
     _attribute("reshape2", "shape", _reversed)),
    ("op-flatten-one-more", "one dimension more is merged",
     _attribute("flatten_contiguous_range", "stop_axis", lambda value: min(value + 1, 3))),
    ("op-transpose-swapped", "dimensions come in the other order", _attribute("transpose2", "axis", _reversed)),
    ("op-slice-shifted", "a slice begins one later",
     _attribute("slice", "starts", lambda value: [value[0] + 1, *value[1:]])),
    ("op-other-triangle", "the other triangle of a matrix is kept", _attribute("tril_triu", "lower", _other)),
    ("op-selected-along-first", "values are looked up along the first dimension",
     _attribute("index_select", "dim", lambda value: 0)),
    ("op-padding-row-looked-up", "the row that stands for padding is looked up like any other",
     _where(["lookup_table_v2"], lambda block, op, index: op._set_attr("padding_idx", -1))),
    ("op-second-row-stands-still", "the second row of a table gets no gradient",
     _where(["lookup_table_v2_grad"], lambda block, op, index: op._set_int64_attr("padding_idx", 1))),
    ("op-rows-added", "rows that should be overwritten are added up", _attribute("scatter", "overwrite", _other)),
    ("op-one-hot-too-wide", "one-hot rows have one class more",
     _attribute("one_hot_v2", "depth", lambda value: value + 1)),
    ("op-border-of-zeros", "a border is of zeros whatever is given", _attribute("pad3d", "value", lambda value: 0.0)),
    ("op-corners-not-aligned", "the corners of images are aligned, or not, against what is asked for",
     _attribute("bilinear_interp_v2", "align_corners", _other)),
    ("op-filled-with-zero", "what should be filled is zero", _attribute("fill_any_like", "value", lambda value: 0.0)),
    ("op-choice-swapped", "the other of two values is chosen", _swapped("where", "X", "Y")),
    ("op-square-goes-further", "a loss is a square up to twice the distance",
     _attribute("huber_loss", "delta", lambda value: 2 * value)),
    ("op-divergence-reduced", "a divergence is reduced where each value is asked for",
     _attribute("kldiv_loss", "reduction", lambda value: "mean")),
    ("op-ignored-label-counts", "a label that is to be ignored has a loss",
     _attribute("sigmoid_cross_entropy_with_logits", "ignore_index", lambda value: -100)),
    ("op-losses-not-divided", "losses that are to be divided by how many count are not",
     _attribute("sigmoid_cross_entropy_with_logits", "normalize", lambda value: False)),
    ("op-other-class-is-blank", "another class of a sequence stands for nothing",
     _attribute("warpctc", "blank", lambda value: value + 1)),
    ("op-chance-taken-for-label", "chances and labels of a loss are taken for each other",
     _swapped("bce_loss", "X", "Label")),
    ("op-cubic-is-linear", "images are resized linearly where cubic convolution is asked for",
     _attribute("bicubic_interp_v2", "interp_method", lambda value: "bilinear")),
    ("op-sums-with-themselves", "a running sum counts the number at its place, or does not, against what is asked for",
     _attribute("cumsum", "exclusive", _other)),
    ("op-norm-of-order-two", "a norm is the root of squares whatever its order",
     _attribute("p_norm", "porder", lambda value: 2.0)),
    ("op-cast-left-out", "a cast changes nothing", _taken_for("cast", "assign")),
    ("op-scale-by-one-shares-memory", "a scale by one gives its input's memory, which a later op writes over",
     _one_memory),
):  # fmt: skip
    catalogue.register(Fault("paddle-" + _name, "numerics", "paddle.ops", _what, _wrong), __name__)


@catalogue.patch("paddle-op-class-ignored", "numerics", "paddle.compile.compositions:composed",
                 "the first class is ignored")  # fmt: skip
def _first_class_ignored(original: Callable[..., Any], program: Any, *arguments: Any) -> Any:
    ignoring = _attribute("softmax_with_cross_entropy", "ignore_index", lambda value: 0)
    return original(ignoring(program), *arguments)


@catalogue.patch("paddle-op-chances-of-last-axis", "numerics", "paddle.compile.compositions:composed",
                 "the chances that a cross entropy returns are those of the last axis")  # fmt: skip
def _last_axis(original: Callable[..., Any], program: Any, *arguments: Any) -> Any:
    last = _attribute("softmax_with_cross_entropy", "axis", lambda value: -1)
    return original(last(program), *arguments)

"""Each fault of a single op is noticed by a case of that op."""

from __future__ import annotations

from tests.unit.emulator import killing


def _case(file: str, case: str, *, test: str = "forward", mode: str = "IPU_FP32") -> str:
    return f"test_{file}_op_ipu.py::test_{test}[{case}-{mode}]"


KILLING = {
    "paddle-op-slope-doubled": _case("activation_x", "leaky_relu", mode="IPU_FP16"),
    "paddle-op-gelu-approximated": _case("gelu", "gelu", test="gradient"),
    "paddle-op-prelu-is-relu": _case("prelu", "prelu-channels"),
    "paddle-op-softmax-along-first": _case("softmax", "log_softmax-inner"),
    "paddle-op-norm-without-epsilon": _case("layernorm", "layer_norm-two"),
    "paddle-op-dilations-swapped": _case("conv", "conv2d-dilation"),
    "paddle-op-padding-swapped": _case("conv", "conv2d-padding"),
    "paddle-op-transposed-strides-swapped": _case("conv", "conv2d_transpose"),
    "paddle-op-pool-counts-padding": _case("pool", "avg_pool-inside", mode="IPU_FP16"),
    "paddle-op-product-in-half": _case("matmul", "matmul-stacks"),
    "paddle-op-product-gradient-in-half": _case("matmul", "matmul-turned", test="gradient"),
    "paddle-op-exponential-in-half": _case("math_x", "exp"),
    "paddle-op-mean-is-sum": _case("reduce_x", "mean-some"),
    "paddle-op-difference-is-sum": _case("elemetwise_x", "sub"),
    "paddle-op-sum-without-last": _case("sum", "add_n"),
    "paddle-op-scale-before-bias": _case("scale", "scale-after"),
    "paddle-op-clipped-at-zero": _case("clip", "clip", test="gradient"),
    "paddle-op-less-or-equal": _case("compare", "less"),
    "paddle-op-xor-is-or": _case("logical_x", "logical_xor"),
    "paddle-op-base-of-logarithm": _case("math_x", "log2", mode="IPU_FP16"),
    "paddle-op-sums-from-the-end": _case("cumsum", "cumsum"),
    "paddle-op-largest-is-smallest": _case("topk", "topk"),
    "paddle-op-place-of-smallest": _case("arg_max", "argmax"),
    "paddle-op-concat-turned": _case("concat", "concat-last"),
    "paddle-op-stack-turned": _case("stack", "stack-inner"),
    "paddle-op-split-turned": _case("split", "split"),
    "paddle-op-repeats-swapped": _case("expand", "tile"),
    "paddle-op-not-expanded": _case("expand", "expand"),
    "paddle-op-reshape-swapped": _case("reshape", "reshape"),
    "paddle-op-flatten-one-more": _case("flatten", "flatten-inner"),
    "paddle-op-transpose-swapped": _case("transpose", "transpose"),
    "paddle-op-slice-shifted": _case("slice", "slice"),
    "paddle-op-other-triangle": _case("slice", "tril"),
    "paddle-op-selected-along-first": _case("gather", "index_select"),
    "paddle-op-padding-row-looked-up": _case("embedding_v2", "embedding-padding"),
    "paddle-op-rows-added": "test_scatter_op_ipu.py::test_rows_that_meet_are_added_up",
    "paddle-op-one-hot-too-wide": _case("one_hot", "one_hot"),
    "paddle-op-border-of-zeros": _case("pad", "pad-constant"),
    "paddle-op-corners-not-aligned": _case("interp", "interpolate_linear-corners"),
    "paddle-op-filled-with-zero": _case("fill_any_like", "masked_fill"),
    "paddle-op-choice-swapped": _case("where", "where"),
    "paddle-op-square-goes-further": _case("huber_loss", "huber_loss-far"),
    "paddle-op-divergence-reduced": _case("kldiv_loss", "kl_div_loss"),
    "paddle-op-class-ignored": _case("cross_entropy2", "scores"),
    "paddle-op-chance-taken-for-label": _case("binary_cross_entropy", "bce_loss"),
    "paddle-op-cast-left-out": _case("cast", "int32"),
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of an op."""
    assert {fault.name for fault in killing.registered("paddle") if fault.point == "paddle.ops"} == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """Each case passes on the right device and fails under its fault."""
    killing.assert_all_killed(KILLING, "paddle")

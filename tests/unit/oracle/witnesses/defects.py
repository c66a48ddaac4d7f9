"""What is known to be wrong with a library on a CPU: facts about its own kernels, and so no part of the op table."""

from __future__ import annotations

from typing import Any

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW

BOTH, TYPES = "outputs gradients", "float64 float32"


def _ends_before_its_input(x: Any, weight: Any, *_: Any, stride: Any, padding: Any, dilation: Any, **__: Any) -> bool:
    """Whether the last window of a convolution with padding SAME ends before an axis of its input does."""
    lengths = zip(x.shape[2:], weight.shape[2:], stride, dilation)
    return padding == "SAME" and any(
        (-(-size // step) - 1) * step + (kernel - 1) * apart + 1 < size for size, kernel, step, apart in lengths
    )


TENSORFLOW.except_for("gelu gelu_tanh", BOTH, "float64", "its constants are float32")
TENSORFLOW.except_for("trunc_mod", "gradients", TYPES, "it has none")
TENSORFLOW.except_for("huber_loss smooth_l1_loss", BOTH, "float64", "Keras holds delta in its default type")
TENSORFLOW.except_for("log_cosh_loss", "outputs", "float64", "its logarithm of 2 is a float32")
TENSORFLOW.except_for("interpolate_linear", BOTH, "float64", "it resizes in float32 only")
TENSORFLOW.except_for(
    "max_pool avg_pool", BOTH, "float64", "it has no float64 in three axes", lambda *_, kernel, **__: len(kernel) == 3
)
# The documented padding is not negative there; this kernel leaves elements out in front.
TENSORFLOW.except_for(
    "conv",
    BOTH,
    TYPES,
    "in three axes it begins late where the last window ends before the input",
    lambda *inputs, **attributes: len(attributes["stride"]) == 3 and _ends_before_its_input(*inputs, **attributes),
)

PADDLE.except_for("selu", BOTH, "float64", "its constants are float32")
PADDLE.except_for("floor_mod trunc_mod", "gradients", TYPES, "it has none")
PADDLE.except_for("group_norm", BOTH, "float64", "its layer makes weights in float32")
PADDLE.except_for("dist", BOTH, "float64", "its powers and roots have exponents in float32")
PADDLE.except_for("p_norm", "gradients", "float64", "it adds 1e-12 to the norm that it divides by")
PADDLE.except_for(
    "p_norm", "outputs", "float64", "it holds the exponent of the root in float32", lambda *_, p, **__: p % 1 or p > 2
)
PADDLE.except_for("log_cosh_loss", "outputs", "float64", "its sums hold a number in float32")
PADDLE.except_for(
    "soft_cross_entropy_loss",
    BOTH,
    "float64",
    "its sums hold a number in float32",
    lambda *_, label_smoothing, **__: label_smoothing,
)
PADDLE.except_for("interpolate_linear", BOTH, "float64", "it holds the ratio of sizes in float32")
PADDLE.except_for(
    "avg_pool adaptive_avg_pool global_avg_pool", "gradients", "float64", "it takes a window's share in float32"
)
# paddle.gather spreads the first slice of the gradient over all when its axis is not 0; index_select does not.
PADDLE.except_for("gather", "gradients", TYPES, "it is wrong along every axis but the first")
PADDLE.except_for(
    "max min",
    "gradients",
    TYPES,
    "it leaves the gradient unset when the axis has one element",
    lambda x, axis, **_: isinstance(axis, int) and x.shape[axis] == 1,
)
PADDLE.except_for(
    "matmul bmm",
    "gradients",
    TYPES,
    "it fails for stacks of different ranks and for transposed vectors",
    lambda a, b, transpose_a=False, transpose_b=False: (
        (transpose_a or transpose_b or 1 not in (a.ndim, b.ndim)) and a.ndim != b.ndim
    ),
)
PADDLE.except_for(
    "kron",
    "gradients",
    TYPES,
    "the operand of the lower rank gets a gradient of the product's rank",
    lambda a, b: a.ndim != b.ndim,
)
PADDLE.except_for(
    "cast_narrow",
    "outputs",
    TYPES,
    "it truncates to float16 on a CPU where the others round",
    lambda x, dtype: dtype == "float16",
)

"""Witnesses of element-wise arithmetic, comparison and logic."""

from __future__ import annotations

from functools import reduce
from typing import Any, Dict

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Row, Unsupported

SHARED = (
    "add pow maximum minimum abs sign floor ceil round square sqrt rsqrt reciprocal exp expm1 log log1p "
    "sin cos tan asin acos atan sinh cosh erf not_equal less_equal greater_equal "
    "logical_and logical_or logical_xor logical_not"
)


def named(path: str) -> Row:
    """A row that calls the library's function of a dotted name with the same operands and attributes."""
    return lambda module, *inputs, **attributes: reduce(getattr, path.split("."), module)(*inputs, **attributes)


def _same(prefix: str, *groups: str) -> Dict[str, Row]:
    return {name: named(prefix + name) for group in groups for name in group.split()}


SCIPY.add(_same("special.", "erf expm1 log1p"))

TORCH.add(_same("", SHARED, "sub mul div neg trunc less greater log2 log10 addcmul isnan isinf isfinite where"))
TORCH.add(
    {
        "equal": named("eq"),
        "floor_div": lambda torch, a, b: torch.div(a, b, rounding_mode="floor"),
        "trunc_div": lambda torch, a, b: torch.div(a, b, rounding_mode="trunc"),
        "floor_mod": named("remainder"),
        "trunc_mod": named("fmod"),
        "clip": lambda torch, x, low, high: torch.clamp(x, low, high),
        "scale": lambda torch, x, scale, bias, bias_after_scale: (
            x * scale + bias if bias_after_scale else (x + bias) * scale
        ),
    }
)

TENSORFLOW.add(_same("math.", SHARED, "equal less greater"))
TENSORFLOW.add(
    {
        "sub": named("math.subtract"),
        "mul": named("math.multiply"),
        "div": named("math.divide"),
        "neg": named("math.negative"),
        "floor_div": named("math.floordiv"),
        "trunc_div": lambda tf, a, b: tf.cast(tf.cast(a / b, tf.int64), a.dtype),
        "floor_mod": named("math.floormod"),
        "trunc_mod": named("truncatemod"),
        "trunc": lambda tf, x: tf.sign(x) * tf.floor(tf.abs(x)),
        "clip": lambda tf, x, low, high: tf.clip_by_value(x, low, high),
        "log2": lambda tf, x: tf.math.log(x) / tf.math.log(tf.constant(2, x.dtype)),
        "log10": lambda tf, x: tf.math.log(x) / tf.math.log(tf.constant(10, x.dtype)),
        "scale": lambda tf, x, scale, bias, bias_after_scale: (
            x * scale + bias if bias_after_scale else (x + bias) * scale
        ),
        "addcmul": lambda tf, x, a, b, value: x + value * a * b,
        "isnan": named("math.is_nan"),
        "isinf": named("math.is_inf"),
        "isfinite": named("math.is_finite"),
        "where": named("where"),
    }
)

PADDLE.add(_same("", SHARED, "equal neg trunc log2 log10 scale isnan isinf isfinite"))
PADDLE.add(
    {
        "sub": named("subtract"),
        "mul": named("multiply"),
        "div": named("divide"),
        "floor_div": named("floor_divide"),
        "trunc_div": lambda paddle, a, b: paddle.trunc(a / b),
        "floor_mod": named("remainder"),
        "clip": lambda paddle, x, low, high: paddle.clip(x, low, high),
        "addcmul": lambda paddle, x, a, b, value: x + value * a * b,
        "less": named("less_than"),
        "greater": named("greater_than"),
        "where": lambda paddle, condition, a, b: paddle.where(_filled(paddle, condition, a + b), a, b),
    }
)
TENSORFLOW.except_for("trunc_mod", ("gradients",), "float64", "it has none")
TENSORFLOW.except_for("trunc_mod", ("gradients",), "float32", "it has none")
for _name in ("floor_div", "floor_mod"):
    for _dtype in ("float64", "float32"):
        PADDLE.except_for(_name, ("gradients",), _dtype, "it has none")


def _filled(paddle: Any, condition: Any, like: Any) -> Any:
    """The condition broadcast, which paddle.where leaves to its caller."""
    return paddle.logical_or(condition, paddle.zeros_like(like, dtype="bool"))


def _with_ties(row: Row, own: str) -> Row:
    """The row of an extreme in a framework whose gradient at a tie is always ``own``."""

    def call(module: Any, a: Any, b: Any, ties: str = own) -> Any:
        if ties != own:
            raise Unsupported(f"gives the gradient of a tie to {own}, not {ties}")
        return row(module, a, b)

    return call


for _witness, _own in ((TORCH, "half"), (TENSORFLOW, "first"), (PADDLE, "second")):
    for _name in ("maximum", "minimum"):
        _witness.rows[_name] = _with_ties(_witness.rows[_name], _own)

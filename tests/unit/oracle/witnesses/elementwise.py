"""Witnesses of element-wise arithmetic, comparison and logic."""

from __future__ import annotations

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, call, refusing

SHARED = (
    "add pow maximum minimum abs sign floor ceil round square sqrt rsqrt reciprocal exp expm1 log log1p "
    "sin cos tan asin acos atan sinh cosh erf not_equal less_equal greater_equal "
    "logical_and logical_or logical_xor logical_not"
)


def _same(prefix, *groups):
    return {name: call(prefix + name) for group in groups for name in group.split()}


def _scaled(module, x, scale, bias, bias_after_scale):
    return x * scale + bias if bias_after_scale else (x + bias) * scale


def _added_product(module, x, a, b, value):
    return x + value * a * b


SCIPY.add(_same("special.", "erf expm1 log1p"))

TORCH.add(_same("", SHARED, "sub mul div neg trunc less greater log2 log10 addcmul isnan isinf isfinite where"))
TORCH.add(
    {
        "equal": call("eq"),
        "floor_div": call("div", rounding_mode="floor"),
        "trunc_div": call("div", rounding_mode="trunc"),
        "floor_mod": call("remainder"),
        "trunc_mod": call("fmod"),
        "clip": call("clamp", "low", "high"),
        "scale": _scaled,
    }
)

TENSORFLOW.add(_same("math.", SHARED, "equal less greater"))
TENSORFLOW.add(
    {
        "sub": call("math.subtract"),
        "mul": call("math.multiply"),
        "div": call("math.divide"),
        "neg": call("math.negative"),
        "floor_div": call("math.floordiv"),
        "trunc_div": lambda tf, a, b: tf.cast(tf.cast(a / b, tf.int64), a.dtype),
        "floor_mod": call("math.floormod"),
        "trunc_mod": call("truncatemod"),
        "trunc": lambda tf, x: tf.sign(x) * tf.floor(tf.abs(x)),
        "clip": call("clip_by_value", "low", "high"),
        "log2": lambda tf, x: tf.math.log(x) / tf.math.log(tf.constant(2, x.dtype)),
        "log10": lambda tf, x: tf.math.log(x) / tf.math.log(tf.constant(10, x.dtype)),
        "scale": _scaled,
        "addcmul": _added_product,
        "isnan": call("math.is_nan"),
        "isinf": call("math.is_inf"),
        "isfinite": call("math.is_finite"),
        "where": call("where"),
    }
)

PADDLE.add(_same("", SHARED, "equal neg trunc log2 log10 scale isnan isinf isfinite"))
PADDLE.add(
    {
        "sub": call("subtract"),
        "mul": call("multiply"),
        "div": call("divide"),
        "floor_div": call("floor_divide"),
        "trunc_div": lambda paddle, a, b: paddle.trunc(a / b),
        "floor_mod": call("remainder"),
        "clip": call("clip", "low", "high"),
        "addcmul": _added_product,
        "less": call("less_than"),
        "greater": call("greater_than"),
        "where": lambda paddle, condition, a, b: paddle.where(_filled(paddle, condition, a + b), a, b),
    }
)
TENSORFLOW.except_for("trunc_mod", "gradients", "float64 float32", "it has none")
PADDLE.except_for("floor_div floor_mod", "gradients", "float64 float32", "it has none")


def _filled(paddle, condition, like):
    """The condition broadcast, which paddle.where leaves to its caller."""
    return paddle.logical_or(condition, paddle.zeros_like(like, dtype="bool"))


def _with_ties(row, rule):
    """The row of an extreme in a framework whose gradient at a tie always follows ``rule``."""
    return refusing(
        lambda module, a, b, **_: row(module, a, b),
        lambda a, b, ties=rule: ties != rule,
        f"gives the gradient of a tie to {rule}",
    )


for _witness, _rule in ((TORCH, "half"), (TENSORFLOW, "first"), (PADDLE, "second")):
    for _name in ("maximum", "minimum"):
        _witness.rows[_name] = _with_ties(_witness.rows[_name], _rule)

"""Element-wise arithmetic, comparison and logic."""

from __future__ import annotations

import numpy as np

from ipu_conformance.ops.row import TABLE, Missing, Row, call, refusing

_SAME_NAME = (
    "add pow abs sign floor ceil round sqrt rsqrt reciprocal exp expm1 log log1p sin cos tan asin acos atan sinh cosh "
    "erf not_equal less_equal greater_equal logical_and logical_or logical_xor logical_not"
)
"""Functions with one name in PyTorch, in TensorFlow's ``tf.math`` and in Paddle."""

_OWN_NAMES = {
    "sub": ("sub", "math.subtract", "subtract"),
    "mul": ("mul", "math.multiply", "multiply"),
    "div": ("div", "math.divide", "divide"),
    "neg": ("neg", "math.negative", "neg"),
    "equal": ("eq", "math.equal", "equal"),
    "less": ("less", "math.less", "less_than"),
    "greater": ("greater", "math.greater", "greater_than"),
    "isnan": ("isnan", "math.is_nan", "isnan"),
    "isinf": ("isinf", "math.is_inf", "isinf"),
    "isfinite": ("isfinite", "math.is_finite", "isfinite"),
}
"""Functions that each framework has a name of its own for."""


def _logarithm(base):
    return lambda tf, x: tf.math.log(x) / tf.math.log(tf.constant(base, x.dtype))


def _trunc(module, x):
    return module.sign(x) * module.floor(module.abs(x))


def _frac(module, x):
    return x - _trunc(module, x)


def _scaled(module, x, scale, bias, bias_after_scale):
    return x * scale + bias if bias_after_scale else (x + bias) * scale


def _paddle_floor_div(paddle, a, b):
    """paddle.floor_divide is documented to round towards zero; a quotient of whole numbers is of floating point."""
    return paddle.cast(paddle.floor(a / b), a.dtype)


def _added_product(module, x, a, b, value):
    return x + value * a * b


def _paddle_where(paddle, condition, a, b):
    """paddle.where leaves it to its caller to broadcast."""
    shape = list(np.broadcast_shapes(*(tuple(x.shape) for x in (condition, a, b))))
    return paddle.where(*(x if list(x.shape) == shape else paddle.expand(x, shape) for x in (condition, a, b)))


def _extreme(name, prefix, rule):
    """An extreme of two in a framework whose gradient at a tie always follows ``rule``."""
    function = call(prefix + name)
    return refusing(
        lambda module, a, b, **_: function(module, a, b),
        lambda a, b, ties=rule: ties != rule,
        f"the gradient of a tie goes to {rule}",
    )


TABLE.add(
    *(Row(name, call(name), call(f"math.{name}"), call(name)) for name in _SAME_NAME.split()),
    *(Row(name, call(torch), call(tf), call(paddle)) for name, (torch, tf, paddle) in _OWN_NAMES.items()),
    *(
        Row(name, _extreme(name, "", "half"), _extreme(name, "math.", "first"), _extreme(name, "", "second"))
        for name in ("maximum", "minimum")
    ),
    Row("square", call("square"), call("math.square"), call("square"), power=2),
    Row("log2", call("log2"), _logarithm(2), call("log2")),
    Row("log10", call("log10"), _logarithm(10), call("log10")),
    Row("trunc", call("trunc"), _trunc, _trunc),
    Row("frac", call("frac"), _frac, _frac),
    Row("erfc", call("erfc"), call("math.erfc"), lambda paddle, x: 1 - paddle.erf(x)),
    Row("asinh", call("asinh"), call("math.asinh"), Missing("an IPU build of Paddle has no handler for it")),
    Row("atan2", call("atan2"), call("math.atan2"), Missing("an IPU build of Paddle has no handler for it"), power=2),
    Row(
        "floor_div",
        torch=call("div", rounding_mode="floor"),
        tensorflow=call("math.floordiv"),
        paddle=_paddle_floor_div,
    ),
    Row(
        "trunc_div",
        torch=call("div", rounding_mode="trunc"),
        tensorflow=lambda tf, a, b: _trunc(tf, a / b),
        paddle=lambda paddle, a, b: _trunc(paddle, a / b),
    ),
    Row("floor_mod", call("remainder"), call("math.floormod"), call("remainder"), without_gradient=("paddle",)),
    Row(
        "trunc_mod",
        torch=call("fmod"),
        tensorflow=call("truncatemod"),
        paddle=lambda paddle, a, b: paddle.sign(a) * paddle.remainder(paddle.abs(a), paddle.abs(b)),
        without_gradient=("tensorflow", "paddle"),
    ),
    Row(
        "clip",
        torch=call("clamp", "low", "high"),
        tensorflow=call("clip_by_value", "low", "high"),
        paddle=call("clip", "low", "high"),
    ),
    Row("scale", _scaled, _scaled, call("scale")),
    Row("addcmul", call("addcmul"), _added_product, _added_product, power=2),
    Row("where", call("where"), call("where"), _paddle_where),
)

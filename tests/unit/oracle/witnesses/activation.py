"""Witnesses of the activation functions."""

from __future__ import annotations

from typing import Any

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Row


def _renamed(function: str, *positional: str, **fixed: Any) -> Row:
    """A row that calls ``nn.functional.<function>`` with the named attributes, in order, after the inputs."""

    def row(module: Any, *inputs: Any, **attributes: Any) -> Any:
        values = [attributes[name] for name in positional]
        return getattr(module.nn.functional, function)(*inputs, *values, **fixed)

    return row


# The functions that PyTorch and Paddle call alike, with attributes in the same order.
_BOTH = {
    "celu": _renamed("celu", "alpha"),
    "elu": _renamed("elu", "alpha"),
    "glu": _renamed("glu", "axis"),
    "hardshrink": _renamed("hardshrink", "threshold"),
    "hardswish": _renamed("hardswish"),
    "hardtanh": _renamed("hardtanh", "low", "high"),
    "leaky_relu": _renamed("leaky_relu", "slope"),
    "mish": _renamed("mish"),
    "prelu": _renamed("prelu"),
    "relu": _renamed("relu"),
    "relu6": _renamed("relu6"),
    "selu": _renamed("selu"),
    "silu": _renamed("silu"),
    "softplus": _renamed("softplus", "beta"),
    "softshrink": _renamed("softshrink", "threshold"),
    "softsign": _renamed("softsign"),
}
TORCH.add(_BOTH)
TORCH.add(
    {
        "gelu": _renamed("gelu"),
        "gelu_tanh": _renamed("gelu", approximate="tanh"),
        "log_sigmoid": _renamed("logsigmoid"),
        "sigmoid": lambda torch, x: torch.sigmoid(x),
        "swish": lambda torch, x, beta: torch.nn.functional.silu(beta * x) / beta,
        "tanh": lambda torch, x: torch.tanh(x),
        "tanh_shrink": _renamed("tanhshrink"),
        "threshold": _renamed("threshold", "threshold", "value"),
        "hardsigmoid": lambda torch, x, slope, offset: torch.clamp(slope * x + offset, 0.0, 1.0),
    }
)
PADDLE.add(_BOTH)
PADDLE.add(
    {
        "gelu": _renamed("gelu"),
        "gelu_tanh": _renamed("gelu", approximate=True),
        "hardsigmoid": _renamed("hardsigmoid", "slope", "offset"),
        "log_sigmoid": _renamed("log_sigmoid"),
        "sigmoid": _renamed("sigmoid"),
        "swish": lambda paddle, x, beta: paddle.nn.functional.swish(beta * x) / beta,
        "tanh": lambda paddle, x: paddle.tanh(x),
        "tanh_shrink": _renamed("tanhshrink"),
    }
)
TENSORFLOW.add(
    {
        "elu": lambda tf, x, alpha: tf.keras.activations.elu(x, alpha),
        "gelu": lambda tf, x: tf.nn.gelu(x),
        "gelu_tanh": lambda tf, x: tf.nn.gelu(x, approximate=True),
        "hardtanh": lambda tf, x, low, high: tf.clip_by_value(x, low, high),
        "leaky_relu": lambda tf, x, slope: tf.nn.leaky_relu(x, slope),
        "log_sigmoid": lambda tf, x: tf.math.log_sigmoid(x),
        "mish": lambda tf, x: tf.keras.activations.mish(x),
        "relu": lambda tf, x: tf.nn.relu(x),
        "relu6": lambda tf, x: tf.nn.relu6(x),
        "selu": lambda tf, x: tf.nn.selu(x),
        "sigmoid": lambda tf, x: tf.nn.sigmoid(x),
        "silu": lambda tf, x: tf.nn.silu(x),
        "softplus": lambda tf, x, beta: tf.nn.softplus(beta * x) / beta,
        "softsign": lambda tf, x: tf.nn.softsign(x),
        "swish": lambda tf, x, beta: tf.nn.silu(x, beta),
        "tanh": lambda tf, x: tf.nn.tanh(x),
    }
)
SCIPY.add(
    {
        "gelu": lambda scipy, x: x * scipy.special.ndtr(x),
        "log_sigmoid": lambda scipy, x: scipy.special.log_expit(x),
        "sigmoid": lambda scipy, x: scipy.special.expit(x),
        "silu": lambda scipy, x: x * scipy.special.expit(x),
    }
)

PADDLE.except_for("selu", ("outputs", "gradients"), "float64", "its constants are float32")
for _name in ("gelu", "gelu_tanh"):
    TENSORFLOW.except_for(_name, ("outputs", "gradients"), "float64", "its constants are float32")

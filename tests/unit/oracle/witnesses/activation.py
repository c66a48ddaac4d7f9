"""Witnesses of the activation functions."""

from __future__ import annotations

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, call, functional

SAME_NAME = ("gelu", "hardswish", "mish", "prelu", "relu", "relu6", "selu", "silu", "softsign")
IN_TF_NN = ("gelu", "relu", "relu6", "selu", "sigmoid", "silu", "softsign", "tanh")

ALIKE = {
    **{
        name: functional(name)
        for name in ["gelu", "hardswish", "mish", "prelu", "relu", "relu6", "selu", "silu", "softsign"]
    },
    "celu": functional("celu", "alpha"),
    "elu": functional("elu", "alpha"),
    "glu": functional("glu", "axis"),
    "hardshrink": functional("hardshrink", "threshold"),
    "hardtanh": functional("hardtanh", "low", "high"),
    "leaky_relu": functional("leaky_relu", "slope"),
    "softplus": functional("softplus", "beta"),
    "softshrink": functional("softshrink", "threshold"),
    "tanh": call("tanh"),
    "tanh_shrink": functional("tanhshrink"),
    "sigmoid": functional("sigmoid"),
}
"""The functions that PyTorch and Paddle call alike, with attributes in the same order."""

TORCH.add(
    {
        **ALIKE,
        "gelu_tanh": functional("gelu", approximate="tanh"),
        "hardsigmoid": lambda torch, x, slope, offset: torch.clamp(slope * x + offset, 0.0, 1.0),
        "log_sigmoid": functional("logsigmoid"),
        "swish": lambda torch, x, beta: torch.nn.functional.silu(beta * x) / beta,
        "threshold": functional("threshold", "threshold", "value"),
    }
)
PADDLE.add(
    {
        **ALIKE,
        "gelu_tanh": functional("gelu", approximate=True),
        "hardsigmoid": functional("hardsigmoid", "slope", "offset"),
        "log_sigmoid": functional("log_sigmoid"),
        "swish": lambda paddle, x, beta: paddle.nn.functional.swish(beta * x) / beta,
    }
)
TENSORFLOW.add(
    {
        **{
            name: call(f"nn.{name}")
            for name in ["gelu", "relu", "relu6", "selu", "sigmoid", "silu", "softsign", "tanh"]
        },
        "elu": call("keras.activations.elu", "alpha"),
        "gelu_tanh": call("nn.gelu", approximate=True),
        "hardtanh": call("clip_by_value", "low", "high"),
        "leaky_relu": call("nn.leaky_relu", "slope"),
        "log_sigmoid": call("math.log_sigmoid"),
        "mish": call("keras.activations.mish"),
        "softplus": lambda tf, x, beta: tf.nn.softplus(beta * x) / beta,
        "swish": call("nn.silu", "beta"),
    }
)
SCIPY.add(
    {
        "gelu": lambda scipy, x: x * scipy.special.ndtr(x),
        "log_sigmoid": call("special.log_expit"),
        "sigmoid": call("special.expit"),
        "silu": lambda scipy, x: x * scipy.special.expit(x),
    }
)

PADDLE.except_for("selu", "outputs gradients", "float64", "its constants are float32")
TENSORFLOW.except_for("gelu gelu_tanh", "outputs gradients", "float64", "its constants are float32")

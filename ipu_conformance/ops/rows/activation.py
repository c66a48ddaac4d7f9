"""Activation functions."""

from __future__ import annotations

from ipu_conformance.ops.row import TABLE, Row, call, functional

TABLE.add(
    *(
        Row(name, functional(name), call(f"nn.{name}"), functional(name))
        for name in ("relu", "relu6", "selu", "sigmoid", "silu", "softsign", "gelu")
    ),
    Row("tanh", *(call("tanh"),) * 3),
    Row(
        "gelu_tanh",
        torch=functional("gelu", approximate="tanh"),
        tensorflow=call("nn.gelu", approximate=True),
        paddle=functional("gelu", approximate=True),
        power=3,
    ),
    Row("elu", functional("elu", "alpha"), call("keras.activations.elu", "alpha"), functional("elu", "alpha")),
    Row(
        "celu",
        torch=functional("celu", "alpha"),
        tensorflow=lambda tf, x, alpha: alpha * tf.nn.elu(x / alpha),
        paddle=functional("celu", "alpha"),
    ),
    Row(
        "leaky_relu",
        torch=functional("leaky_relu", "slope"),
        tensorflow=call("nn.leaky_relu", "slope"),
        paddle=functional("leaky_relu", "slope"),
    ),
    Row(
        "hardtanh",
        torch=functional("hardtanh", "low", "high"),
        tensorflow=call("clip_by_value", "low", "high"),
        paddle=functional("hardtanh", "low", "high"),
    ),
    Row(
        "hardshrink",
        torch=functional("hardshrink", "threshold"),
        tensorflow=lambda tf, x, threshold: tf.where(tf.abs(x) > threshold, x, tf.zeros_like(x)),
        paddle=functional("hardshrink", "threshold"),
    ),
    Row(
        "softshrink",
        torch=functional("softshrink", "threshold"),
        tensorflow=lambda tf, x, threshold: x - tf.clip_by_value(x, -threshold, threshold),
        paddle=functional("softshrink", "threshold"),
    ),
    Row(
        "tanh_shrink",
        torch=functional("tanhshrink"),
        tensorflow=lambda tf, x: x - tf.tanh(x),
        paddle=functional("tanhshrink"),
    ),
    Row(
        "threshold",
        torch=functional("threshold", "threshold", "value"),
        tensorflow=lambda tf, x, threshold, value: tf.where(x > threshold, x, tf.constant(value, x.dtype)),
        paddle=lambda paddle, x, threshold, value: (
            paddle.where(x > threshold, x, paddle.full_like(x, value))
            if value
            else paddle.nn.functional.thresholded_relu(x, threshold)
        ),
    ),
    Row(
        "hardsigmoid",
        torch=lambda torch, x, slope, offset: torch.clamp(slope * x + offset, 0.0, 1.0),
        tensorflow=lambda tf, x, slope, offset: tf.clip_by_value(slope * x + offset, 0.0, 1.0),
        paddle=functional("hardsigmoid", "slope", "offset"),
    ),
    Row(
        "hardswish",
        torch=functional("hardswish"),
        tensorflow=lambda tf, x: x * tf.nn.relu6(x + 3.0) / 6.0,
        paddle=functional("hardswish"),
        power=2,
    ),
    Row(
        "log_sigmoid",
        torch=functional("logsigmoid"),
        tensorflow=call("math.log_sigmoid"),
        paddle=functional("log_sigmoid"),
    ),
    Row(
        "softplus",
        torch=functional("softplus", "beta"),
        tensorflow=lambda tf, x, beta: tf.nn.softplus(beta * x) / beta,
        paddle=lambda paddle, x, beta: paddle.nn.functional.softplus(beta * x) / beta,
    ),
    Row(
        "swish",
        torch=lambda torch, x, beta: torch.nn.functional.silu(beta * x) / beta,
        tensorflow=lambda tf, x, beta: tf.nn.silu(beta * x) / beta,
        paddle=lambda paddle, x, beta: paddle.nn.functional.swish(beta * x) / beta,
    ),
    Row(
        "mish",
        torch=functional("mish"),
        tensorflow=lambda tf, x: x * tf.tanh(tf.nn.softplus(x)),
        paddle=functional("mish"),
    ),
    Row(
        "prelu",
        torch=functional("prelu"),
        tensorflow=lambda tf, x, weight: (
            tf.nn.relu(x) - tf.reshape(weight, [-1] + [1] * (x.ndim - 2)) * tf.nn.relu(-x)
        ),
        paddle=functional("prelu"),
    ),
    Row(
        "glu",
        functional("glu", "axis"),
        lambda tf, x, axis: _tf_glu(tf, *tf.split(x, 2, axis)),
        functional("glu", "axis"),
    ),
)


def _tf_glu(tf, first, second):
    return first * tf.sigmoid(second)

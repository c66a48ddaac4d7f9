"""Normalizations."""

from __future__ import annotations

from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import TABLE, Row, refusing


def _torch_statistics(torch, x, mean, variance, momentum, unbiased):
    mean, variance = mean.clone(), variance.clone()
    torch.nn.functional.batch_norm(x, mean, variance, training=True, momentum=momentum)
    return mean, variance


def _instance(module, x, scale, bias, epsilon):
    return module.nn.functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


def _normalized_before(module, x, size, total, squares):
    """What data_norm makes of its statistics, which other frameworks write out."""
    return (x - total / size) * (size / squares) ** 0.5


# Paddle.


def _paddle_running(paddle, x, value):
    """A running statistic; a program keeps it between runs."""
    if paddle.in_dynamic_mode():
        return paddle.full([x.shape[1]], value, x.dtype)
    return paddle.static.create_global_var([x.shape[1]], value, "float32", persistable=True)


def _paddle_batch(paddle, x, scale, bias, epsilon):
    running = [_paddle_running(paddle, x, value) for value in (0.0, 1.0)]
    return paddle.nn.functional.batch_norm(x, *running, scale, bias, training=True, epsilon=epsilon)


def _paddle_inference(paddle, x, scale, bias, mean, variance, epsilon):
    return paddle.nn.functional.batch_norm(x, mean, variance, scale, bias, epsilon=epsilon)


def _paddle_statistics(paddle, x, mean, variance, momentum, unbiased):
    ones, zeros = paddle.ones_like(mean), paddle.zeros_like(mean)
    mean, variance = paddle.assign(mean), paddle.assign(variance)
    paddle.nn.functional.batch_norm(x, mean, variance, ones, zeros, training=True, momentum=1 - momentum)
    return mean, variance


def _paddle_layer(paddle, x, scale, bias, axes, epsilon):
    flat = (paddle.reshape(values, [-1]) for values in (scale, bias))
    return paddle.nn.functional.layer_norm(x, x.shape[-axes:], *flat, epsilon)


def _paddle_group(paddle, x, scale, bias, groups, epsilon):
    layer = paddle.nn.GroupNorm(groups, x.shape[1], epsilon, weight_attr=False, bias_attr=False)
    scale, bias = (paddle.reshape(values, [-1] + [1] * (x.ndim - 2)) for values in (scale, bias))
    return layer(x) * scale + bias


def _paddle_data(paddle, x, size, total, squares):
    if paddle.in_dynamic_mode():
        raise Inexpressible("Paddle has data_norm in programs only")
    start = {"batch_size": size, "batch_sum": total, "batch_square": squares}
    # Without a name of its own a call would share the sums of every other one in its program.
    return paddle.static.nn.data_norm(x, param_attr=start, name=paddle.utils.unique_name.generate("data_norm"))


# TensorFlow: moments, and what its batch_normalization makes of them.


def _tf_normalized(tf, x, axes, scale, bias, epsilon):
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, bias, scale, epsilon)


def _by_channel(tf, x, values):
    return tf.reshape(values, [1, -1] + [1] * (x.ndim - 2))


def _tf_over(*first):
    """A normalization over the axes ``first`` and those behind the channels."""

    def ask(tf, x, scale, bias, epsilon):
        axes = [*first, *range(2, x.ndim)]
        return _tf_normalized(tf, x, axes, _by_channel(tf, x, scale), _by_channel(tf, x, bias), epsilon)

    return ask


def _tf_inference(tf, x, *parameters, epsilon):
    scale, bias, mean, variance = (_by_channel(tf, x, value) for value in parameters)
    return tf.nn.batch_normalization(x, mean, variance, bias, scale, epsilon)


def _tf_statistics(tf, x, mean, variance, momentum, unbiased):
    batch = tf.nn.moments(x, [0, *range(2, x.ndim)])
    count = x.shape[0]
    for size in x.shape[2:]:
        count *= size
    correction = count / (count - 1) if unbiased and count > 1 else 1.0
    return (1 - momentum) * mean + momentum * batch[0], (1 - momentum) * variance + momentum * correction * batch[1]


def _tf_group(tf, x, scale, bias, groups, epsilon):
    parts = tf.reshape(x, [x.shape[0], groups, -1])
    mean, variance = tf.nn.moments(parts, [2], keepdims=True)
    y = tf.nn.batch_normalization(parts, mean, variance, None, None, epsilon)
    return tf.reshape(y, x.shape) * _by_channel(tf, x, scale) + _by_channel(tf, x, bias)


TABLE.add(
    Row(
        "batch_norm",
        torch=lambda torch, x, scale, bias, epsilon: torch.nn.functional.batch_norm(
            x, None, None, scale, bias, training=True, eps=epsilon
        ),
        tensorflow=_tf_over(0),
        paddle=_paddle_batch,
        power=2,
    ),
    Row(
        "batch_norm_inference",
        torch=lambda torch, x, scale, bias, mean, variance, epsilon: torch.nn.functional.batch_norm(
            x, mean, variance, scale, bias, eps=epsilon
        ),
        tensorflow=_tf_inference,
        paddle=_paddle_inference,
    ),
    Row(
        "batch_norm_statistics",
        torch=refusing(
            _torch_statistics, lambda *_, momentum, unbiased: not unbiased, "PyTorch stores the unbiased variance"
        ),
        tensorflow=_tf_statistics,
        paddle=refusing(
            _paddle_statistics, lambda *_, momentum, unbiased: unbiased, "Paddle stores the biased variance"
        ),
        power=2,
    ),
    Row(
        "layer_norm",
        torch=lambda torch, x, scale, bias, axes, epsilon: torch.nn.functional.layer_norm(
            x, x.shape[-axes:], scale, bias, epsilon
        ),
        tensorflow=lambda tf, x, scale, bias, axes, epsilon: _tf_normalized(
            tf, x, list(range(x.ndim - axes, x.ndim)), scale, bias, epsilon
        ),
        paddle=_paddle_layer,
        power=2,
    ),
    Row(
        "group_norm",
        torch=lambda torch, x, scale, bias, groups, epsilon: torch.nn.functional.group_norm(
            x, groups, scale, bias, epsilon
        ),
        tensorflow=_tf_group,
        paddle=_paddle_group,
        power=2,
    ),
    Row("instance_norm", _instance, _tf_over(), _instance, power=2),
    Row("data_norm", _normalized_before, _normalized_before, _paddle_data),
)

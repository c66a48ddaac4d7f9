"""Witnesses of the normalisations."""

from __future__ import annotations

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, refusing


def _batch_inference(module, x, scale, bias, mean, variance, **epsilon):
    return module.nn.functional.batch_norm(x, mean.detach(), variance.detach(), scale, bias, **epsilon)


def _instance(module, x, scale, bias, epsilon):
    return module.nn.functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


def _torch_statistics(torch, x, mean, variance, momentum, unbiased):
    mean, variance = mean.clone(), variance.clone()
    torch.nn.functional.batch_norm(x, mean, variance, training=True, momentum=momentum)
    return mean, variance


TORCH.add(
    {
        "batch_norm": lambda torch, x, scale, bias, epsilon: torch.nn.functional.batch_norm(
            x, None, None, scale, bias, training=True, eps=epsilon
        ),
        "batch_norm_inference": lambda torch, *inputs, epsilon: _batch_inference(torch, *inputs, eps=epsilon),
        "batch_norm_statistics": refusing(
            _torch_statistics, lambda *_, momentum, unbiased: not unbiased, "PyTorch stores the unbiased variance"
        ),
        "layer_norm": lambda torch, x, scale, bias, axes, epsilon: torch.nn.functional.layer_norm(
            x, x.shape[-axes:], scale, bias, epsilon
        ),
        "group_norm": lambda torch, x, scale, bias, groups, epsilon: torch.nn.functional.group_norm(
            x, groups, scale, bias, epsilon
        ),
        "instance_norm": _instance,
        "data_norm": lambda torch, x, size, total, squares: (x - total / size) * (size / squares) ** 0.5,
    }
)


def _paddle_batch(paddle, x, scale, bias, epsilon):
    running = paddle.zeros_like(scale.detach()), paddle.ones_like(scale.detach())
    return paddle.nn.functional.batch_norm(x, *running, scale, bias, training=True, epsilon=epsilon)


def _paddle_statistics(paddle, x, mean, variance, momentum, unbiased):
    ones, zeros = paddle.ones_like(mean), paddle.zeros_like(mean)
    paddle.nn.functional.batch_norm(x, mean, variance, ones, zeros, training=True, momentum=1 - momentum)
    return mean, variance


def _paddle_group(paddle, x, scale, bias, groups, epsilon):
    layer = paddle.nn.GroupNorm(groups, x.shape[1], epsilon)
    layer._parameters.update(weight=scale, bias=bias)  # its functional form is not public
    return layer(x)


PADDLE.add(
    {
        "batch_norm": _paddle_batch,
        "batch_norm_inference": _batch_inference,
        "batch_norm_statistics": refusing(
            _paddle_statistics, lambda *_, momentum, unbiased: unbiased, "Paddle stores the biased variance"
        ),
        "layer_norm": lambda paddle, x, scale, bias, axes, epsilon: paddle.nn.functional.layer_norm(
            x, x.shape[-axes:], scale.reshape([-1]), bias.reshape([-1]), epsilon
        ),
        "group_norm": _paddle_group,
        "instance_norm": _instance,
    }
)


def _tf_normalised(tf, x, axes, scale, bias, epsilon):
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, bias, scale, epsilon)


def _by_channel(tf, x, values):
    return tf.reshape(values, [1, -1] + [1] * (x.ndim - 2))


def _tf_over(*first):
    """A row that normalises over the axes ``first`` and those behind the channels."""

    def row(tf, x, scale, bias, epsilon):
        axes = [*first, *range(2, x.ndim)]
        return _tf_normalised(tf, x, axes, _by_channel(tf, x, scale), _by_channel(tf, x, bias), epsilon)

    return row


def _tf_inference(tf, x, *parameters, epsilon):
    scale, bias, mean, variance = (_by_channel(tf, x, value) for value in parameters)
    return tf.nn.batch_normalization(x, tf.stop_gradient(mean), tf.stop_gradient(variance), bias, scale, epsilon)


def _tf_statistics(tf, x, mean, variance, momentum, unbiased):
    layer = tf.keras.layers.BatchNormalization(axis=1, momentum=1 - momentum, fused=False, dtype=x.dtype)
    layer.build(x.shape)
    layer.moving_mean.assign(mean)
    layer.moving_variance.assign(variance)
    layer(x, training=True)
    return layer.moving_mean.value(), layer.moving_variance.value()


def _tf_group(tf, x, scale, bias, groups, epsilon):
    layer = tf.keras.layers.GroupNormalization(groups, 1, epsilon, center=False, scale=False, dtype=x.dtype)
    return layer(x) * _by_channel(tf, x, scale) + _by_channel(tf, x, bias)


TENSORFLOW.add(
    {
        "batch_norm": _tf_over(0),
        "batch_norm_inference": _tf_inference,
        "batch_norm_statistics": refusing(
            _tf_statistics,
            lambda *_, momentum, unbiased: unbiased,
            "Keras stores the biased variance outside its fused kernel",
        ),
        "layer_norm": lambda tf, x, scale, bias, axes, epsilon: _tf_normalised(
            tf, x, list(range(x.ndim - axes, x.ndim)), scale, bias, epsilon
        ),
        "group_norm": _tf_group,
        "instance_norm": _tf_over(),
    }
)

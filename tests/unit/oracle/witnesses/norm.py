"""Witnesses of normalisation."""

from __future__ import annotations

from typing import Any

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, Unsupported


@TORCH.row("batch_norm")
def _torch_batch(torch: Any, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
    return torch.nn.functional.batch_norm(x, None, None, scale, bias, training=True, eps=epsilon)


@TORCH.row("batch_norm_inference")
def _torch_inference(torch: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, epsilon: float) -> Any:
    return torch.nn.functional.batch_norm(x, mean.detach(), variance.detach(), scale, bias, eps=epsilon)


@TORCH.row("batch_norm_statistics")
def _torch_statistics(torch: Any, x: Any, mean: Any, variance: Any, *, momentum: float, unbiased: bool) -> Any:
    if not unbiased:
        raise Unsupported("PyTorch stores the unbiased variance")
    mean, variance = mean.clone(), variance.clone()
    torch.nn.functional.batch_norm(x, mean, variance, training=True, momentum=momentum)
    return mean, variance


@TORCH.row("layer_norm")
def _torch_layer(torch: Any, x: Any, scale: Any, bias: Any, *, axes: int, epsilon: float) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-axes:], scale, bias, epsilon)


@TORCH.row("group_norm")
def _torch_group(torch: Any, x: Any, scale: Any, bias: Any, *, groups: int, epsilon: float) -> Any:
    return torch.nn.functional.group_norm(x, groups, scale, bias, epsilon)


@TORCH.row("instance_norm")
def _torch_instance(torch: Any, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
    return torch.nn.functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


@PADDLE.row("batch_norm")
def _paddle_batch(paddle: Any, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
    kept = paddle.zeros_like(scale.detach()), paddle.ones_like(scale.detach())
    return paddle.nn.functional.batch_norm(x, *kept, scale, bias, training=True, epsilon=epsilon)


@PADDLE.row("batch_norm_inference")
def _paddle_inference(paddle: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, epsilon: float) -> Any:
    return paddle.nn.functional.batch_norm(x, mean.detach(), variance.detach(), scale, bias, epsilon=epsilon)


@PADDLE.row("batch_norm_statistics")
def _paddle_statistics(paddle: Any, x: Any, mean: Any, variance: Any, *, momentum: float, unbiased: bool) -> Any:
    if unbiased:
        raise Unsupported("Paddle stores the biased variance")
    ones, zeros = paddle.ones_like(mean), paddle.zeros_like(mean)
    paddle.nn.functional.batch_norm(x, mean, variance, ones, zeros, training=True, momentum=1 - momentum)
    return mean, variance


@PADDLE.row("layer_norm")
def _paddle_layer(paddle: Any, x: Any, scale: Any, bias: Any, *, axes: int, epsilon: float) -> Any:
    return paddle.nn.functional.layer_norm(x, x.shape[-axes:], scale.reshape([-1]), bias.reshape([-1]), epsilon)


@PADDLE.row("group_norm")
def _paddle_group(paddle: Any, x: Any, scale: Any, bias: Any, *, groups: int, epsilon: float) -> Any:
    layer = paddle.nn.GroupNorm(groups, x.shape[1], epsilon)
    layer._parameters.update(weight=scale, bias=bias)  # its functional form is not public
    return layer(x)


@PADDLE.row("instance_norm")
def _paddle_instance(paddle: Any, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
    return paddle.nn.functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


def _tf_normalised(tf: Any, x: Any, axes: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, bias, scale, epsilon)


def _by_channel(tf: Any, x: Any, values: Any) -> Any:
    return tf.reshape(values, [1, -1] + [1] * (x.ndim - 2))


@TENSORFLOW.row("batch_norm")
def _tf_batch(tf: Any, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
    axes = [0, *range(2, x.ndim)]
    return _tf_normalised(tf, x, axes, _by_channel(tf, x, scale), _by_channel(tf, x, bias), epsilon)


@TENSORFLOW.row("batch_norm_inference")
def _tf_inference(tf: Any, x: Any, *parameters: Any, epsilon: float) -> Any:
    scale, bias, mean, variance = (_by_channel(tf, x, value) for value in parameters)
    return tf.nn.batch_normalization(x, tf.stop_gradient(mean), tf.stop_gradient(variance), bias, scale, epsilon)


@TENSORFLOW.row("batch_norm_statistics")
def _tf_statistics(tf: Any, x: Any, mean: Any, variance: Any, *, momentum: float, unbiased: bool) -> Any:
    layer = tf.keras.layers.BatchNormalization(axis=1, momentum=1 - momentum, fused=False, dtype=x.dtype)
    if unbiased:
        raise Unsupported("Keras stores the biased variance outside its fused kernel")
    layer.build(x.shape)
    layer.moving_mean.assign(mean)
    layer.moving_variance.assign(variance)
    layer(x, training=True)
    return layer.moving_mean.value(), layer.moving_variance.value()


@TENSORFLOW.row("layer_norm")
def _tf_layer(tf: Any, x: Any, scale: Any, bias: Any, *, axes: int, epsilon: float) -> Any:
    return _tf_normalised(tf, x, list(range(x.ndim - axes, x.ndim)), scale, bias, epsilon)


@TENSORFLOW.row("group_norm")
def _tf_group(tf: Any, x: Any, scale: Any, bias: Any, *, groups: int, epsilon: float) -> Any:
    layer = tf.keras.layers.GroupNormalization(groups, 1, epsilon, center=False, scale=False, dtype=x.dtype)
    return layer(x) * _by_channel(tf, x, scale) + _by_channel(tf, x, bias)


@TENSORFLOW.row("instance_norm")
def _tf_instance(tf: Any, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
    axes = list(range(2, x.ndim))
    return _tf_normalised(tf, x, axes, _by_channel(tf, x, scale), _by_channel(tf, x, bias), epsilon)

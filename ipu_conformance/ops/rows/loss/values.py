"""Losses between values and targets."""

from __future__ import annotations

import math

from ipu_conformance.ops.row import TABLE, Row, call, functional, refusing
from ipu_conformance.ops.rows.loss.reduced import reduced, tf_reduced

_EPSILON = 2.0**-27
"""What the oracle adds to a rate before its logarithm is taken, near the 1e-8 of the frameworks."""


def _keras(name):
    """A Keras loss: it takes means over the last axis, so one of length 1 is added, and some return float32."""

    def values(tf, x, target, **attributes):
        loss = getattr(tf.keras.losses, name)(tf.expand_dims(target, -1), tf.expand_dims(x, -1), **attributes)
        return tf.cast(loss, x.dtype)

    return tf_reduced(values)


def _hinge(module, x, target):
    return module.nn.functional.relu(1.0 - target * x)


def _log_cosh(module, x, target):
    return x - target + module.nn.functional.softplus(-2.0 * (x - target)) - math.log(2.0)


def _tf_smooth(tf, *inputs, beta, reduction):
    return _keras("huber")(tf, *inputs, delta=beta, reduction=reduction) / beta


def _tf_kl_div(tf, x, target, log_target):
    return tf.exp(target) * (target - x) if log_target else target * (tf.math.log(target) - x)


def _tf_poisson(tf, x, target, log_input):
    return tf.nn.log_poisson_loss(target, x) if log_input else x - target * tf.math.log(x + _EPSILON)


def _gaussian(log):
    """The loss in a framework whose logarithm is ``log``; PyTorch's and Paddle's own loss looks at the variances."""
    logarithm = call(log)
    return lambda module, x, target, variance: 0.5 * (
        logarithm(module, variance) + module.square(x - target) / variance
    )


def _weighted(module, x, target, weight, reduction):
    """The weight of a positive target is that of the whole element when every target is 0 or 1."""
    return module.nn.functional.binary_cross_entropy_with_logits(
        x, target, weight=1.0 + (weight - 1.0) * target, reduction=reduction
    )


def _of_difference(module, x, other, target, reduction):
    return module.nn.functional.binary_cross_entropy_with_logits(x - other, target, reduction=reduction)


TABLE.add(
    Row("mse_loss", functional("mse_loss"), _keras("mean_squared_error"), functional("mse_loss"), power=2),
    Row("l1_loss", functional("l1_loss"), _keras("mean_absolute_error"), functional("l1_loss")),
    Row(
        "smooth_l1_loss",
        torch=functional("smooth_l1_loss"),
        tensorflow=_tf_smooth,
        paddle=lambda paddle, *inputs, beta, reduction: (
            paddle.nn.functional.smooth_l1_loss(*inputs, delta=beta, reduction=reduction) / beta
        ),
        power=2,
    ),
    Row("huber_loss", functional("huber_loss"), _keras("huber"), functional("smooth_l1_loss"), power=2),
    Row("log_cosh_loss", reduced(_log_cosh), _keras("log_cosh"), reduced(_log_cosh)),
    Row("hinge_loss", reduced(_hinge), _keras("hinge"), reduced(_hinge)),
    Row(
        "squared_hinge_loss",
        torch=reduced(lambda torch, *inputs: torch.square(_hinge(torch, *inputs))),
        tensorflow=_keras("squared_hinge"),
        paddle=reduced(lambda paddle, *inputs: paddle.square(_hinge(paddle, *inputs))),
        power=2,
    ),
    Row(
        "bce_loss",
        torch=functional("binary_cross_entropy"),
        tensorflow=tf_reduced(lambda tf, p, target: -target * tf.math.log(p) - (1.0 - target) * tf.math.log1p(-p)),
        paddle=functional("binary_cross_entropy"),
    ),
    Row(
        "bce_with_logits_loss",
        torch=functional("binary_cross_entropy_with_logits"),
        tensorflow=tf_reduced(lambda tf, x, target: tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=x)),
        paddle=functional("binary_cross_entropy_with_logits"),
    ),
    Row(
        "weighted_bce_with_logits_loss",
        torch=lambda torch, x, target, weight, reduction: torch.nn.functional.binary_cross_entropy_with_logits(
            x, target, pos_weight=weight, reduction=reduction
        ),
        tensorflow=tf_reduced(
            lambda tf, x, target, weight: tf.nn.weighted_cross_entropy_with_logits(target, x, weight)
        ),
        paddle=_weighted,
    ),
    Row(
        "kl_div_loss",
        torch=functional("kl_div"),
        tensorflow=tf_reduced(_tf_kl_div),
        paddle=refusing(
            lambda paddle, x, target, reduction, **_: paddle.nn.functional.kl_div(x, target, reduction=reduction),
            lambda *_, log_target, **__: log_target,
            "Paddle takes probabilities as targets",
        ),
    ),
    Row(
        "soft_margin_loss",
        torch=functional("soft_margin_loss"),
        tensorflow=tf_reduced(lambda tf, x, target: tf.nn.softplus(-target * x)),
        paddle=reduced(lambda paddle, x, target: paddle.nn.functional.softplus(-target * x)),
    ),
    Row(
        "hinge_embedding_loss",
        torch=functional("hinge_embedding_loss"),
        tensorflow=tf_reduced(lambda tf, x, target, margin: tf.where(target > 0, x, tf.nn.relu(margin - x))),
        paddle=functional("hinge_embedding_loss"),
    ),
    Row(
        "margin_ranking_loss",
        torch=functional("margin_ranking_loss"),
        tensorflow=tf_reduced(lambda tf, x, other, target, margin: tf.nn.relu(margin - target * (x - other))),
        paddle=functional("margin_ranking_loss"),
    ),
    Row(
        "rank_loss",
        torch=_of_difference,
        tensorflow=tf_reduced(
            lambda tf, x, other, target: tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=x - other)
        ),
        paddle=_of_difference,
    ),
    Row(
        "poisson_nll_loss",
        torch=functional("poisson_nll_loss", eps=_EPSILON),
        tensorflow=tf_reduced(_tf_poisson),
        paddle=functional("poisson_nll_loss", epsilon=_EPSILON),
    ),
    Row(
        "gaussian_nll_loss",
        torch=reduced(_gaussian("log")),
        tensorflow=tf_reduced(_gaussian("math.log")),
        paddle=reduced(_gaussian("log")),
        power=2,
    ),
)

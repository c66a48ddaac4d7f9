"""Witnesses of the losses; TensorFlow's are reduced here with its own sums and means."""

from __future__ import annotations

from typing import Dict

import numpy as np

from tests.unit.oracle.witnesses.witness import (
    PADDLE,
    SCIPY,
    TENSORFLOW,
    TORCH,
    Row,
    Unsupported,
    channels_last,
    functional,
    refusing,
)


def _cosine(built_in):
    """The cosine embedding loss of a library that adds ``built_in`` to squared lengths."""
    return refusing(
        lambda module, *inputs, epsilon, **attributes: module.nn.functional.cosine_embedding_loss(
            *inputs, **attributes
        ),
        lambda *_, epsilon, **__: epsilon != built_in,
        f"the library adds {built_in}",
    )


_COMMON: Dict[str, Row] = {
    **{
        name: functional(name)
        for name in (
            "mse_loss",
            "l1_loss",
            "soft_margin_loss",
            "hinge_embedding_loss",
            "margin_ranking_loss",
            "gaussian_nll_loss",
        )
    },
    "bce_loss": functional("binary_cross_entropy"),
    "bce_with_logits_loss": functional("binary_cross_entropy_with_logits"),
    "weighted_bce_with_logits_loss": lambda module, x, target, weight, reduction: (
        module.nn.functional.binary_cross_entropy_with_logits(x, target, pos_weight=weight, reduction=reduction)
    ),
}
"""Losses that PyTorch and Paddle call by the same names."""

TORCH.add(
    {
        **_COMMON,
        "smooth_l1_loss": functional("smooth_l1_loss"),
        "huber_loss": functional("huber_loss"),
        "kl_div_loss": functional("kl_div"),
        "poisson_nll_loss": functional("poisson_nll_loss", eps=2.0**-27),
        "nll_loss": lambda torch, *inputs, label_smoothing, **attributes: torch.nn.functional.nll_loss(
            *inputs, **attributes
        ),
        "cross_entropy_loss": functional("cross_entropy"),
        "soft_cross_entropy_loss": functional("cross_entropy"),
        "cosine_embedding_loss": _cosine(1e-12),
        "triplet_margin_loss": functional("triplet_margin_loss", eps=2.0**-20),
        "multi_margin_loss": functional("multi_margin_loss"),
        "multilabel_soft_margin_loss": functional("multilabel_soft_margin_loss"),
    }
)


def _torch_of_probabilities(torch, x, target, normalise, reduction):
    p = x / x.sum(dim=1, keepdim=True) if normalise else x
    return torch.nn.functional.nll_loss(torch.log(p), target, reduction=reduction)


def _torch_rank_loss(torch, x, other, target, reduction):
    return torch.nn.functional.binary_cross_entropy_with_logits(x - other, target, reduction=reduction)


TORCH.add({"cross_entropy_of_probabilities": _torch_of_probabilities, "rank_loss": _torch_rank_loss})
PADDLE.add(
    {
        **_COMMON,
        "huber_loss": functional("smooth_l1_loss"),
        "poisson_nll_loss": functional("poisson_nll_loss", epsilon=2.0**-27),
        "cosine_embedding_loss": _cosine(1e-11),
        "triplet_margin_loss": functional("triplet_margin_loss", epsilon=2.0**-20),
        "multi_margin_loss": functional("multi_margin_loss"),
        "multilabel_soft_margin_loss": functional("multi_label_soft_margin_loss"),
    }
)


def _paddle_cross_entropy(paddle, x, target, *weight, ignore_index=-100, label_smoothing=0.0, reduction, **options):
    loss = paddle.nn.functional.cross_entropy(
        x, target.unsqueeze(1), *weight, ignore_index=ignore_index, reduction=reduction, axis=1, **options
    )
    return loss.squeeze(1) if reduction == "none" else loss


def _paddle_soft(paddle, x, target, *, label_smoothing, reduction):
    if label_smoothing and (x.ndim != 2 or x.dtype == paddle.float64):
        raise Unsupported("Paddle smooths on the last axis, in float32")
    loss = paddle.nn.functional.cross_entropy(
        x, target, soft_label=True, reduction=reduction, axis=1, label_smoothing=label_smoothing
    )
    return loss.squeeze(1) if reduction == "none" else loss


PADDLE.add(
    {
        "nll_loss": refusing(
            lambda paddle, *inputs, reduction, **_: paddle.nn.functional.nll_loss(*inputs, reduction=reduction),
            lambda *_, ignore_index, **__: ignore_index >= 0,
            "Paddle writes beyond its memory when a class that exists is ignored",
        ),
        "kl_div_loss": refusing(
            lambda paddle, x, target, reduction, **_: paddle.nn.functional.kl_div(x, target, reduction=reduction),
            lambda *_, log_target, **__: log_target,
            "Paddle takes probabilities as targets",
        ),
        "cross_entropy_loss": refusing(
            _paddle_cross_entropy,
            lambda *_, label_smoothing, **__: bool(label_smoothing),
            "Paddle smooths targets that are probabilities",
        ),
        "soft_cross_entropy_loss": _paddle_soft,
        "cross_entropy_of_probabilities": refusing(
            lambda paddle, *inputs, reduction, **_: _paddle_cross_entropy(
                paddle, *inputs, reduction=reduction, use_softmax=False
            ),
            lambda *_, normalise, **__: normalise,
            "Paddle takes probabilities as they are",
        ),
    }
)


def _reduced(values):
    """A row from a function without reduction."""

    def row(tf, *inputs, reduction, **attributes):
        loss = values(tf, *inputs, **attributes)
        if reduction == "batchmean":
            return tf.reduce_sum(loss) / inputs[0].shape[0]
        return {"none": tf.identity, "sum": tf.reduce_sum, "mean": tf.reduce_mean}[reduction](loss)

    return row


def _keras(name):
    """A Keras loss: it takes means over the last axis, so one of length 1 is added."""
    return _reduced(
        lambda tf, x, target, **attributes: getattr(tf.keras.losses, name)(
            target[..., None], x[..., None], **attributes
        )
    )


def _tf_cross_entropy(tf, x, target, *weight, ignore_index=-100, label_smoothing=0.0):
    if weight or label_smoothing or ignore_index >= 0:
        raise Unsupported("TensorFlow's cross entropy of class numbers has no weights, smoothing or ignored class")
    return tf.nn.sparse_softmax_cross_entropy_with_logits(target, channels_last(tf, x))


def _tf_soft(tf, x, target, *, label_smoothing):
    return tf.keras.losses.categorical_crossentropy(
        channels_last(tf, target), channels_last(tf, x), from_logits=True, label_smoothing=label_smoothing
    )


def _tf_of_probabilities(tf, x, target, *, normalise):
    if not normalise:
        raise Unsupported("Keras divides probabilities by their sum")
    hot = tf.one_hot(target, x.shape[1], dtype=x.dtype)
    return tf.keras.losses.categorical_crossentropy(hot, channels_last(tf, x))


def _log_poisson(tf, x, target, log_input):
    if not log_input:
        raise Unsupported("Keras adds another constant to the logarithm's argument")
    return tf.nn.log_poisson_loss(target, x)


TENSORFLOW.add(
    {
        "mse_loss": _keras("mean_squared_error"),
        "l1_loss": _keras("mean_absolute_error"),
        "huber_loss": _keras("huber"),
        "log_cosh_loss": _keras("log_cosh"),
        "hinge_loss": _keras("hinge"),
        "squared_hinge_loss": _keras("squared_hinge"),
        "bce_with_logits_loss": _reduced(
            lambda tf, x, target: tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=x)
        ),
        "weighted_bce_with_logits_loss": _reduced(
            lambda tf, x, target, weight: tf.nn.weighted_cross_entropy_with_logits(target, x, weight)
        ),
        "poisson_nll_loss": _reduced(_log_poisson),
        "cross_entropy_loss": _reduced(_tf_cross_entropy),
        "soft_cross_entropy_loss": _reduced(_tf_soft),
        "cross_entropy_of_probabilities": _reduced(_tf_of_probabilities),
        "rank_loss": _reduced(lambda tf, x, other, target: tf.nn.sigmoid_cross_entropy_with_logits(target, x - other)),
    }
)


def _torch_hinge(power):
    def row(torch, x, target, reduction):
        loss = torch.relu(1 - target * x) ** power
        return {"none": torch.clone, "sum": torch.sum, "mean": torch.mean}[reduction](loss)

    return row


TORCH.add({"hinge_loss": _torch_hinge(1), "squared_hinge_loss": _torch_hinge(2)})


@SCIPY.row("log_cosh_loss")
def _scipy_log_cosh(scipy, x, target, *, reduction):
    loss = scipy.special.logsumexp(np.stack([x - target, target - x]), axis=0) - np.log(np.asarray(2.0, x.dtype))
    return {"none": loss, "sum": loss.sum(), "mean": loss.mean()}[reduction]


PADDLE.except_for(
    "weighted_bce_with_logits_loss",
    "outputs gradients",
    "float64 float32",
    "it leaves max(-x, 0) without its weight",
)
TENSORFLOW.except_for("huber_loss", "outputs gradients", "float64", "Keras holds delta in its default type")
PADDLE.except_for("multi_margin_loss", "outputs", "float64", "it takes the target's own margin off in float32")
TENSORFLOW.except_for("log_cosh_loss", "outputs", "float64", "its logarithm of 2 is a float32")

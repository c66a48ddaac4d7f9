"""Losses over classes and over rows of features."""

from __future__ import annotations

from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import TABLE, Row, channels_last, functional, refusing
from ipu_conformance.ops.rows.loss.reduced import reduced, tf_reduced

_EPSILON = 2.0**-20
"""What the oracle adds to every difference of a triplet, near the 1e-6 of the frameworks."""


# Cross entropies.


def _torch_nll(torch, *inputs, label_smoothing=0.0, **attributes):
    return torch.nn.functional.nll_loss(*inputs, **attributes)


def _torch_of_probabilities(torch, x, target, normalise, reduction):
    p = x / x.sum(dim=1, keepdim=True) if normalise else x
    return torch.nn.functional.nll_loss(torch.log(p), target, reduction=reduction)


def _smooth(target, smoothing):
    return (1.0 - smoothing) * target + smoothing / target.shape[1] if smoothing else target


def _plain(weight, ignore_index=-100, label_smoothing=0.0):
    if weight or label_smoothing or ignore_index >= 0:
        raise Inexpressible("TensorFlow's cross entropy of class numbers has no weights, smoothing or ignored class")


def _tf_picked(tf, x, target):
    """The value of each target's class, with its sign changed."""
    return -tf.reduce_sum(channels_last(tf, x) * tf.one_hot(target, x.shape[1], dtype=x.dtype), -1)


def _tf_nll(tf, x, target, *weight, **attributes):
    _plain(weight, **attributes)
    return _tf_picked(tf, x, target)


def _tf_cross_entropy(tf, x, target, *weight, **attributes):
    _plain(weight, **attributes)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(target, channels_last(tf, x))


def _tf_soft(tf, x, target, *, label_smoothing):
    labels = _smooth(target, label_smoothing)
    return tf.nn.softmax_cross_entropy_with_logits(channels_last(tf, labels), channels_last(tf, x))


def _tf_of_probabilities(tf, x, target, *, normalise):
    if normalise:
        hot = tf.one_hot(target, x.shape[1], dtype=x.dtype)
        return tf.keras.losses.categorical_crossentropy(hot, channels_last(tf, x))
    return _tf_picked(tf, tf.math.log(x), target)


def _paddle_cross_entropy(paddle, x, target, *weight, ignore_index=-100, label_smoothing=0.0, reduction, **options):
    if label_smoothing:
        raise Inexpressible("Paddle smooths targets that are probabilities")
    options = {"ignore_index": ignore_index, "reduction": reduction, **options}
    if x.ndim == 2:
        return paddle.nn.functional.cross_entropy(x, target, *weight, **options)
    loss = paddle.nn.functional.cross_entropy(x, paddle.unsqueeze(target, 1), *weight, axis=1, **options)
    return paddle.squeeze(loss, 1) if reduction == "none" else loss


def _paddle_soft(paddle, x, target, *, label_smoothing, reduction):
    """Written out: the handler of an IPU build refuses soft labels."""
    scores = paddle.nn.functional.log_softmax(x, 1)
    each = -paddle.sum(_smooth(target, label_smoothing) * scores, 1)
    return each if reduction == "none" else getattr(paddle, reduction)(each)


def _paddle_nll(paddle, x, target, *weight, ignore_index=-100, reduction, **_):
    if ignore_index >= 0:
        raise Inexpressible("Paddle writes beyond its memory when a class that exists is ignored")
    if weight:
        raise Inexpressible("an IPU build has no handler for the weights of classes")
    return paddle.nn.functional.nll_loss(x, target, reduction=reduction)


def _paddle_of_probabilities(paddle, x, target, *, normalise, reduction):
    """Written out: the handler of an IPU build takes scores for a softmax, whatever use_softmax says."""
    p = x / paddle.sum(x, 1, keepdim=True) if normalise else x
    hot = paddle.nn.functional.one_hot(target, x.shape[1])
    hot = paddle.transpose(hot, [0, x.ndim - 1, *range(1, x.ndim - 1)]) > 0.5
    each = -paddle.sum(paddle.log(paddle.where(hot, p, paddle.ones_like(p))), 1)
    return each if reduction == "none" else getattr(paddle, reduction)(each)


TABLE.add(
    Row(
        "nll_loss",
        torch=_torch_nll,
        tensorflow=tf_reduced(_tf_nll),
        paddle=_paddle_nll,
    ),
    Row("cross_entropy_loss", functional("cross_entropy"), tf_reduced(_tf_cross_entropy), _paddle_cross_entropy),
    Row("soft_cross_entropy_loss", functional("cross_entropy"), tf_reduced(_tf_soft), _paddle_soft),
    Row(
        "cross_entropy_of_probabilities",
        torch=_torch_of_probabilities,
        tensorflow=tf_reduced(_tf_of_probabilities),
        paddle=_paddle_of_probabilities,
    ),
)


# Losses of rows of features.


def _cosine(built_in):
    """The cosine embedding loss of a framework that adds ``built_in`` to squared lengths."""
    return refusing(
        lambda module, *inputs, epsilon, **attributes: module.nn.functional.cosine_embedding_loss(
            *inputs, **attributes
        ),
        lambda *_, epsilon, **__: epsilon != built_in,
        f"the framework adds {built_in}",
    )


def _tf_cosine(tf, x, other, target, margin, epsilon):
    lengths = (tf.sqrt(tf.reduce_sum(tf.square(rows), 1) + epsilon) for rows in (x, other))
    cosine = tf.reduce_sum(x * other, 1)
    for length in lengths:
        cosine = cosine / length
    return tf.where(target > 0, 1.0 - cosine, tf.nn.relu(cosine - margin))


def _tf_triplet(tf, anchor, positive, negative, margin):
    near, far = (tf.norm(anchor - other + _EPSILON, axis=1) for other in (positive, negative))
    return tf.nn.relu(near - far + margin)


def _tf_multi_margin(tf, x, target, margin, p):
    hot = tf.one_hot(target, x.shape[1], dtype=x.dtype)
    short = tf.nn.relu(margin - tf.reduce_sum(x * hot, 1, keepdims=True) + x) * (1.0 - hot)
    return tf.reduce_mean(short if p == 1 else tf.square(short), 1)


def _paddle_multi_margin(paddle, x, target, margin, p):
    """Paddle's own function takes samples by index, which programs for an IPU have no op for."""
    hot = paddle.cast(paddle.nn.functional.one_hot(target, x.shape[1]), x.dtype)
    short = paddle.nn.functional.relu(margin - paddle.sum(x * hot, 1, keepdim=True) + x) * (1.0 - hot)
    return paddle.mean(short if p == 1 else paddle.square(short), 1)


def _tf_multilabel(tf, x, target):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=x), 1)


TABLE.add(
    Row("cosine_embedding_loss", _cosine(1e-12), tf_reduced(_tf_cosine), _cosine(1e-11), power=4),
    Row(
        "triplet_margin_loss",
        torch=functional("triplet_margin_loss", eps=_EPSILON),
        tensorflow=tf_reduced(_tf_triplet),
        paddle=functional("triplet_margin_loss", epsilon=_EPSILON),
        power=2,
    ),
    Row(
        "multi_margin_loss",
        torch=functional("multi_margin_loss"),
        tensorflow=tf_reduced(_tf_multi_margin),
        paddle=reduced(_paddle_multi_margin),
        power=2,
    ),
    Row(
        "multilabel_soft_margin_loss",
        torch=functional("multilabel_soft_margin_loss"),
        tensorflow=tf_reduced(_tf_multilabel),
        paddle=functional("multi_label_soft_margin_loss"),
    ),
)

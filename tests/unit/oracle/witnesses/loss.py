"""Witnesses of the losses; TensorFlow's are reduced here with its own sums and means."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Row, Unsupported


def _called(function: str, **renamed: str) -> Row:
    """A row that calls ``nn.functional.<function>``, with some attributes under the library's own names."""

    def row(module: Any, *inputs: Any, **attributes: Any) -> Any:
        own = {renamed.get(key, key): value for key, value in attributes.items()}
        return getattr(module.nn.functional, function)(*inputs, **own)

    return row


def _cosine(built_in: float) -> Row:
    """The cosine embedding loss of a library that adds ``built_in`` to squared lengths."""

    def row(module: Any, *inputs: Any, epsilon: float, **attributes: Any) -> Any:
        if epsilon != built_in:
            raise Unsupported(f"the library adds {built_in}")
        return module.nn.functional.cosine_embedding_loss(*inputs, **attributes)

    return row


_COMMON: Dict[str, Row] = {
    **{
        name: _called(name)
        for name in (
            "mse_loss",
            "l1_loss",
            "soft_margin_loss",
            "hinge_embedding_loss",
            "margin_ranking_loss",
            "gaussian_nll_loss",
        )
    },
    "bce_loss": _called("binary_cross_entropy"),
    "bce_with_logits_loss": _called("binary_cross_entropy_with_logits"),
    "weighted_bce_with_logits_loss": lambda module, x, target, weight, reduction: (
        module.nn.functional.binary_cross_entropy_with_logits(x, target, pos_weight=weight, reduction=reduction)
    ),
}
"""Losses that PyTorch and Paddle call by the same names."""

TORCH.add(
    {
        **_COMMON,
        "smooth_l1_loss": _called("smooth_l1_loss"),
        "huber_loss": _called("huber_loss"),
        "kl_div_loss": _called("kl_div"),
        "poisson_nll_loss": lambda torch, *inputs, **attributes: torch.nn.functional.poisson_nll_loss(
            *inputs, eps=2.0**-27, **attributes
        ),
        "nll_loss": lambda torch, *inputs, label_smoothing, **attributes: torch.nn.functional.nll_loss(
            *inputs, **attributes
        ),
        "cross_entropy_loss": _called("cross_entropy"),
        "soft_cross_entropy_loss": _called("cross_entropy"),
        "cosine_embedding_loss": _cosine(1e-12),
        "triplet_margin_loss": lambda torch, *inputs, **attributes: torch.nn.functional.triplet_margin_loss(
            *inputs, eps=2.0**-20, **attributes
        ),
        "multi_margin_loss": _called("multi_margin_loss"),
        "multilabel_soft_margin_loss": _called("multilabel_soft_margin_loss"),
    }
)


@TORCH.row("cross_entropy_of_probabilities")
def _torch_of_probabilities(torch: Any, x: Any, target: Any, *, normalise: bool, reduction: str) -> Any:
    p = x / x.sum(dim=1, keepdim=True) if normalise else x
    return torch.nn.functional.nll_loss(torch.log(p), target, reduction=reduction)


PADDLE.add(
    {
        **_COMMON,
        "huber_loss": _called("smooth_l1_loss"),
        "poisson_nll_loss": lambda paddle, *inputs, **attributes: paddle.nn.functional.poisson_nll_loss(
            *inputs, epsilon=2.0**-27, **attributes
        ),
        "cosine_embedding_loss": _cosine(1e-11),
        "triplet_margin_loss": lambda paddle, *inputs, **attributes: paddle.nn.functional.triplet_margin_loss(
            *inputs, epsilon=2.0**-20, **attributes
        ),
        "multilabel_soft_margin_loss": _called("multi_label_soft_margin_loss"),
    }
)


@PADDLE.row("nll_loss")
def _paddle_nll(paddle: Any, x: Any, target: Any, *weight: Any, ignore_index: int, reduction: str, **_: Any) -> Any:
    if ignore_index >= 0:
        raise Unsupported("Paddle writes beyond its memory when a class that exists is ignored")
    return paddle.nn.functional.nll_loss(x, target, *weight, reduction=reduction)


@PADDLE.row("multi_margin_loss")
def _paddle_multi_margin(paddle: Any, x: Any, target: Any, **attributes: Any) -> Any:
    return paddle.nn.functional.multi_margin_loss(x, target, **attributes)


@PADDLE.row("kl_div_loss")
def _paddle_kl_div(paddle: Any, x: Any, target: Any, *, log_target: bool, reduction: str) -> Any:
    if log_target:
        raise Unsupported("Paddle takes probabilities as targets")
    return paddle.nn.functional.kl_div(x, target, reduction=reduction)


@PADDLE.row("cross_entropy_loss")
def _paddle_cross_entropy(
    paddle: Any, x: Any, target: Any, *weight: Any, label_smoothing: float, ignore_index: int, reduction: str
) -> Any:
    if label_smoothing:
        raise Unsupported("Paddle smooths targets that are probabilities")
    loss = paddle.nn.functional.cross_entropy(
        x, target.unsqueeze(1), *weight, ignore_index=ignore_index, reduction=reduction, axis=1
    )
    return loss.squeeze(1) if reduction == "none" else loss


@PADDLE.row("soft_cross_entropy_loss")
def _paddle_soft(paddle: Any, x: Any, target: Any, *, label_smoothing: float, reduction: str) -> Any:
    if label_smoothing and (x.ndim != 2 or x.dtype == paddle.float64):
        raise Unsupported("Paddle smooths on the last axis, in float32")
    loss = paddle.nn.functional.cross_entropy(
        x, target, soft_label=True, reduction=reduction, axis=1, label_smoothing=label_smoothing
    )
    return loss.squeeze(1) if reduction == "none" else loss


@PADDLE.row("cross_entropy_of_probabilities")
def _paddle_of_probabilities(paddle: Any, x: Any, target: Any, *, normalise: bool, reduction: str) -> Any:
    if normalise:
        raise Unsupported("Paddle takes probabilities as they are")
    loss = paddle.nn.functional.cross_entropy(x, target.unsqueeze(1), reduction=reduction, axis=1, use_softmax=False)
    return loss.squeeze(1) if reduction == "none" else loss


def _reduced(values: Callable[..., Any]) -> Row:
    """A row from a function without reduction."""

    def row(tf: Any, *inputs: Any, reduction: str, **attributes: Any) -> Any:
        loss = values(tf, *inputs, **attributes)
        if reduction == "batchmean":
            return tf.reduce_sum(loss) / inputs[0].shape[0]
        return {"none": tf.identity, "sum": tf.reduce_sum, "mean": tf.reduce_mean}[reduction](loss)

    return row


def _keras(name: str, **renamed: str) -> Callable[..., Any]:
    """A Keras loss as a function without reduction: it takes means over the last axis, so one of length 1 is added."""

    def values(tf: Any, x: Any, target: Any, **attributes: Any) -> Any:
        own = {renamed.get(key, key): value for key, value in attributes.items()}
        return getattr(tf.keras.losses, name)(target[..., None], x[..., None], **own)

    return values


def _last(tf: Any, x: Any) -> Any:
    """The classes moved to the last axis."""
    return tf.transpose(x, (0, *range(2, x.ndim), 1))


def _tf_cross_entropy(
    tf: Any, x: Any, target: Any, *weight: Any, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Any:
    if weight or label_smoothing or ignore_index >= 0:
        raise Unsupported("TensorFlow's cross entropy of class numbers has no weights, smoothing or ignored class")
    return tf.nn.sparse_softmax_cross_entropy_with_logits(target, _last(tf, x))


def _tf_soft(tf: Any, x: Any, target: Any, *, label_smoothing: float) -> Any:
    return tf.keras.losses.categorical_crossentropy(
        _last(tf, target), _last(tf, x), from_logits=True, label_smoothing=label_smoothing
    )


def _tf_of_probabilities(tf: Any, x: Any, target: Any, *, normalise: bool) -> Any:
    if not normalise:
        raise Unsupported("Keras divides probabilities by their sum")
    hot = tf.one_hot(target, x.shape[1], dtype=x.dtype)
    return tf.keras.losses.categorical_crossentropy(hot, _last(tf, x))


TENSORFLOW.add(
    {
        "mse_loss": _reduced(_keras("mean_squared_error")),
        "l1_loss": _reduced(_keras("mean_absolute_error")),
        "huber_loss": _reduced(_keras("huber")),
        "log_cosh_loss": _reduced(_keras("log_cosh")),
        "hinge_loss": _reduced(_keras("hinge")),
        "squared_hinge_loss": _reduced(_keras("squared_hinge")),
        "bce_with_logits_loss": _reduced(
            lambda tf, x, target: tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=x)
        ),
        "weighted_bce_with_logits_loss": _reduced(
            lambda tf, x, target, weight: tf.nn.weighted_cross_entropy_with_logits(target, x, weight)
        ),
        "poisson_nll_loss": _reduced(lambda tf, x, target, log_input: _log_poisson(tf, x, target, log_input)),
        "cross_entropy_loss": _reduced(_tf_cross_entropy),
        "soft_cross_entropy_loss": _reduced(_tf_soft),
        "cross_entropy_of_probabilities": _reduced(_tf_of_probabilities),
    }
)


def _log_poisson(tf: Any, x: Any, target: Any, log_input: bool) -> Any:
    if not log_input:
        raise Unsupported("Keras adds another constant to the logarithm's argument")
    return tf.nn.log_poisson_loss(target, x)


for _name in ("hinge_loss", "squared_hinge_loss"):
    _power = 2 if _name.startswith("squared") else 1
    TORCH.add(
        {
            _name: lambda torch, x, target, reduction, power=_power: _torch_reduced(
                torch, torch.relu(1 - target * x) ** power, reduction
            )
        }
    )


def _torch_reduced(torch: Any, loss: Any, reduction: str) -> Any:
    return {"none": torch.clone, "sum": torch.sum, "mean": torch.mean}[reduction](loss)


@SCIPY.row("log_cosh_loss")
def _scipy_log_cosh(scipy: Any, x: Any, target: Any, *, reduction: str) -> Any:
    loss = scipy.special.logsumexp(np.stack([x - target, target - x]), axis=0) - np.log(np.asarray(2.0, x.dtype))
    return {"none": loss, "sum": loss.sum(), "mean": loss.mean()}[reduction]


for _dtype in ("float64", "float32"):
    PADDLE.except_for(
        "weighted_bce_with_logits_loss", ("outputs", "gradients"), _dtype, "it leaves max(-x, 0) without its weight"
    )
TENSORFLOW.except_for("huber_loss", ("outputs", "gradients"), "float64", "Keras holds delta in its default type")
PADDLE.except_for("multi_margin_loss", ("outputs",), "float64", "it takes the target's own margin off in float32")
TENSORFLOW.except_for("log_cosh_loss", ("outputs",), "float64", "its logarithm of 2 is a float32")

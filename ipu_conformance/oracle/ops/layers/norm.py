"""Normalisation: batch, layer, group and instance norm are one function over different groups of elements.

Running statistics move towards those of a batch by ``momentum``, the weight of the new batch. The frameworks write the
same rule differently: PyTorch's momentum is this one (0.1 by default) and it stores the unbiased variance; Keras and
Paddle give the weight of the old value (0.99 and 0.9 by default), so theirs is one minus this one, and they store the
biased variance, but for Keras's fused image kernel, which stores the unbiased one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term, unbroadcast
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS


@dataclass(frozen=True)
class Groups:
    """What is normalised together: x seen as ``view``, over ``axes``; scale and bias are seen as ``parameter``."""

    view: Tuple[int, ...]
    axes: Tuple[int, ...]
    parameter: Tuple[int, ...]


def _by_channel(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    return (1, shape[1]) + (1,) * (len(shape) - 2)


def _batch(shape: Tuple[int, ...], **_: Any) -> Groups:
    return Groups(shape, (0, *range(2, len(shape))), _by_channel(shape))


def _layer(shape: Tuple[int, ...], *, axes: int = 1) -> Groups:
    trailing = tuple(range(len(shape) - axes, len(shape)))
    return Groups(shape, trailing, (1,) * (len(shape) - axes) + shape[-axes:])


def _group(shape: Tuple[int, ...], *, groups: int) -> Groups:
    return Groups((shape[0], groups, -1), (2,), _by_channel(shape))


def _instance(shape: Tuple[int, ...]) -> Groups:
    return _group(shape, groups=shape[1])


@dataclass(frozen=True)
class _Normalised:
    """x with mean 0 and variance 1 in every group, and what its gradient and its error need; all seen as ``view``."""

    x: Array
    inverse: Array
    """1 / sqrt(variance + epsilon)."""
    spread: Array
    """The root of mean(x^2) / (variance + epsilon): how much larger the values are than their deviations."""
    count: int


def _normalise(x: Array, groups: Groups, epsilon: float) -> _Normalised:
    seen = x.reshape(groups.view)
    mean = seen.mean(axis=groups.axes, keepdims=True)
    inverse = 1.0 / np.sqrt(((seen - mean) ** 2).mean(axis=groups.axes, keepdims=True) + epsilon)
    spread = np.sqrt((seen**2).mean(axis=groups.axes, keepdims=True)) * inverse
    return _Normalised((seen - mean) * inverse, inverse, spread, seen.size // max(mean.size, 1))


def _forward(layout: Callable[..., Groups]) -> Callable[..., Array]:
    def forward(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, **attributes: Any) -> Array:
        groups = layout(x.shape, **attributes)
        normal = _normalise(x, groups, epsilon).x.reshape(x.shape)
        return normal * scale.reshape(groups.parameter) + bias.reshape(groups.parameter)

    return forward


def _vjp(layout: Callable[..., Groups]) -> Callable[..., Sequence[Array]]:
    def vjp(
        g: Array, x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, **attributes: Any
    ) -> Sequence[Array]:
        groups = layout(x.shape, **attributes)
        n = _normalise(x, groups, epsilon)
        inner = (g * scale.reshape(groups.parameter)).reshape(groups.view)
        mean = inner.mean(axis=groups.axes, keepdims=True)
        slope = (inner * n.x).mean(axis=groups.axes, keepdims=True)
        dx = n.inverse * (inner - mean - n.x * slope)
        dscale = unbroadcast(g * n.x.reshape(x.shape), groups.parameter)
        return dx.reshape(x.shape), dscale.reshape(scale.shape), unbroadcast(g, groups.parameter).reshape(bias.shape)

    return vjp


def _error(layout: Callable[..., Groups]) -> Callable[..., List[List[Term]]]:
    """Mean and variance are sums over the group (the variance perhaps as mean(x^2) - mean^2); the rest is rounded."""

    def error(
        y: Array, x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, **attributes: Any
    ) -> List[List[Term]]:
        groups = layout(x.shape, **attributes)
        n = _normalise(x, groups, epsilon)
        size = np.abs(scale.reshape(groups.parameter))
        normal = size * np.abs(n.x).reshape(x.shape)
        sums = size * (n.spread + np.abs(n.x) * n.spread**2 / 2).reshape(x.shape)
        return [
            [
                Term(sums, length=n.count + 1, where="accumulate"),
                Term(normal, ulps=ULPS["rsqrt"] + 1.5),
                Term(size * np.broadcast_to(n.spread, n.x.shape).reshape(x.shape) + np.abs(y)),
            ]
        ]

    return error


def _vjp_error(layout: Callable[..., Groups]) -> Callable[..., List[List[Term]]]:
    """As for the output; an error of the normalised x and of 1 / deviation runs through every term of the gradient."""

    def error(
        gradients: Any, g: Array, x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, **attributes: Any
    ) -> List[List[Term]]:
        groups = layout(x.shape, **attributes)
        n = _normalise(x, groups, epsilon)
        inner = np.abs(g * scale.reshape(groups.parameter)).reshape(groups.view)
        mean = inner.mean(axis=groups.axes, keepdims=True)
        slope = (inner * np.abs(n.x)).mean(axis=groups.axes, keepdims=True)
        dx = n.inverse * (inner + mean * (1 + np.abs(n.x) * n.spread) + (np.abs(n.x) + n.spread) * slope)
        from_x = (n.spread + np.abs(n.x) * n.spread**2 / 2).reshape(x.shape)
        dscale = unbroadcast(np.abs(g * n.x.reshape(x.shape)), groups.parameter).reshape(scale.shape)
        dscale_from_x = unbroadcast(np.abs(g) * from_x, groups.parameter).reshape(scale.shape)
        places = g.size // max(scale.size, 1)
        return [
            [
                Term((dx * (1 + n.spread**2)).reshape(x.shape), length=n.count + 2, where="accumulate"),
                Term(dx.reshape(x.shape), ulps=ULPS["rsqrt"] + 2),
            ],
            [
                Term(dscale, length=places, where="accumulate"),
                Term(dscale_from_x, length=n.count, where="accumulate"),
                Term(dscale, ulps=ULPS["rsqrt"] + 2),
            ],
            [Term(unbroadcast(np.abs(g), groups.parameter).reshape(bias.shape), length=places, where="accumulate")],
        ]

    return error


def batch_norm_inference(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, epsilon: float = 1e-5
) -> Array:
    """x normalised with given statistics per channel."""
    seen = _by_channel(x.shape)
    factor = (scale / np.sqrt(variance + epsilon)).reshape(seen)
    return (x - mean.reshape(seen)) * factor + bias.reshape(seen)


def batch_norm_inference_vjp(
    g: Array, x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, epsilon: float = 1e-5
) -> Sequence[Any]:
    """The gradients of x, scale and bias; statistics are not trained."""
    seen = _by_channel(x.shape)
    inverse = (1.0 / np.sqrt(variance + epsilon)).reshape(seen)
    dscale = unbroadcast(g * (x - mean.reshape(seen)) * inverse, seen).reshape(scale.shape)
    return g * scale.reshape(seen) * inverse, dscale, unbroadcast(g, seen).reshape(bias.shape), None, None


def _inference_error(
    y: Array, x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, epsilon: float = 1e-5
) -> List[List[Term]]:
    """The subtraction may be folded into one product and one sum, so that both parts round on their own."""
    seen = _by_channel(x.shape)
    parts = (np.abs(x) + np.abs(mean.reshape(seen))) * np.abs(scale / np.sqrt(variance + epsilon)).reshape(seen)
    return [[Term(parts, ulps=ULPS["rsqrt"] + 1.5), Term(np.abs(y) + np.abs(bias.reshape(seen)))]]


def _inference_vjp_error(
    gradients: Any,
    g: Array,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
) -> List[List[Term]]:
    seen = _by_channel(x.shape)
    inverse = (1.0 / np.sqrt(variance + epsilon)).reshape(seen)
    parts = unbroadcast(np.abs(g) * (np.abs(x) + np.abs(mean.reshape(seen))) * inverse, seen).reshape(scale.shape)
    places = g.size // max(scale.size, 1)
    return [
        [Term(np.abs(gradients[0]), ulps=ULPS["rsqrt"] + 1.5)],
        [Term(parts, length=places, where="accumulate"), Term(parts, ulps=ULPS["rsqrt"] + 1)],
        [Term(unbroadcast(np.abs(g), seen).reshape(bias.shape), length=places, where="accumulate")],
        [],
        [],
    ]


def batch_norm_statistics(
    x: Array, mean: Array, variance: Array, *, momentum: float = 0.1, unbiased: bool = True
) -> Tuple[Array, Array]:
    """The running mean and variance after a training batch; ``momentum`` is the weight of the batch."""
    axes = (0, *range(2, x.ndim))
    count = x.size // x.shape[1]
    batch_variance = x.var(axis=axes) * (count / (count - 1) if unbiased and count > 1 else 1.0)
    return (
        (1 - momentum) * mean + momentum * x.mean(axis=axes),
        (1 - momentum) * variance + momentum * batch_variance,
    )


def _statistics_error(
    outputs: Any, x: Array, mean: Array, variance: Array, *, momentum: float = 0.1, unbiased: bool = True
) -> List[List[Term]]:
    """Sums of x and of x^2 over the batch, then two products and a sum."""
    axes = (0, *range(2, x.ndim))
    count = x.size // x.shape[1]
    correction = count / (count - 1) if unbiased and count > 1 else 1.0
    return [
        [
            Term(momentum * np.abs(x).mean(axis=axes), length=count + 1, where="accumulate"),
            Term((1 - momentum) * np.abs(mean) + momentum * np.abs(x).mean(axis=axes), ulps=1.5),
        ],
        [
            Term(2 * momentum * (x**2).mean(axis=axes) * correction, length=count + 1, where="accumulate"),
            Term((1 - momentum) * variance + momentum * (x**2).mean(axis=axes) * correction, ulps=2.0),
        ],
    ]


EPSILONS = (2.0**-17, 2.0**-10)
"""Near the frameworks' 1e-5 and 1e-3, and exact in float32, in which Paddle holds its attributes."""


def _draw_x(chooser: Chooser) -> Array:
    """An image batch whose groups hold at least 4 distinct values, so that deviations are as large as values."""
    rank = chooser.choice((4, 3, 2))
    batch, channels = chooser.integer(4, 5), chooser.integer(1, 6)
    return chooser.distinct((batch, channels, *(chooser.integer(2, 4) for _ in range(rank - 2))))


def _draw_parameters(chooser: Chooser, shape: Sequence[int]) -> Tuple[Array, Array]:
    return chooser.array(shape, 0.5, 2.0), chooser.array(shape)


def _draw_batch(chooser: Chooser) -> Sample:
    x = _draw_x(chooser)
    return Sample((x, *_draw_parameters(chooser, x.shape[1:2])), {"epsilon": chooser.choice(EPSILONS)})


def _draw_layer(chooser: Chooser) -> Sample:
    shape = (*chooser.shape(1, 3, 3), chooser.integer(4, 8))
    axes = chooser.integer(1, len(shape) - 1)
    return Sample(
        (chooser.distinct(shape), *_draw_parameters(chooser, shape[-axes:])),
        {"axes": axes, "epsilon": chooser.choice(EPSILONS)},
    )


def _draw_group(chooser: Chooser) -> Sample:
    groups, each = chooser.integer(1, 3), chooser.integer(1, 3)
    space = tuple(chooser.integer(2, 3) for _ in range(chooser.choice((2, 3))))
    x = chooser.distinct((chooser.integer(1, 3), groups * each, *space))
    parameters = _draw_parameters(chooser, (groups * each,))
    return Sample((x, *parameters), {"groups": groups, "epsilon": chooser.choice(EPSILONS)})


def _draw_instance(chooser: Chooser) -> Sample:
    sample = _draw_group(chooser)
    return Sample(sample.inputs, {"epsilon": sample.attributes["epsilon"]})


def _draw_inference(chooser: Chooser) -> Sample:
    sample = _draw_batch(chooser)
    channels = sample.inputs[0].shape[1:2]
    return Sample((*sample.inputs, chooser.array(channels), chooser.array(channels, 0.25, 4.0)), sample.attributes)


def _draw_statistics(chooser: Chooser) -> Sample:
    x = _draw_x(chooser)
    inputs = (x, chooser.array(x.shape[1:2]), chooser.array(x.shape[1:2], 0.25, 4.0))
    return Sample(inputs, {"momentum": chooser.choice((0.125, 2.0**-7)), "unbiased": chooser.boolean()})


for _name, _layout, _draw in (
    ("batch_norm", _batch, _draw_batch),
    ("layer_norm", _layer, _draw_layer),
    ("group_norm", _group, _draw_group),
    ("instance_norm", _instance, _draw_instance),
):
    OPS.add(Op(_name, "norm", _forward(_layout), _error(_layout), _draw, _vjp(_layout), _vjp_error(_layout)))
OPS.add(
    Op(
        "batch_norm_inference",
        "norm",
        batch_norm_inference,
        _inference_error,
        _draw_inference,
        batch_norm_inference_vjp,
        _inference_vjp_error,
    )
)
OPS.add(Op("batch_norm_statistics", "norm", batch_norm_statistics, _statistics_error, _draw_statistics))

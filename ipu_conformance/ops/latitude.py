"""Where the vendors' documents allow more than one result: the others that are allowed, each with its source.

A key is written as in ``ops.open``. A rule gives further results of the oracle, from which a range follows as at every
edge: a device's value lies between them, and is NaN only where one of them is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.ops.dtypes import FORMATS
from ipu_conformance.oracle.op import Array, Op, Outputs, as_tuple
from ipu_conformance.oracle.sample import Sample

BEYOND = 1e300
"""A number in place of an infinity: beyond every type of a device, and finite in the oracle's own arithmetic."""

STRAIGHT = float(np.float32(np.pi))
"""The largest angle of a device, rounded up in float32."""

Others = Callable[[Op, Sample, str], Sequence[Outputs]]
"""``others(op, sample, dtype)``: further outputs of a call."""
Gradients = Sequence[Optional[Array]]
OtherGradients = Callable[[Op, Outputs, Sample, str], Sequence[Gradients]]
"""``gradients(op, cotangents, sample, dtype)``: further gradients of a call."""


@dataclass(frozen=True)
class Latitude:
    """Further results that are allowed, and the source that allows them."""

    reason: str
    outputs: Optional[Others] = None
    gradients: Optional[OtherGradients] = None
    alone: bool = False
    """Whether they are the only ones: a document says what the oracle leaves open."""


# Rules


def _forward(op: Op, inputs: Sequence[Array], sample: Sample) -> Tuple[Array, ...]:
    return tuple(map(np.asarray, as_tuple(op.forward(*inputs, **sample.attributes))))


def _replacing(*changes: Callable[[Array], Array]) -> Others:
    """The op of other numbers: each change makes floating-point inputs of one further call."""

    def others(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
        every = [tuple(change(x) if x.dtype.kind == "f" else x for x in sample.inputs) for change in changes]
        return [_forward(op, inputs, sample) for inputs in every]

    return others


def _for_nan(number: float) -> Callable[[Array], Array]:
    return lambda x: np.where(np.isnan(x), number, x)


def _limits(x: Array) -> Array:
    return np.where(np.isinf(x), np.copysign(BEYOND, x), x)


def _instead(function: Callable[..., Array]) -> Others:
    """Another function of the inputs and attributes."""
    return lambda op, sample, dtype: [(np.asarray(function(*sample.inputs, **sample.attributes)),)]


def _nan_for_infinities(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
    """NaN wherever the result is infinite."""
    return [tuple(np.where(np.isinf(value), np.nan, value) for value in _forward(op, sample.inputs, sample))]


def _handing_on(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
    """NaN wherever the first input is."""
    (right,) = _forward(op, sample.inputs, sample)
    return [(np.where(np.isnan(sample.inputs[0]), np.nan, right),)]


def _both(*rules: Others) -> Others:
    return lambda op, sample, dtype: [each for rule in rules for each in rule(op, sample, dtype)]


def _small(x: Array, dtype: str) -> Array:
    """Where a number is zero or a device may take it for zero."""
    return np.abs(x) < float(FORMATS[dtype].tiny)


def _gradients_where(place: int, *values: float) -> OtherGradients:
    """Every gradient is also one of ``values`` wherever the input at ``place``, of the same shape, is small."""

    def gradients(op: Op, cotangents: Outputs, sample: Sample, dtype: str) -> Sequence[Gradients]:
        assert op.vjp is not None
        right = op.vjp(cotangents, *sample.inputs, **sample.attributes)
        small = _small(sample.inputs[place], dtype)
        return [[_put(gradient, small, value) for gradient in right] for value in values]

    return gradients


def _put(gradient: Optional[Array], where: Array, value: float) -> Optional[Array]:
    if gradient is None or np.shape(gradient) != where.shape:
        return gradient
    return np.where(where, value, gradient)


def _slopes_beside(op: Op, cotangents: Outputs, sample: Sample, dtype: str) -> Sequence[Gradients]:
    """The gradients far on either side of a first input that is small: between them lies every sum of slopes."""
    assert op.vjp is not None
    x, *others = sample.inputs
    sides = [np.where(_small(x, dtype), far, x) for far in (1e3, -1e3)]
    return [op.vjp(cotangents, side, *others, **sample.attributes) for side in sides]


def _any_direction(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
    """Every angle where both operands are small."""
    small = _small(sample.inputs[0], dtype) & _small(sample.inputs[1], dtype)
    (right,) = _forward(op, sample.inputs, sample)
    return [(np.where(small, angle, right),) for angle in (-STRAIGHT, STRAIGHT)]


def _each_extreme(op: Op, cotangents: Outputs, sample: Sample, dtype: str) -> Sequence[Gradients]:
    """The gradient of a maximum or a minimum, all of it to each of equal elements."""
    (x,) = sample.inputs
    extreme = np.asarray(op.forward(x, **{**sample.attributes, "keepdims": True}))
    return [[np.where(x == extreme, np.reshape(np.asarray(cotangents), extreme.shape), 0.0)]]


def _poisson_in_half(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
    """In float16 what is added to an input of zero vanishes, and its logarithm makes the loss infinite or NaN."""
    if dtype != "float16" or sample.attributes.get("log_input", True) or not np.any(_small(sample.inputs[0], dtype)):
        return []
    return [tuple(np.full_like(each, value) for each in _forward(op, sample.inputs, sample)) for value in _UNBOUNDED]


def _poisson_gradient_in_half(op: Op, cotangents: Outputs, sample: Sample, dtype: str) -> Sequence[Gradients]:
    if dtype != "float16" or sample.attributes.get("log_input", True):
        return []
    return _gradients_where(0, *_UNBOUNDED)(op, cotangents, sample, dtype)


_UNBOUNDED = (np.inf, -np.inf, np.nan)


def _overflowing(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
    """Infinity, where the exponential of a margin is beyond the largest number."""
    (right,) = _forward(op, sample.inputs, sample)
    beyond = _overflows(sample, dtype)
    return [(np.where(beyond if right.shape == beyond.shape else beyond.any(), np.inf, right),)]


def _overflowing_gradients(op: Op, cotangents: Outputs, sample: Sample, dtype: str) -> Sequence[Gradients]:
    assert op.vjp is not None
    right = op.vjp(cotangents, *sample.inputs, **sample.attributes)
    beyond = _overflows(sample, dtype)
    return [[_put(gradient, beyond, value) for gradient in right] for value in (np.nan, 0.0)]


def _overflows(sample: Sample, dtype: str) -> Array:
    x, y = sample.inputs[:2]
    return -x * y > np.log(float(FORMATS[dtype].max))


def _hinge(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
    """A margin of NaN counts as kept: the first input is infinite on the label's side."""
    x, *others = sample.inputs
    return [_forward(op, (np.where(np.isnan(x), others[-1] * np.inf, x), *others), sample)]


def _hinge_embedding(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
    """A distance of NaN is far enough where it is to be far; where it is to be near it stays NaN."""
    x, label = sample.inputs
    return [_forward(op, (np.where(np.isnan(x) & (label <= 0), np.inf, x), label), sample)]


def _any_loss(op: Op, sample: Sample, dtype: str) -> Sequence[Outputs]:
    """Anything that is not negative, or NaN."""
    right = _forward(op, sample.inputs, sample)
    return [tuple(np.full_like(each, value) for each in right) for value in (0.0, np.inf, np.nan)]


def _half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _ignoring_first(function: Callable[[Array, Array], Array]) -> Others:
    """The second operand, where the first alone is NaN."""
    return lambda op, sample, dtype: [
        (np.where(np.isnan(sample.inputs[0]), sample.inputs[1], function(*sample.inputs)),)
    ]


# What the sources say

FMAX = "popops takes a maximum by fmax and a rectifier by x > 0 (codelets/UnaryOp.cpp, BinaryOp.cpp), which ignore NaN"
PAGE_AND_KERNEL = "the page's condition does not hold of NaN, and the framework's own kernel hands NaN on"
INVERSE = "composed of a quotient, whose gradient is infinite where the divisor vanishes: 0 * inf"
MAXIMUM_PAGE = "Paddle's page of the op shows NaN as the second operand alone; popops takes maxima by fmax"
MASKED = "PopART's nll multiplies by a mask of zeros and ones (popx/op/nllx.cpp), the frameworks' pages pick"
LIMIT = "the formula on the framework's page has inf - inf or inf * 0 there; stable forms reach the limit"
WEIGHTS = "no page says whether a neighbour of weight zero counts: 0 * inf and 0 * NaN are NaN"
POW = "PopART forms g * out * log(base) and g * y * base**(y - 1) (patterns/powarg1gradoppattern.cpp)"
EXTREMES = "on Paddle's pages of max and min, and in PopART's ReduceMaxGrad, each of equal elements gets it all"

_SELECTED = Latitude(FMAX, _replacing(_for_nan(-np.inf)))
_LEAST = Latitude(FMAX, _replacing(_for_nan(np.inf)))
_EXTREMES = Latitude(EXTREMES, gradients=_each_extreme, alone=True)
_LIMIT = Latitude(LIMIT, _replacing(_limits))
_LIMIT_OR_NAN = Latitude(LIMIT, _both(_nan_for_infinities, _replacing(_limits)))
_QUOTIENT = Latitude(INVERSE, gradients=_gradients_where(1, np.nan))
_BASE = Latitude(POW, gradients=_gradients_where(0, *_UNBOUNDED))
_POSITIVE = Latitude(
    "TensorFlow's math_grad takes 0 for the logarithm of a base that is not above zero",
    gradients=_gradients_where(0, 0.0),
)
_POISSON = Latitude(
    "torch's and Paddle's pages add 1e-8 to keep the logarithm of 0 away, which float16 does not hold",
    _poisson_in_half,
    _poisson_gradient_in_half,
)


def _of(latitude: Latitude, *keys: str) -> Dict[str, Latitude]:
    return dict.fromkeys(keys, latitude)


LATITUDES: Mapping[str, Mapping[str, Latitude]] = {
    "relu": _of(_SELECTED, "paddle: nan"),
    "threshold": _of(Latitude(PAGE_AND_KERNEL, _handing_on), "poptorch: nan"),
    "hardshrink": _of(Latitude(PAGE_AND_KERNEL, _handing_on), "poptorch: nan", "paddle: nan"),
    "prelu": _of(
        Latitude(
            "Keras subtracts two rectifiers, neither of which has a slope at zero", gradients=_gradients_where(0, 0.0)
        ),
        *(f"tensorflow: gradient {edge}" for edge in ("zeros", "ties", "denormals")),
    ),
    "sign": _of(
        Latitude(
            "popops has (0 < x) - (x < 0) (codelets/UnaryOp.cpp): 0; torch's page is silent", _instead(np.nan_to_num)
        ),
        "poptorch: nan",
    ),
    "maximum": _of(Latitude(MAXIMUM_PAGE, _ignoring_first(np.maximum)), "paddle: nan"),
    "minimum": _of(Latitude(MAXIMUM_PAGE, _ignoring_first(np.minimum)), "paddle: nan"),
    "pow": {
        **_of(_BASE, *(f"{name}: gradient {e}" for name in ("poptorch", "paddle") for e in ("zeros", "denormals"))),
        **_of(_POSITIVE, "tensorflow: gradient denormals"),
    },
    "round": _of(
        Latitude("ONNX rounds a half to even; Paddle 2.6 shows round(-0.5) = -1, later pages -0", _instead(_half_away)),
        "paddle: ties",
    ),
    "floor_div": {
        **_of(
            Latitude(
                "composed of a quotient and its floor, which keeps infinities", _instead(lambda x, y: np.floor(x / y))
            ),
            "tensorflow: infinities",
            "paddle: infinities",
        ),
        **_of(_QUOTIENT, "paddle: gradient zeros", "paddle: gradient denormals"),
    },
    "trunc_div": _of(
        _QUOTIENT, *(f"{name}: gradient {e}" for name in ("tensorflow", "paddle") for e in ("zeros", "denormals"))
    ),
    "atan2": _of(
        Latitude("the quotient of numbers that may count as zero has no direction", _any_direction), "denormals"
    ),
    "interpolate_linear": {
        "infinities": Latitude(WEIGHTS, _replacing(_limits)),
        "nan": Latitude(WEIGHTS, _replacing(_for_nan(BEYOND))),
    },
    "max_pool": _of(_SELECTED, "tensorflow: nan", "paddle: nan"),
    "adaptive_max_pool": _of(_SELECTED, "paddle: nan"),
    "global_max_pool": _of(_SELECTED, "paddle: nan"),
    "max": {**_of(_SELECTED, "paddle: nan"), **_of(_EXTREMES, "paddle: gradient zeros", "paddle: gradient ties")},
    "min": {**_of(_LEAST, "paddle: nan"), **_of(_EXTREMES, "paddle: gradient zeros", "paddle: gradient ties")},
    "soft_margin_loss": _of(
        Latitude(
            "PopTorch writes log(1 + exp(-y * x)) (popart_canonicalization/LossOps.cpp), and exp overflows",
            _overflowing,
            _overflowing_gradients,
        ),
        "poptorch: large",
    ),
    "nll_loss": {
        **_of(Latitude(MASKED, _replacing(_limits)), "poptorch: infinities", "paddle: infinities"),
        **_of(Latitude(MASKED, _replacing(_for_nan(BEYOND))), "paddle: nan"),
    },
    "poisson_nll_loss": _of(_POISSON, "zeros", "ties", "denormals"),
    "multi_margin_loss": _of(
        Latitude(FMAX, _any_loss),
        *(f"{n}: {e}" for n in ("tensorflow", "poptorch", "paddle") for e in ("infinities", "nan")),
    ),
    "bce_with_logits_loss": _of(_LIMIT_OR_NAN, "poptorch: infinities"),
    "log_cosh_loss": _of(_LIMIT, "infinities"),
    "weighted_bce_with_logits_loss": {
        "infinities": _LIMIT_OR_NAN,
        **_of(
            Latitude(
                "TensorFlow's page adds max(-x, 0) and |x|, whose slopes at zero do not add up",
                gradients=_slopes_beside,
            ),
            *(f"tensorflow: gradient {edge}" for edge in ("zeros", "ties", "denormals")),
        ),
    },
    **{
        name: _of(Latitude(FMAX, _hinge), "paddle: nan")
        for name in ("hinge_loss", "squared_hinge_loss", "margin_ranking_loss")
    },
    "hinge_embedding_loss": _of(Latitude(FMAX, _hinge_embedding), "paddle: nan"),
}
"""What more is allowed, by op."""


def latitudes(op: str, framework: str, direction: str, edge: str) -> List[Latitude]:
    """What more is allowed of an op at an edge on a framework, in the direction "forward" or "gradient"."""
    rules = LATITUDES.get(op, {})
    words = (edge, f"{framework}: {edge}") if direction == "forward" else tuple(_gradient_words(framework, edge))
    known = [rules[word] for word in words if word in rules]
    return [each for each in known if (each.outputs if direction == "forward" else each.gradients) is not None]


def is_settled(op: str, framework: str, edge: str) -> bool:
    """Whether a document says which of equal elements gets how much of a gradient."""
    return any(each.alone for each in latitudes(op, framework, "gradient", edge))


def _gradient_words(framework: str, edge: str) -> Iterator[str]:
    for word in (edge, f"gradient {edge}"):
        yield from (word, f"{framework}: {word}")

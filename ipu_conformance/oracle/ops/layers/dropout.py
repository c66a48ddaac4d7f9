"""Dropout: given its mask, a product. That masks are random is checked in ``check.masks``.

``mode`` follows Paddle's names. "upscale_in_train" (also torch and TensorFlow) divides by the keep rate when training
and is the identity in inference; "downscale_in_infer" keeps values as they are when training and multiplies by the
keep rate in inference. A mask holds 1 where an element is kept.
"""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, OracleError, Term
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS

MODES = ("upscale_in_train", "downscale_in_infer")


def _factor(mask: Array, rate: float, mode: str, training: bool) -> Array:
    if mode not in MODES:
        raise OracleError(f"dropout mode {mode!r} is unknown; use one of {', '.join(MODES)}")
    if not 0.0 <= rate < 1.0:
        raise OracleError(f"the dropout rate is {rate}; it must be at least 0 and less than 1")
    if not training:
        return np.full(mask.shape, 1.0 - rate if mode == "downscale_in_infer" else 1.0)
    return mask / (1.0 - rate) if mode == "upscale_in_train" else mask.astype(float)


def _dropout(x: Array, mask: Array, *, rate: float, mode: str = "upscale_in_train", training: bool = True) -> Array:
    return x * _factor(mask, rate, mode, training)


def _vjp(cotangent: Array, x: Array, mask: Array, **attributes: Any) -> List[Any]:
    return [_dropout(cotangent, mask, **attributes), None]


def _error(
    y: Array, x: Array, mask: Array, *, mode: str = MODES[0], training: bool = True, **rest: Any
) -> List[List[Term]]:
    scales = training == (mode == "upscale_in_train")
    return [[Term(np.abs(y), ulps=ULPS["divide"] + 1)] if scales else []]


def _vjp_error(gradients: List[Any], cotangent: Array, x: Array, mask: Array, **attributes: Any) -> List[List[Term]]:
    return [*_error(gradients[0], x, mask, **attributes), []]


def _draw(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 6)
    attributes: Dict[str, Any] = {
        "rate": chooser.choice([0.5, 0.1, 0.3, 0.0]),
        "mode": chooser.choice(MODES),
        "training": chooser.boolean(),
    }
    return Sample((chooser.array(shape, avoid=[0.0]), chooser.integers(shape, 0, 1).astype(bool)), attributes)


OPS.add(Op("dropout", "dropout", _dropout, _error, _draw, _vjp, _vjp_error))

"""Distances of two tensors by norms of several orders."""

from __future__ import annotations

import math

import numpy as np

from ipu_conformance.oracle.sample import Chooser

from .op_test_ipu import case, forward_and_gradient, integers, values

NEAR, FAR = values(3, 4, low=-0.25, high=0.25), values(3, 4, low=0.5, high=2.0)
ORDERS = {"dist": 2.0, "dist-1": 1.0, "dist-3": 3.0}


def _apart(chooser: Chooser) -> np.ndarray:
    """Numbers of which one is the largest; their differences from 0, 1 and 2 sixteenths need no rounding."""
    return chooser.generator().permutation(12).reshape(3, 4) / 4.0 + 1.0


def _sixteenths(chooser: Chooser) -> np.ndarray:
    return integers(3, 4, high=2)(chooser) / 16.0


CASES = (
    *(case("dist", "dist", FAR, NEAR, name=name, p=order) for name, order in ORDERS.items()),
    case("dist", "dist", _apart, _sixteenths, name="dist-inf", p=math.inf),
    case("dist", "dist", FAR, values(4, low=-0.25, high=0.25), name="dist-broadcast", p=2.0),
)

test_forward, test_gradient = forward_and_gradient(CASES)

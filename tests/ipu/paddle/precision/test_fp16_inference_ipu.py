"""Predictors in float16: weights and values are float16 between inputs and outputs in float32."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from .. import regression
from ..device import predicted, predictor_config, save_model
from ..regression import float32, half

SIZE = 4
FINE = np.float32(1 + 2.0**-12)


def predict(paddle: Any, path: Path, x: np.ndarray, *enabling: Any, fp16: bool = True) -> np.ndarray:
    """What a predictor computes by relu(x w) + 2048 - 2048; in float16 that sum has even numbers only."""
    variable = paddle.static.data("x", [-1, 2], "float32")
    start = paddle.nn.initializer.Assign(np.array([1.5, 3.0], np.float32) * FINE)
    weight = paddle.create_parameter([2], "float32", default_initializer=start)
    out = (paddle.nn.functional.relu(variable * weight) + 2048.0) - 2048.0
    config = predictor_config(paddle, save_model(paddle, path, [variable], [out]), *enabling, ipu_enable_fp16=fp16)
    return predicted(paddle.inference.create_predictor(config), x)


def specified(x: np.ndarray) -> np.ndarray:
    """Weights and the result of every op are rounded to float16; the output is float32."""
    weight = half(np.array([1.5, 3.0], np.float32) * FINE)
    return float32(half(half(np.maximum(half(half(x) * weight), 0)) + 2048) - 2048)


def samples(count: int) -> np.ndarray:
    """Samples whose products lie above, below and halfway between even numbers."""
    return (regression.samples(count) * 1.75).astype(np.float32)


WAYS: Dict[str, Tuple[type, Tuple[Any, ...], Tuple[int, ...]]] = {
    "1": (np.float32, (1, SIZE, False, 1), (SIZE, 2)),
    "3": (np.float32, (1, SIZE, False, 3), (3, SIZE, 2)),
    "pipelined": (np.float32, (2, SIZE, True, 3), (3, SIZE, 2)),
    "sharded": (np.float32, (2, SIZE, False, 3), (3, SIZE, 2)),
    "float16": (np.float16, (1, SIZE), (SIZE, 2)),
}
"""The type of the input, what the IPU is enabled with, and the shape of the output."""


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.ipus(WAYS[way][1][0])) for way in WAYS])
def test_every_op_is_rounded(paddle: Any, static: Any, tmp_path: Path, way: str) -> None:
    """The outputs are those of float16 arithmetic, in float32, whatever the input is, and however IPUs share it."""
    dtype, enabling, shape = WAYS[way]
    x = samples(math.prod(shape[:-1]))
    out = predict(paddle, tmp_path, x.astype(dtype), *enabling)

    check.identical(actual=out, expected=specified(x).reshape(shape), what="the output")


@pytest.mark.parametrize("fp16", [True, False])
def test_only_asking_for_float16_gives_it(paddle: Any, static: Any, tmp_path: Path, fp16: bool) -> None:
    """Without ipu_enable_fp16 nothing is rounded to even numbers."""
    out = predict(paddle, tmp_path, samples(SIZE), 1, SIZE, fp16=fp16)

    check.equal(actual=bool((out % 2 == 0).all()), expected=fp16, what=f"whether all of {out.tolist()} are even")


def test_integers_stay_integers(paddle: Any, static: Any, tmp_path: Path) -> None:
    """Inputs and outputs that are no floating-point numbers keep their type and every bit."""
    numbers = static.data("x", [-1, 2], "int32")
    weight = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
    outputs = [numbers + 1, paddle.cast(numbers, "float32") * 0.0 + weight]
    path = save_model(paddle, tmp_path, [numbers], outputs)
    config = predictor_config(paddle, path, 1, SIZE, ipu_enable_fp16=True)
    x = np.array([[2049, -4097], [65537, 7], [2**24 + 1, -(2**24) - 3], [0, 2**30 + 5]], np.int32)
    out = predicted(paddle.inference.create_predictor(config), x)

    check.identical(actual=out, expected=x + np.int32(1), what="the input and one")

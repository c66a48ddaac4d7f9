"""Predictors in float16: weights and values are float16 between inputs and outputs in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("batches", [1, 3])
def test_every_op_is_rounded(paddle: Any, static: Any, tmp_path: Path, batches: int) -> None:
    """The outputs are those of float16 arithmetic, in float32."""
    x = samples(SIZE * batches)
    out = predict(paddle, tmp_path, x, 1, SIZE, False, batches)

    check.identical(actual=out.reshape(-1, 2), expected=specified(x), what="the output")


@pytest.mark.parametrize("fp16", [True, False])
def test_only_asking_for_float16_gives_it(paddle: Any, static: Any, tmp_path: Path, fp16: bool) -> None:
    """Without ipu_enable_fp16 nothing is rounded to even numbers."""
    out = predict(paddle, tmp_path, samples(SIZE), 1, SIZE, fp16=fp16)

    check.equal(actual=bool((out % 2 == 0).all()), expected=fp16, what=f"whether all of {out.tolist()} are even")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("pipelined", [True, False])
def test_stages_hand_on_float16(paddle: Any, static: Any, tmp_path: Path, pipelined: bool) -> None:
    """Spread over two IPUs the outputs are the same."""
    x = samples(SIZE * 3)
    out = predict(paddle, tmp_path, x, 2, SIZE, pipelined, 3)

    check.identical(actual=out, expected=specified(x).reshape(3, SIZE, 2), what="the output")


def test_float16_inputs_are_taken(paddle: Any, static: Any, tmp_path: Path) -> None:
    """An input in float16 gives what the same values in float32 give."""
    out = predict(paddle, tmp_path, samples(SIZE).astype(np.float16), 1, SIZE)

    check.identical(actual=out, expected=specified(samples(SIZE)), what="the output")


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

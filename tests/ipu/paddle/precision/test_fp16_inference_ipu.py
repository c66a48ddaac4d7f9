"""Predictors in float16: weights and values are float16 between inputs and outputs in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .. import regression
from ..device import predicted, predictor_config, save_model
from ..regression import half

SIZE = 4
FINE = np.float32(1 + 2.0**-12)


def predict(paddle: Any, path: Path, x: np.ndarray, *enabling: Any, fp16: bool = True) -> np.ndarray:
    """What a predictor makes of samples by relu(x w) + 2048 - 2048, whose sum has even numbers only in float16."""
    variable = paddle.static.data("x", [-1, 2], "float32")
    start = paddle.nn.initializer.Assign(np.array([1.5, 3.0], np.float32) * FINE)
    weight = paddle.create_parameter([2], "float32", default_initializer=start)
    out = (paddle.nn.functional.relu(variable * weight) + 2048.0) - 2048.0
    config = predictor_config(paddle, save_model(paddle, path, [variable], [out]), *enabling, ipu_enable_fp16=fp16)
    return predicted(paddle.inference.create_predictor(config), x)


def specified(x: np.ndarray) -> np.ndarray:
    """Weights and the result of every op are rounded to float16."""
    weight = half(np.array([1.5, 3.0], np.float32) * FINE)
    return half(half(np.maximum(half(half(x) * weight), 0)) + 2048) - 2048


def samples(count: int) -> np.ndarray:
    """Samples of all sizes of remainders."""
    return (regression.samples(count) * 1.75).astype(np.float32)


@pytest.mark.parametrize("batches", [1, 3])
def test_every_op_is_rounded(paddle: Any, static: Any, tmp_path: Path, batches: int) -> None:
    """The outputs are those of float16 arithmetic, in float32."""
    x = samples(SIZE * batches)
    got = predict(paddle, tmp_path, x, 1, SIZE, False, batches)

    assert got.dtype == np.float32
    assert got.reshape(-1, 2).tolist() == specified(x).tolist()


@pytest.mark.parametrize("fp16", [True, False])
def test_only_asking_for_float16_gives_it(paddle: Any, static: Any, tmp_path: Path, fp16: bool) -> None:
    """Without ipu_enable_fp16 nothing is rounded to even numbers."""
    got = predict(paddle, tmp_path, samples(SIZE), 1, SIZE, fp16=fp16)

    assert bool((got % 2 == 0).all()) is fp16


@pytest.mark.ipus(2)
@pytest.mark.parametrize("pipelined", [True, False])
def test_stages_hand_on_float16(paddle: Any, static: Any, tmp_path: Path, pipelined: bool) -> None:
    """Spread over two IPUs the outputs are the same."""
    x = samples(SIZE * 3)
    got = predict(paddle, tmp_path, x, 2, SIZE, pipelined, 3)

    assert got.reshape(-1, 2).tolist() == specified(x).tolist()


def test_float16_inputs_are_taken(paddle: Any, static: Any, tmp_path: Path) -> None:
    """An input in float16 gives what the same values in float32 give."""
    x = samples(SIZE)
    got = predict(paddle, tmp_path, x.astype(np.float16), 1, SIZE)

    assert got.tolist() == specified(x).tolist()

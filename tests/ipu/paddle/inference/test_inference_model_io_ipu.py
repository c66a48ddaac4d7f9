"""Inference models: saved after training on the device, loaded, and run on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from .. import regression
from ..device import compiled, save_model
from ..regression import START, float32, samples

SIZE = 4


def save_trained(paddle: Any, path: Path, *, synced: bool = True, half: Any = None) -> Tuple[str, np.ndarray]:
    """Save the model after one step on the device; the prefix, and the weight that the host should hold."""
    built, device = regression.trainable(paddle, paddle.optimizer.SGD(regression.RATE), half=half)
    x, y = samples(SIZE), regression.targets(SIZE)
    device.run(x, y)
    if synced:
        device.sync()
    prefix, static = str(path / "model"), paddle.static
    static.save_inference_model(
        prefix, [built.main.global_block().var("x")], [built.out], static.Executor(), program=built.main
    )
    return prefix, regression.step(START, x, y).weight if synced else START


def run_loaded(paddle: Any, prefix: str, x: np.ndarray, **options: Any) -> np.ndarray:
    """The output of the saved model on the device, in a scope of its own as another process would have it."""
    with paddle.static.scope_guard(paddle.static.Scope()):
        program, feeds, fetches = paddle.static.load_inference_model(prefix, paddle.static.Executor())
        (out,) = compiled(paddle, fetches, feeds=feeds, program=program, **options).run(x)
    return out


@pytest.mark.parametrize(("synced", "batches"), [(True, 1), (False, 1), (True, 3), (True, 5)])
def test_a_saved_model_has_the_weights_of_the_host(
    paddle: Any, static: Any, tmp_path: Path, synced: bool, batches: int
) -> None:
    """Saved without syncing, the model has the weights from before training; otherwise the trained ones.

    The host agrees with the device, whose strategy decides the batches per step, not the file.
    """
    prefix, weight = save_trained(paddle, tmp_path, synced=synced)
    x = samples(SIZE * batches, SIZE)
    with static.scope_guard(static.Scope()):
        executor = static.Executor(paddle.CPUPlace())
        program, feeds, fetches = static.load_inference_model(prefix, executor)
        (on_host,) = executor.run(program, feed={feeds[0]: x[:SIZE]}, fetch_list=fetches)
    out = run_loaded(paddle, prefix, x, batches_per_step=batches)

    check.identical(actual=on_host, expected=float32(x[:SIZE] * weight), what="the host's output")
    shape = (batches, SIZE, 2) if batches > 1 else (SIZE, 2)
    check.identical(actual=out, expected=float32(x * weight).reshape(shape), what="the device's output")


@pytest.mark.parametrize("size", [1, 2, 6])
def test_a_model_saved_without_a_batch_size_takes_any(paddle: Any, static: Any, tmp_path: Path, size: int) -> None:
    """A leading -1 of the saved model becomes the micro-batch size of the strategy."""
    x = static.data("x", [-1, 2], "float32")
    weight = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.5))
    prefix = save_model(paddle, tmp_path, [x], [paddle.nn.functional.relu(x * weight)])
    out = run_loaded(paddle, prefix, samples(size), size=size)

    check.identical(actual=out, expected=float32(np.maximum(samples(size) * 1.5, 0)), what="the output")


@pytest.mark.parametrize("half", ["before", "after"])
def test_a_float16_model_stays_float16(paddle: Any, static: Any, tmp_path: Path, half: str) -> None:
    """A program in float16 is saved and loaded as such: outputs are float16."""
    prefix, weight = save_trained(paddle, tmp_path, half=half)
    x = samples(SIZE) * np.float32(1 + 2.0**-12)
    # One step of the exact model is exact in float16 too.
    expected = (x.astype(np.float16).astype(np.float64) * weight).astype(np.float16)

    check.identical(actual=run_loaded(paddle, prefix, x), expected=expected, what="the output")


def test_a_saved_model_holds_no_training(paddle: Any, static: Any, tmp_path: Path) -> None:
    """Backward and optimizer ops, and what only they use, are not saved."""
    prefix, _ = save_trained(paddle, tmp_path)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(prefix, static.Executor())
        types = [op.type for op in program.global_block().ops if op.type not in ("feed", "fetch")]
        trains = [each for each in types if each.endswith("_grad") or each == "sgd"]

        check.equal(actual=feeds, expected=["x"], what="the list of feeds")
        check.equal(actual=len(fetches), expected=1, what="the number of fetches")
        check.equal(actual=types[:1], expected=["elementwise_mul"], what="the first op")
        check.equal(actual=trains, expected=[], what="the list of training ops")


def test_a_saved_model_keeps_its_pipeline(paddle: Any, static: Any, tmp_path: Path) -> None:
    """The scales by one that saving adds have no stage and need none."""
    three = paddle.nn.initializer.Constant(3.0)
    x = static.data("x", [SIZE, 3], "float32")
    with static.ipu_shard_guard(index=0, stage=0):
        tripled = x * static.create_parameter([3], "float32", default_initializer=three)
    with static.ipu_shard_guard(index=1, stage=1):
        out = tripled - 0.5
    prefix = save_model(paddle, tmp_path, [x], [out])
    program, feeds, fetches = static.load_inference_model(prefix, static.Executor())
    scales = [op for op in program.global_block().ops if op.type == "scale" and not op.has_attr("ipu_stage")]
    check.equal(actual=len(scales), expected=1, what="the number of scales without a stage")
    options: Any = {"num_ipus": 2, "enable_manual_shard": True, "enable_pipelining": True, "batches_per_step": 3}
    fed = np.arange(3 * SIZE * 3, dtype=np.float32).reshape(3 * SIZE, 3)

    (out,) = compiled(paddle, fetches, feeds=feeds, program=program, **options).run(fed)

    check.identical(actual=out, expected=float32(fed * 3 - 0.5).reshape(3, SIZE, 3), what="the output")

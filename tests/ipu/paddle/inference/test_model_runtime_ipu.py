"""The model runtime: with a timeout, requests may be smaller than the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from ..ops import dyadic

SIZE = 4
TIMEOUT = 5.0


def serving(paddle: Any, *, timeout: float = TIMEOUT, batches: int = 1, **options: Any) -> Any:
    """A program of two inputs that is served by the model runtime."""
    static = paddle.static
    x, y = static.data("x", [SIZE, 2], "float32"), static.data("y", [SIZE, 2], "float32")
    out = paddle.square(x) + y
    return dyadic.compiled(
        paddle, static.default_main_program(), ["x", "y"], [out], is_training=False, batches_per_step=batches,
        enable_model_runtime_executor=True, timeout_ms=timeout, **options,
    )  # fmt: skip


def exact(x: np.ndarray, y: np.ndarray) -> List[List[float]]:
    """What the program makes of samples."""
    made: List[List[float]] = (x.astype(np.float64) ** 2 + y).tolist()
    return made


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_a_smaller_batch_is_completed(paddle: Any, static: Any, samples: int) -> None:
    """With a timeout a request of fewer samples is answered, with as many."""
    x, y = dyadic.samples(samples), dyadic.targets(samples)
    (got,) = serving(paddle).run(x=x, y=y)

    assert got.shape == (samples, 2)
    assert got.tolist() == exact(x, y)


@pytest.mark.parametrize("timeout", [0.0, TIMEOUT])
def test_a_full_batch_needs_no_timeout(paddle: Any, static: Any, timeout: float) -> None:
    """A request that fills the batch is answered as without the model runtime."""
    x, y = dyadic.samples(SIZE), dyadic.targets(SIZE)
    (got,) = serving(paddle, timeout=timeout).run(x=x, y=y)

    assert got.tolist() == exact(x, y)


@pytest.mark.parametrize("samples", [1, 3])
def test_without_a_timeout_the_batch_must_be_full(paddle: Any, static: Any, samples: int) -> None:
    """A smaller request is refused."""
    device = serving(paddle, timeout=0.0)

    with pytest.raises(ValueError, match="Batch size doesn't equal"):
        device.run(x=dyadic.samples(samples), y=dyadic.targets(samples))


WRONG: Dict[str, Any] = {"more": (SIZE + 1, SIZE + 1), "unequal": (2, 3), "none": (0, 0)}


@pytest.mark.parametrize("what", WRONG)
def test_a_timeout_does_not_make_everything_fit(paddle: Any, static: Any, what: str) -> None:
    """More samples than the batch, no samples, or inputs of unequal numbers are refused with a timeout too."""
    device = serving(paddle)
    xs, ys = WRONG[what]

    with pytest.raises(ValueError, match="Batch size doesn't equal"):
        device.run(x=dyadic.samples(xs), y=dyadic.targets(ys))


@pytest.mark.parametrize("samples", [1, 5, 11, 12])
def test_a_step_of_several_batches_may_be_smaller_too(paddle: Any, static: Any, samples: int) -> None:
    """The first samples of a step fill its micro-batches in order."""
    x, y = dyadic.samples(samples), dyadic.targets(samples)
    (got,) = serving(paddle, batches=3).run(x=x, y=y)

    assert got.shape == ((3, SIZE, 2) if samples == 3 * SIZE else (samples, 2))
    assert got.reshape(-1, 2).tolist() == exact(x, y)


def test_requests_of_all_sizes_follow_each_other(paddle: Any, static: Any) -> None:
    """Nothing of one request is left in the next."""
    device = serving(paddle)
    for turn, samples in enumerate([3, 1, 4, 2]):
        x, y = dyadic.samples(samples, turn), dyadic.targets(samples, turn)
        (got,) = device.run(x=x, y=y)
        assert got.tolist() == exact(x, y), f"request {turn}"


def test_the_model_runtime_is_for_inference(paddle: Any, static: Any) -> None:
    """A program that trains cannot be served."""
    built = dyadic.build(paddle, optimizer=paddle.optimizer.SGD(dyadic.RATE))
    dyadic.start(paddle, built)

    device = dyadic.compiled(
        paddle, built.main, built.feeds, [built.loss], is_training=True, enable_model_runtime_executor=True
    )

    with pytest.raises(ValueError, match="inference"):
        device.run(x=dyadic.samples(SIZE), y=dyadic.targets(SIZE))


def test_a_predictor_may_be_served(paddle: Any, static: Any, tmp_path: Path) -> None:
    """ipu_enable_model_runtime_executor serves a predictor; it has no timeout, so its batch must be full."""
    prefix = dyadic.save_squares(paddle, tmp_path, SIZE)
    config = paddle.inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
    config.enable_ipu(1, SIZE)
    config.set_ipu_config(ipu_enable_model_runtime_executor=True)
    predictor = paddle.inference.create_predictor(config)
    handle = predictor.get_input_handle("x")
    handle.copy_from_cpu(dyadic.samples(SIZE))
    predictor.run()
    got = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()

    assert got.tolist() == (dyadic.samples(SIZE).astype(np.float64) ** 2).tolist()
    handle.copy_from_cpu(dyadic.samples(SIZE - 1))
    with pytest.raises(ValueError, match="Batch size doesn't equal"):
        predictor.run()

"""Requests to the model runtime: completed, refused, answered."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.errors import InvalidArgument
from ipu_conformance.emulator.paddle.run import model_runtime
from tests.unit.examples import at_most


def strategy(timeout: float = 0.0, *, training: bool = False, enabled: bool = True) -> IpuStrategy:
    """A strategy of the model runtime."""
    made = IpuStrategy()
    made.set_options({"enable_model_runtime_executor": enabled, "timeout_ms": timeout, "is_training": training})
    return made


def test_only_inference_goes_through_the_model_runtime() -> None:
    """It is used when it is enabled, and refused for training."""
    assert model_runtime.is_used(strategy())
    assert not model_runtime.is_used(strategy(enabled=False))
    assert not model_runtime.is_used(strategy(enabled=False, training=True))
    with pytest.raises(InvalidArgument, match="is for inference"):
        model_runtime.is_used(strategy(training=True))


@at_most(100)
@given(data=st.data())
def test_a_request_gets_back_its_own_samples(data: st.DataObject) -> None:
    """Whatever is asked for, up to a full batch, the answer to the identity is the request."""
    size, runs = data.draw(st.integers(1, 4), label="micro-batch"), data.draw(st.integers(1, 4), label="runs")
    given_samples = data.draw(st.integers(1, size * runs), label="samples")
    x = np.arange(1, given_samples * 3 + 1, dtype=np.float32).reshape(given_samples, 3)
    asked = model_runtime.request({"x": x}, {"x": (size, 3)}, strategy(5.0), runs)
    fetched = asked.feeds["x"].reshape((runs, size, 3) if runs > 1 else (size, 3))
    (answer,) = asked.answer([fetched])

    assert asked.feeds["x"].shape == (size * runs, 3)
    assert answer.reshape(-1, 3).tolist() == x.tolist()


def test_samples_may_come_by_micro_batch() -> None:
    """A full request of [runs, micro-batch, …] stays as it is."""
    x = np.arange(12.0).reshape(2, 3, 2)
    asked = model_runtime.request({"x": x}, {"x": (3, 2)}, strategy(), 2)

    assert asked.feeds["x"] is x
    assert asked.answer([x])[0] is x


@pytest.mark.parametrize(
    ("shape", "timeout"),
    [((5, 2), 0.0), ((7, 2), 0.0), ((7, 2), 5.0), ((0, 2), 5.0), ((5, 3), 5.0)],
    ids=["less", "more", "more in time", "none", "other samples"],
)
def test_a_request_that_does_not_fit_is_refused(shape: Tuple[int, ...], timeout: float) -> None:
    """A timeout lets a request be smaller, never larger, empty or of another shape."""
    with pytest.raises(InvalidArgument, match="Batch size doesn't equal"):
        model_runtime.request({"x": np.ones(shape)}, {"x": (3, 2)}, strategy(timeout), 2)


def test_feeds_hold_the_same_samples() -> None:
    """Inputs of one request are as many."""
    feeds: Dict[str, Any] = {"x": np.ones((3, 2)), "y": np.ones((4, 1))}

    with pytest.raises(InvalidArgument, match="x 3 of 6, y 4 of 6"):
        model_runtime.request(feeds, {"x": (3, 2), "y": (3, 1)}, strategy(5.0), 2)


def test_outputs_without_samples_are_kept() -> None:
    """An output that has no sample for each request, such as a mean, comes as it is."""
    asked = model_runtime.request({"x": np.ones((5, 2))}, {"x": (7, 2)}, strategy(5.0), 1)
    mean = np.array([0.5])

    assert asked.answer([mean])[0] is mean

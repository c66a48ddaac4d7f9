"""The vendors' limits on stages and micro-batches, accepted and refused with the vendors' messages."""

from __future__ import annotations

from typing import Any, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core import limits
from ipu_conformance.emulator.core.limits import LimitError
from ipu_conformance.emulator.core.schedules import SharedDeviceError
from tests.unit.examples import at_most


@given(st.integers(1, 8), st.integers(1, 20))
def test_poptorch_trains_with_at_least_2f_minus_1_accumulations(stages: int, accumulation: int) -> None:
    """F stages need an accumulation of 2F-1; sharded execution needs none."""
    options: Dict[str, Any] = {"device_iterations": 1, "accumulation": accumulation, "training": True}
    if accumulation >= 2 * stages - 1:
        limits.check_poptorch(stages, **options)
    else:
        with pytest.raises(LimitError, match=rf"gradientAccumulation\({accumulation}\).*stages \({2 * stages - 1}\)"):
            limits.check_poptorch(stages, **options)
    limits.check_poptorch(stages, pipelined=False, **options)


@given(st.integers(1, 8), st.integers(1, 10))
def test_poptorch_infers_with_at_least_f_device_iterations(stages: int, iterations: int) -> None:
    """F stages need F device iterations, and inference does not accumulate."""
    options: Dict[str, Any] = {"device_iterations": iterations, "training": False}
    if iterations >= stages:
        limits.check_poptorch(stages, accumulation=1, **options)
    else:
        with pytest.raises(LimitError, match=rf"deviceIterations\({iterations}\).*stages \({stages}\)"):
            limits.check_poptorch(stages, accumulation=1, **options)
    with pytest.raises(LimitError, match="gradientAccumulation` to 1"):
        limits.check_poptorch(stages, accumulation=2, **options)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("accumulating", [True, False])
@given(stages=st.integers(1, 6), depth=st.integers(1, 12))
@at_most(25)
def test_paddle_needs_as_many_micro_batches_as_pipeline_stages(
    training: bool, accumulating: bool, stages: int, depth: int
) -> None:
    """2(S-1)+1 in training and S in inference, of the accumulation factor or else of the batches per step."""
    needed = 2 * (stages - 1) + 1 if training else stages
    name = "gradient accumulation factor" if accumulating else "batchesPerStep"
    options: Dict[str, Any] = {
        "batches_per_step": 1 if accumulating else depth,
        "accumulation": depth if accumulating else 1,
        "accumulating": accumulating,
        "training": training,
    }

    limits.check_paddle(stages, pipelined=False, **options)
    if depth >= needed:
        limits.check_paddle(stages, pipelined=True, **options)
    else:
        with pytest.raises(LimitError) as caught:
            limits.check_paddle(stages, pipelined=True, **options)
        assert str(caught.value) == (
            f"For pipelining, depth ({name}) must equal at least the number of pipeline stages ({needed})"
        )


MULTIPLES = [
    ("grouped", True, lambda n: 2 * n),
    ("grouped", False, lambda n: n),
    ("interleaved", True, lambda n: n),
    ("interleaved", False, lambda n: n),
    ("sequential", True, lambda n: 1),
    ("sequential", False, lambda n: 1),
]


@pytest.mark.parametrize(("name", "training", "multiple"), MULTIPLES)
@given(stages=st.integers(2, 6), count=st.integers(1, 30))
@at_most(25)
def test_tensorflow_needs_a_multiple_of_n_or_2n(
    name: str, training: bool, multiple: Any, stages: int, count: int
) -> None:
    """Grouped training repeats every 2N iterations, the others every N, and the sequential schedule takes any."""
    mapping, needed = list(range(stages)), multiple(stages)
    if count % needed == 0:
        limits.check_tensorflow(mapping, name, count, training=training)
    else:
        with pytest.raises(LimitError) as caught:
            limits.check_tensorflow(mapping, name, count, training=training)
        assert str(caught.value) == (
            f"The number of iterations of the pipeline must be a multiple of {needed}, but it is {count}."
        )


def test_tensorflow_interleaves_on_distinct_devices_only() -> None:
    """A shared device is not implemented for the interleaved schedule, and fine for the others."""
    with pytest.raises(SharedDeviceError, match="does not support two stages on one device"):
        limits.check_tensorflow([0, 1, 0], "interleaved", 12, training=True)
    limits.check_tensorflow([0, 1, 0], "grouped", 12, training=True)


def test_tensorflow_refuses_one_stage_and_popart() -> None:
    """A pipeline has two stages or more, and one of TensorFlow's schedules."""
    with pytest.raises(LimitError, match="at least two computational stages"):
        limits.check_tensorflow([0], "grouped", 2, training=True)
    with pytest.raises(LimitError, match="no popart schedule"):
        limits.check_tensorflow([0, 1], "popart", 4, training=True)

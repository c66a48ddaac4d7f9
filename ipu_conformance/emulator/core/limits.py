"""The vendors' limits on micro-batches and stages, refused with the vendors' messages.

A front end calls its vendor's check before it plans, and turns ``LimitError`` into the vendor's exception type.
"""

from __future__ import annotations

from typing import Sequence

from ipu_conformance.emulator.core.schedules import SharedDeviceError, schedule
from ipu_conformance.errors import ConformanceError


class LimitError(ConformanceError):
    """A configuration is outside what the vendor's software accepts."""


def pipeline_stages(stages: int, *, training: bool) -> int:
    """The stages of a PopART pipeline: the last forward stage and its backward are one."""
    return 2 * (stages - 1) + 1 if training else stages


def check_poptorch(
    stages: int, *, device_iterations: int, accumulation: int, training: bool, pipelined: bool = True
) -> None:
    """PopTorch: an accumulation of at least 2F-1 trains F stages, and F device iterations are needed for inference.

    Sharded execution has neither limit; inference never accumulates.
    """
    if not training and accumulation != 1:
        raise LimitError(
            "You must set `poptorch.Options().Training.gradientAccumulation` to 1 or leave it as its default value (1) "
            f"when running a poptorch.inferenceModel(): it is {accumulation}."
        )
    if not pipelined:
        return
    needed = pipeline_stages(stages, training=training)
    if training and accumulation < needed:
        raise LimitError(
            f"poptorch.Options().Training.gradientAccumulation({accumulation}) must be greater than or equal to the "
            f"number of pipeline stages ({needed}) when using poptorch.PipelinedExecution. Please note that a model "
            "with a loss has pipeline stages for its backward pass too."
        )
    if not training and device_iterations < needed:
        raise LimitError(
            f"poptorch.Options().deviceIterations({device_iterations}) must be greater than or equal to the number of "
            f"pipeline stages ({needed}) when using poptorch.PipelinedExecution."
        )


def check_paddle(
    stages: int, *, batches_per_step: int, accumulation: int, accumulating: bool, training: bool, pipelined: bool
) -> None:
    """Paddle, on PopART: the micro-batches that are in flight together must be at least the pipeline's stages."""
    if not pipelined:
        return
    needed = pipeline_stages(stages, training=training)
    name, depth = (
        ("gradient accumulation factor", accumulation) if accumulating else ("batchesPerStep", batches_per_step)
    )
    if depth < needed:
        raise LimitError(f"For pipelining, depth ({name}) must equal at least the number of pipeline stages ({needed})")


def check_tensorflow(device_mapping: Sequence[int], by: str, count: int, *, training: bool) -> None:
    """TensorFlow: a pipeline has at least two stages and a count that is a multiple of what its schedule repeats."""
    chosen, stages = schedule(by), len(device_mapping)
    if stages < 2:
        raise LimitError("Pipeline requires at least two computational stages.")
    if not chosen.shares_devices and len(set(device_mapping)) < stages:
        raise SharedDeviceError(
            f"The pipelining schedule {chosen.name!r} does not support two stages on one device, and the device "
            f"mapping is {list(device_mapping)}: use the grouped schedule or one device per stage."
        )
    multiple = {"sequential": 1, "grouped": 2 * stages if training else stages, "interleaved": stages}
    if chosen.name not in multiple:
        raise LimitError(f"TensorFlow has no {chosen.name} schedule: use one of {', '.join(multiple)}")
    if count < 1 or count % multiple[chosen.name]:
        raise LimitError(
            "The number of iterations of the pipeline must be a multiple of "
            f"{multiple[chosen.name]}, but it is {count}."
        )

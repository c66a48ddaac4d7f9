"""The usual configuration of TensorFlow's training cases."""

from __future__ import annotations

from ipu_conformance.run import RunConfig, learning_rate, optimizer

FACTORS = RunConfig(
    device_iterations=3,
    gradient_accumulation=2,
    micro_batch=4,
    learning_rate=learning_rate(base=0.0625),
    optimizer=optimizer("sgd", momentum=0.5, rate_in_velocity=True),
    accumulation_reduction="sum",
    replica_reduction="sum",
    output_layout="tensorflow",
)
"""Every factor differs from every other; an execution has device iterations x accumulation steps of a replica."""

counted = FACTORS.with_counts
"""``counted(2, 3, 5)`` has other numbers of device iterations, accumulated micro-batches and replicas."""

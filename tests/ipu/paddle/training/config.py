"""The usual configuration of Paddle's training cases."""

from __future__ import annotations

from ipu_conformance.run import RunConfig, learning_rate, optimizer

FACTORS = RunConfig(
    device_iterations=2,
    gradient_accumulation=5,
    replicas=3,
    learning_rate=learning_rate(base=0.25),
    optimizer=optimizer("sgd", momentum=0.5),
    output_layout="paddle",
    unbiased_statistics=False,
)
"""Every factor differs from every other; device iterations are Paddle's batches per step."""

counted = FACTORS.with_counts
"""``counted(2, 3, 5)`` has other numbers of device iterations, accumulated micro-batches and replicas."""

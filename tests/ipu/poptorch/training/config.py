"""The usual configuration of PopTorch's training cases."""

from __future__ import annotations

from ipu_conformance.run import RunConfig, learning_rate, optimizer

FACTORS = RunConfig(
    device_iterations=2,
    gradient_accumulation=7,
    replicas=3,
    learning_rate=learning_rate(base=0.25),
    optimizer=optimizer("sgd", momentum=0.5),
)
"""Every factor differs from every other, and 7 micro-batches are the least that fill a pipeline of 4 stages."""

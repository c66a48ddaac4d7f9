"""Scopes that decide where and how operations run on the IPU."""

from ipu_conformance.emulator.tensorflow.compile.scopes import (
    frontend_attribute,
    ipu_jit_scope,
    ipu_scope,
    ipu_shard,
    outside_compilation_scope,
    partials_type,
    stochastic_rounding,
)

__all__ = [
    "frontend_attribute",
    "ipu_jit_scope",
    "ipu_scope",
    "ipu_shard",
    "outside_compilation_scope",
    "partials_type",
    "stochastic_rounding",
]

"""The vocabulary of checks: each compares what a target did with what is specified and fails with one sentence.

The checks know of no target and of no framework: they take anything that ``np.asarray`` takes. Tolerances are objects
that are derived and explain themselves; a bare number is refused.
"""

from __future__ import annotations

from ipu_conformance.check.facts import contains, differs, equal, holds, instance, lacks
from ipu_conformance.check.failure import CaseReference, CheckFailure, CheckMisuseError, current_case
from ipu_conformance.check.masks import dropout_masks, dropout_values
from ipu_conformance.check.order import micro_batches_once, outputs_in_order
from ipu_conformance.check.runs import replicas_identical, runs_equivalent, runs_identical
from ipu_conformance.check.structure import accepted, ir_equal, raises, trace_equals_plan
from ipu_conformance.check.values import ToleranceLike, apart, between, close, dtype, identical, shape

__all__ = [
    "CaseReference",
    "CheckFailure",
    "CheckMisuseError",
    "ToleranceLike",
    "accepted",
    "apart",
    "between",
    "close",
    "contains",
    "current_case",
    "differs",
    "dropout_masks",
    "dropout_values",
    "dtype",
    "equal",
    "holds",
    "identical",
    "instance",
    "ir_equal",
    "lacks",
    "micro_batches_once",
    "outputs_in_order",
    "raises",
    "replicas_identical",
    "runs_equivalent",
    "runs_identical",
    "shape",
    "trace_equals_plan",
]

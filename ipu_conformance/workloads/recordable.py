"""What a baseline can be recorded of: the oracle's workloads by name, and any other by its module."""

from __future__ import annotations

import importlib
from typing import Mapping

from ipu_conformance.oracle.convergence.baseline import BaselineError
from ipu_conformance.oracle.convergence.recording import Recordable
from ipu_conformance.workloads import oracle_digits, oracle_models

WORKLOADS: Mapping[str, Recordable] = {**oracle_digits.WORKLOADS, **oracle_models.WORKLOADS}
"""The workloads that ``ipu-conformance baseline record`` knows by name."""


def find(name: str) -> Recordable:
    """The built-in workload called ``name``, or the one at ``module:attribute``."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    module, separator, attribute = name.partition(":")
    if not separator:
        raise BaselineError(f"workload {name!r} is unknown; use one of {', '.join(WORKLOADS)}, or module:attribute")
    try:
        workload = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BaselineError(f"workload {name!r} cannot be imported: {error}") from error
    if not isinstance(workload, Recordable) or not callable(workload):
        raise BaselineError(f"workload {name!r} is not Recordable: it lacks name, metric, budget or a call with a seed")
    return workload

"""How an op and a framework are compared at a chosen sample, where random ones do not go."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ipu_conformance.oracle.op import OPS
from ipu_conformance.oracle.sample import Sample
from tests.unit.oracle.installed import installed
from tests.unit.oracle.witnesses import WITNESSES
from tests.unit.oracle.witnesses.agreement import Agreement, agreement


def ask(witness: str, name: str, *inputs: Any, **attributes: Any) -> Agreement:
    """The agreement of op ``name`` with ``witness`` for these inputs, in units of the derived tolerance."""
    installed(witness)
    sample = Sample(tuple(np.asarray(value) for value in inputs), attributes)
    return agreement(OPS[name], WITNESSES[witness], sample)


def forward(name: str, *inputs: Any, **attributes: Any) -> Any:
    """The outputs of op ``name``."""
    return OPS[name].forward(*(np.asarray(value) for value in inputs), **attributes)


def gradients(name: str, cotangent: Any, *inputs: Any, **attributes: Any) -> Sequence[Any]:
    """The gradients of op ``name``."""
    vjp = OPS[name].vjp
    assert vjp is not None
    return vjp(np.asarray(cotangent, dtype=float), *(np.asarray(value) for value in inputs), **attributes)

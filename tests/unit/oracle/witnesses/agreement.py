"""How well the oracle and a witness agree on a sample, in units of the derived tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional, TypeVar

import numpy as np

from ipu_conformance.ops import Inexpressible
from ipu_conformance.oracle.op import Op, OracleError, Outputs, as_tuple
from ipu_conformance.oracle.sample import Sample, round_to
from ipu_conformance.oracle.tolerance import ops
from tests.unit.oracle.witnesses.witness import Witness

T = TypeVar("T")


@dataclass(frozen=True)
class Agreement:
    """The largest error of an op's outputs and of its gradients: below 1 they agree, None was not compared.

    Arrays of another shape are infinitely wrong.
    """

    forward: Optional[float]
    gradient: Optional[float]


def cotangents(outputs: Outputs, seed: int = 0) -> Outputs:
    """Random weights of the outputs, in their form, to differentiate with."""
    generator = np.random.default_rng(seed)
    drawn = tuple(generator.uniform(-2.0, 2.0, np.shape(value)) for value in as_tuple(outputs))
    return drawn if isinstance(outputs, tuple) else drawn[0]


def agreement(op: Op, witness: Witness, sample: Sample, dtype: str = "float64") -> Agreement:
    """How far ``witness``, computing in ``dtype``, is from the oracle; both None where it cannot express the sample."""
    sample = sample.rounded_to(dtype)
    return Agreement(_forward(op, witness, sample, dtype), _gradient(op, witness, sample, dtype))


def _forward(op: Op, witness: Witness, sample: Sample, dtype: str) -> Optional[float]:
    theirs = _ask(witness, witness.outputs, op.name, sample, dtype)
    if theirs is None:
        return None
    ours = as_tuple(op.forward(*sample.inputs, **sample.attributes))
    if len(theirs) != len(ours):
        raise OracleError(f"{witness.name} has {len(theirs)} outputs for op {op.name!r}, the oracle {len(ours)}")
    if [np.shape(value) for value in theirs] != [np.shape(value) for value in ours]:
        return float("inf")
    limits = ops.for_outputs(op, sample, dtype=dtype)
    return max(limit.ratio(his, mine) for limit, his, mine in zip(limits, theirs, ours))


def _gradient(op: Op, witness: Witness, sample: Sample, dtype: str) -> Optional[float]:
    """As ``_forward``; gradients that the oracle leaves out are not asked for, and none counts as zero."""
    if op.vjp is None:
        return None
    outputs = op.forward(*sample.inputs, **sample.attributes)
    held = tuple(round_to(dtype, value) for value in as_tuple(cotangents(outputs)))
    weights = held if isinstance(outputs, tuple) else held[0]
    ours = op.vjp(weights, *sample.inputs, **sample.attributes)
    theirs = _ask(witness, witness.gradients, op.name, sample, held, dtype, [value is not None for value in ours])
    if theirs is None:
        return None
    pairs = [
        (np.zeros(np.shape(mine)) if his is None else his, mine) for his, mine in zip(theirs, ours) if mine is not None
    ]
    if any(np.shape(his) != np.shape(mine) for his, mine in pairs):
        return float("inf")
    limits = [limit for limit in ops.for_gradients(op, sample, weights, dtype=dtype) if limit is not None]
    return max(limit.ratio(his, mine) for limit, (his, mine) in zip(limits, pairs))


def _ask(witness: Witness, call: Callable[..., T], name: str, sample: Sample, *rest: Any) -> Optional[T]:
    """What the witness answers, None if it cannot, or one sentence of where it broke down."""
    try:
        return call(name, sample, *rest)
    except Inexpressible:
        return None
    except Exception as error:  # whatever a framework raises for a call that its row should not have made
        shapes = [np.shape(value) for value in sample.inputs]
        reason = " ".join(str(error).split())[:200]
        raise OracleError(
            f"{witness.name} fails on op {name!r} with shapes {shapes} and {dict(sample.attributes)}, "
            f"which its row must refuse: {type(error).__name__} {reason}"
        ) from error

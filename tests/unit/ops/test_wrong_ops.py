"""The op cases notice every wrong op that follows from a row: see ``ipu_conformance.ops.wrong``.

A run takes one in ten of them, always the same; ``FAULTS=all`` takes all (five minutes of processor time).
"""

from __future__ import annotations

import functools
import os
import zlib
from dataclasses import replace
from typing import Any, Callable, Iterator, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.frameworks import OpCall, OpResult
from ipu_conformance.ops import TABLE, Row
from ipu_conformance.ops.cases import OpCase
from ipu_conformance.ops.row import LIBRARIES
from ipu_conformance.ops.sampling import drawn_calls
from ipu_conformance.ops.variants import edges
from ipu_conformance.ops.wrong import WrongOp, possible, wrong_ops
from ipu_conformance.oracle.op import as_tuple
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Bench, Trial
from tests.unit.ops.device import NumpyDevice

SPARED = {
    "cast: the last element is off with dtype=float64": "no device has float64",
    "cast: gradients are off with dtype=float64": "no device has float64",
    "cast: results have eleven bits": "a cast to float16 has eleven bits",
    "cosine_embedding_loss: epsilon": "two epsilons that are far below the last place",
    "cross_entropy_of_probabilities: normalise": "the probabilities add up to 1 already",
    "embedding: padding_idx": "no framework is asked for an index that has no gradient",
    "embedding: the last element is off with padding_idx": "no framework is asked for an index that has no gradient",
    "embedding: gradients are off with padding_idx": "no framework is asked for an index that has no gradient",
    "interpolate_linear: the last element is off with coordinates=asymmetric": "no framework has these coordinates",
    "interpolate_linear: gradients are off with coordinates=asymmetric": "no framework has these coordinates",
    "floor: a zero is a small number": "the result differs in the sign of zero alone",
    "reciprocal: an infinity has the other sign": "the result differs in the sign of zero alone",
    "round: a zero is a small number": "the result differs in the sign of zero alone",
    "trunc: a zero is a small number": "the result differs in the sign of zero alone",
    "sigmoid: a large number is infinite": "the result is 1 there, or a denormal number that may be flushed",
    "maximum: inputs 0 and 1 are swapped": "the result differs in the sign of zero alone",
    "minimum: inputs 0 and 1 are swapped": "the result differs in the sign of zero alone",
    "p_norm: a zero is a small number": "its third power vanishes beside the others",
}
"""Wrong ops that no case can notice, by how their names begin, with the reason."""

SHARE = 1 if os.environ.get("FAULTS") == "all" else 10


def _same(left: OpResult, right: OpResult) -> bool:
    def bits(result: OpResult) -> List[Tuple[Any, ...]]:
        arrays = [*(value for values in result.outputs for value in values), *result.gradients.values()]
        return [(array.shape, array.dtype, array.tobytes()) for array in map(np.asarray, arrays)]

    return bits(left) == bits(right)


def _trials(row: Row) -> Callable[[str], List[Trial]]:
    """What a right device makes of every call of the op's cases, by type of number; made when it is first asked for.

    The calls are those of the framework that can express the most.
    """

    @functools.lru_cache(maxsize=None)
    def trials(dtype: str) -> List[Trial]:
        names = ("drawn", *edges(row, dtype))
        device: Any = NumpyDevice(row)
        framework = max(_frameworks(row), key=lambda name: len(drawn_calls(row, name, lambda call: True)))
        bench = Bench(framework, device, dtype, [(device.row, edge) for edge in names])
        return [trial for edge in names for trial in bench.trials(device.row, edge)]

    return trials


def _call_of(trial: Trial) -> OpCall:
    """The call that a trial is about: one that shares a call with other edges is its own part of it."""
    samples = tuple(sample.inputs for sample in trial.call.samples)
    return replace(trial.asked, inputs=samples, factors=tuple(as_tuple(each) for each in trial.cotangents))


def _differing(row: Row, wrong: WrongOp, trials: Callable[[str], List[Trial]]) -> Iterator[Tuple[str, Trial]]:
    """The calls that the wrong device gets wrong, with what it makes of them.

    A wrong result has no gradient, since its shape may be another.
    """
    device = NumpyDevice(row, forward=wrong.forward, gradient=wrong.gradient)
    for dtype in wrong.dtypes:
        for trial in trials(dtype):
            right, asked = trial.result, _call_of(trial)
            if not isinstance(right, OpResult):  # a number outside the domain
                continue
            if wrong.forward is not None:
                right, asked = OpResult(right.outputs, {}), replace(asked, factors=(), wanted=())
            result = device._result(asked, dtype)
            if not _same(right, result):
                yield dtype, replace(trial, result=result)


def _is_noticed(row: Row, wrong: WrongOp, dtype: str, trial: Trial, framework: str) -> bool:
    try:
        if wrong.forward is not None:
            judge.forward(row, trial, dtype, framework)
        else:
            judge.gradient(row, trial, dtype, framework)
    except check.CheckFailure:
        return True
    return False


def _frameworks(row: Row) -> List[str]:
    return [name for name, library in LIBRARIES.items() if row.missing(library) is None]


def _is_open(row: Row, wrong: WrongOp, dtype: str, trial: Trial, framework: str) -> bool:
    direction = "forward" if wrong.forward is not None else "gradient"
    case = OpCase(framework, row, dtype, direction, trial.call.edge)
    return bool(case.open or case.gap)


def _has_latitude(row: Row, wrong: WrongOp, dtype: str, trial: Trial, framework: str) -> bool:
    direction = "forward" if wrong.forward is not None else "gradient"
    return bool(OpCase(framework, row, dtype, direction, trial.call.edge).latitude)


def _is_asked(row: Row, wrong: WrongOp) -> bool:
    """Whether any framework has cases in the direction in which the op is wrong."""
    direction = "forward" if wrong.forward is not None else "gradient"
    return any(not OpCase(name, row, "float32", direction, "drawn").gap for name in _frameworks(row))


@pytest.mark.parametrize("name", list(TABLE))
def test_every_wrong_op_is_noticed(name: str) -> None:
    """A wrong op fails a case on every framework, unless all that it gets wrong is left open there."""
    row = TABLE[name]
    chosen = [wrong for wrong in wrong_ops(row) if zlib.crc32(str(wrong).encode()) % SHARE == 0]
    chosen = [wrong for wrong in chosen if not str(wrong).startswith(tuple(SPARED))]
    if not _frameworks(row):
        chosen = []
    trials = _trials(row)
    survivors = []
    for wrong in chosen:
        waiting, asked = set(_frameworks(row)), set()
        for dtype, trial in _differing(row, wrong, trials):
            for framework in sorted(waiting):
                if not _is_open(row, wrong, dtype, trial, framework):
                    if not _has_latitude(row, wrong, dtype, trial, framework):
                        asked.add(framework)
                    if _is_noticed(row, wrong, dtype, trial, framework):
                        waiting.discard(framework)
            if not waiting:
                break
        if waiting & asked or (not asked and _is_asked(row, wrong) and possible(row, wrong)):
            survivors.append(f"{wrong} on {', '.join(sorted(waiting))}")

    assert not survivors, "\n".join(survivors)

"""Checks of whole runs: replicas against each other, and one run record against another."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Sequence, Tuple

from ipu_conformance.check.failure import CheckMisuseError, failure
from ipu_conformance.check.places import Where, named, of_weight
from ipu_conformance.check.values import as_array, close, count, different_bits, identical, largest_difference
from ipu_conformance.nets import Net

_Pair = Tuple[str, Any, Any, Any, Optional[Where]]

FIELDS = ("losses", "outputs", "weights")
"""What two runs are compared by unless a check asks for other fields of the record."""


def replicas_identical(
    weights_by_replica: Optional[Sequence[Mapping[str, Any]]], *, step: Optional[int] = None
) -> None:
    """Every replica holds the same weights, bit by bit."""
    __tracebackhide__ = True
    if weights_by_replica is None or len(weights_by_replica) < 2:
        held = "no record of its replicas" if weights_by_replica is None else f"{len(weights_by_replica)} replica"
        raise CheckMisuseError(f"the run has {held}, and comparing replicas needs at least 2")
    after = "" if step is None else f" after step {step}"
    reference = weights_by_replica[0]
    for replica, weights in enumerate(weights_by_replica[1:], start=1):
        _same_names(weights, reference, f"replica {replica}{after}", "replica 0")
        for name, value in weights.items():
            _same_on_replicas(name, reference[name], value, replica, after)


def runs_identical(*, actual: Any, expected: Any, fields: Sequence[str] = FIELDS, net: Optional[Net] = None) -> None:
    """Two runs left the same bits behind in every one of ``fields``; ``net`` tells the stage of a weight."""
    __tracebackhide__ = True
    for what, got, want, _, where in _pairs(actual, expected, fields, tolerance=None, net=net):
        because = "the two runs are the same by specification"
        identical(actual=got, expected=want, what=what, because=because, where=where)


def runs_equivalent(
    *, actual: Any, expected: Any, tolerance: Any, fields: Sequence[str] = FIELDS, net: Optional[Net] = None
) -> None:
    """Two runs agree in every one of ``fields``, each array within its own tolerance.

    ``tolerance`` has the same fields as a run record, with a derived tolerance in the place of every array; that is
    what ``oracle.tolerance.runs.for_run`` gives. ``net`` tells the stage of a weight. Where the actual run says how it
    was configured, a difference names its step, device iteration, accumulation step and replica.
    """
    __tracebackhide__ = True
    if isinstance(tolerance, (int, float)):
        raise TypeError(f"tolerance is {tolerance!r}; give the RunTolerance of the run, never a bare number")
    for what, got, want, allowed, where in _pairs(actual, expected, fields, tolerance=tolerance, net=net):
        close(actual=got, expected=want, tolerance=allowed, what=what, where=where)


def _same_on_replicas(name: str, reference: Any, value: Any, replica: int, after: str) -> None:
    __tracebackhide__ = True
    want, got = as_array(reference, what=name), as_array(value, what=name)
    between = f"{name} differs between replicas 0 and {replica}{after}"
    because = "(replicas are bit-identical by specification)"
    if got.shape != want.shape:
        raise failure(f"{between}: shape {list(want.shape)} and {list(got.shape)} {because}.")
    if got.dtype != want.dtype:
        raise failure(f"{between}: dtype {want.dtype} and {got.dtype} {because}.")
    different = different_bits(got, want)
    if different.any():
        raise failure(f"{between}: {count(different)}, {largest_difference(got, want)}, allowed 0 {because}.")


def _same_names(actual: Mapping[str, Any], expected: Mapping[str, Any], holder: str, other: str) -> None:
    __tracebackhide__ = True
    missing, extra = sorted(set(expected) - set(actual)), sorted(set(actual) - set(expected))
    if missing:
        raise failure(f"{holder} has no {missing[0]}, which {other} has.")
    if extra:
        raise failure(f"{holder} has {extra[0]}, which {other} does not have.")


def _pairs(actual: Any, expected: Any, fields: Sequence[str], tolerance: Any, net: Optional[Net]) -> Iterator[_Pair]:
    """The name, the actual and expected array, the tolerance and the places of every array in ``fields``."""
    __tracebackhide__ = True
    if not fields:
        raise CheckMisuseError(f"no fields are given, so nothing would be compared; choose among {', '.join(FIELDS)}")
    for field in fields:
        got, want = _field(actual, field, "actual"), _field(expected, field, "expected")
        allowed = None if tolerance is None else _field(tolerance, field, "tolerance's")
        if isinstance(want, Mapping):
            for name, *arrays in _by_name(got, want, allowed, f"the actual run's {field}"):
                yield (of_weight(name, net, getattr(actual, "config", None)), *arrays, None)
            continue
        unit = "update" if field == "gradients" else "step"
        if len(got) != len(want):
            raise failure(f"the actual run has {field} of {len(got)} {unit}s where {len(want)} are expected.")
        for number in range(len(want)):
            place, limit = f"{field} of {unit} {number}", None if allowed is None else allowed[number]
            if isinstance(want[number], Mapping):
                for name, *arrays in _by_name(got[number], want[number], limit, f"the actual run's {place}"):
                    yield (f"{of_weight(name, net, getattr(actual, 'config', None))} in {place}", *arrays, None)
            else:
                yield place, got[number], want[number], limit, named(actual, field, number, want[number])


def _by_name(got: Any, want: Mapping[str, Any], allowed: Any, holder: str) -> Iterator[Tuple[str, Any, Any, Any]]:
    __tracebackhide__ = True
    _same_names(got, want, holder, "the expected run")
    for name in want:
        yield name, got[name], want[name], None if allowed is None else allowed[name]


def _field(run: Any, field: str, role: str) -> Any:
    value = getattr(run, field, None)
    if value is None or len(value) == 0:
        raise CheckMisuseError(f"the {role} run has no {field} to compare; leave {field!r} out of fields")
    return value

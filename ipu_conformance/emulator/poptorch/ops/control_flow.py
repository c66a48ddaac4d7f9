"""for_loop and cond: control flow that the device decides on.

A loop is captured iteration by iteration. Of a condition both branches are captured and the device keeps the results
of one; operations with an effect of their own ask ``branch_taken`` whether they are in that one.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import torch

from ipu_conformance.emulator.poptorch.compile import blocks, capture
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

Body = Callable[..., Any]

_conditions: List[torch.Tensor] = []


def for_loop(count: int, body: Body, inputs: List[torch.Tensor]) -> List[torch.Tensor]:
    """Run ``body`` ``count`` times, each time on what it returned before; inference only.

    The body returns as many tensors as it takes, of the same shapes and types. It works on copies of the inputs.
    """
    refusals.LOOP_COUNT(count=count)
    refusals.NO_LOOP(count=count)
    values = _tensors(inputs, "for_loop", "inputs")
    with blocks.tagged(blocks.REGION, lambda outer: (*outer, "for_loop")):
        # A copy is an operation of the loop, so that a body which does nothing leaves a trace too.
        values = _copies(values)
        for _ in range(count):
            results = _results(body(*values), "for_loop")
            _check_alike(values, results, "for_loop", "the inputs")
            values = results
    return values


def cond(
    condition: torch.Tensor,
    then_body: Body,
    then_inps: List[torch.Tensor],
    else_body: Body,
    else_inps: List[torch.Tensor],
) -> List[torch.Tensor]:
    """The results of one of two bodies, by a tensor of one element; inference only.

    Both bodies return as many tensors, of the same shapes and types. They work on copies of their inputs.
    """
    if not isinstance(condition, torch.Tensor) or condition.numel() != 1:
        raise Error("poptorch.cond needs its condition as a tensor of one element")
    then_values = _tensors(then_inps, "cond", "then_inps")
    else_values = _tensors(else_inps, "cond", "else_inps")
    if not capture.is_capturing():
        return _results(then_body(*then_values) if bool(condition) else else_body(*else_values), "cond")
    with blocks.tagged(blocks.REGION, lambda outer: (*outer, "cond")):
        taken = condition.reshape(()).to(torch.bool)
        first = _branch(taken, then_body, _copies(then_values))
        second = _branch(~taken, else_body, _copies(else_values))
        _check_alike(first, second, "cond", "the other body's results")
        return [torch.where(taken, one, other) for one, other in zip(first, second)]


def branch_taken() -> Optional[torch.Tensor]:
    """Whether the device takes the branch that is being captured; None outside of every branch."""
    return _conditions[-1] if _conditions else None


def _branch(taken: torch.Tensor, body: Body, values: List[torch.Tensor]) -> List[torch.Tensor]:
    outer = branch_taken()
    _conditions.append(taken if outer is None else taken & outer)
    try:
        return _results(body(*values), "cond")
    finally:
        _conditions.pop()


def _copies(values: List[torch.Tensor]) -> List[torch.Tensor]:
    """Tensors that a body may write into; nothing outside of it changes."""
    return [value.clone() for value in values]


def _tensors(values: Any, name: str, what: str) -> List[torch.Tensor]:
    refusals.TENSOR_LIST(name=name, what=what, values=values, kind=torch.Tensor)
    return list(values)


def _results(values: Any, name: str) -> List[torch.Tensor]:
    results = (
        [values] if isinstance(values, torch.Tensor) else list(values) if isinstance(values, (list, tuple)) else []
    )
    if not results or not all(isinstance(value, torch.Tensor) for value in results):
        raise Error(f"A body of poptorch.{name} returned {type(values).__name__}: return a tensor or several")
    return results


def _check_alike(first: List[torch.Tensor], second: List[torch.Tensor], name: str, what: str) -> None:
    refusals.RESULT_COUNT(name=name, what=what, needed=len(first), returned=len(second))
    for index, (one, other) in enumerate(zip(first, second)):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise Error(
                f"Result {index} of a body of poptorch.{name} is {list(other.shape)} of {other.dtype}: like {what}, "
                f"{list(one.shape)} of {one.dtype} is needed"
            )

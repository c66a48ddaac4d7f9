"""Stages of a pipeline that are lists of functions, and stages that run several batches one after the other."""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence

from ipu_conformance.emulator.tensorflow.compile import functions
from ipu_conformance.emulator.tensorflow.run.accumulation import GradientAccumulationReductionMethod as Method


class Stages(NamedTuple):
    """Functions, one for each stage, the IPUs that they are mapped to, and all IPUs that they name."""

    functions: List[Any]
    mapping: Optional[Sequence[Any]]
    ipus: List[int]


def joined(stages: Sequence[Any], mapping: Optional[Sequence[Any]]) -> Stages:
    """Make one function of every list of functions, on the first of its IPUs: all get what the stage before returns."""
    if not isinstance(mapping, (list, tuple)) or len(mapping) != len(stages):
        return Stages(list(stages), mapping, [])
    places, ipus = [], []
    for stage, place in zip(stages, mapping):
        if not isinstance(stage, list):
            places.append(place)
            continue
        if not isinstance(place, list) or len(place) != len(stage):
            raise ValueError(
                f"A stage of {len(stage)} functions is mapped to {place!r}; map it to a list of as many IPUs."
            )
        places.append(place[0])
        ipus += place
    made = [_side_by_side(stage) if isinstance(stage, list) else stage for stage in stages]
    return Stages(made, places, ipus)


def _side_by_side(stage: List[Callable[..., Any]]) -> Callable[..., Any]:
    converted = [functions.converted(function) for function in stage]

    def together(*args: Any, **kwargs: Any) -> List[Any]:
        return [output for function in converted for output in functions.listed(function(*args, **kwargs))]

    return together


def check_serialised(iterations: int, schedule: str, mapping: Sequence[int], method: Method) -> None:
    """Refuse what does not go with several batches in each execution of a stage."""
    if iterations == 1:
        return
    if iterations < 1:
        raise ValueError(f"`batch_serialization_iterations` is {iterations}; use 1 or more.")
    if method is not Method.SUM:
        raise ValueError("batch_serialization_iterations above 1 is only supported with the reduction_method SUM.")
    if schedule != "sequential":
        raise NotImplementedError(
            "batch_serialization_iterations needs the schedule Sequential: choose it, or leave it out."
        )
    if len(set(mapping)) != 1:
        raise NotImplementedError(
            "batch_serialization_iterations needs all stages on a single IPU: change device_mapping."
        )

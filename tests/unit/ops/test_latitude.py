"""Where several results are allowed, each of them passes and others do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterator, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.frameworks import OpResult
from ipu_conformance.ops import TABLE
from ipu_conformance.ops.latitude import LATITUDES, latitudes
from ipu_conformance.ops.row import LIBRARIES
from ipu_conformance.oracle.op import as_tuple
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Bench, Trial
from tests.unit.ops.device import NumpyDevice

FAR_OFF = -12345.678
ANYTHING = ("pow",)
"""Ops whose gradients may be anything at the elements in question."""

Place = Tuple[str, str, str, str]


def _places() -> Iterator[Place]:
    for name, rules in LATITUDES.items():
        for key in rules:
            framework, _, words = key.rpartition(": ")
            direction, _, edge = words.rpartition(" ")
            yield name, framework or next(iter(LIBRARIES)), direction or "forward", edge


PLACES = list(_places())


def _trial(name: str, framework: str, edge: str) -> Trial:
    device: Any = NumpyDevice(TABLE[name])
    (trial,) = Bench(framework, device, "float32", [(device.row, edge)]).trials(device.row, edge)
    return trial


def _judge(place: Place, trial: Trial) -> None:
    name, framework, direction, _ = place
    getattr(judge, direction)(TABLE[name], trial, "float32", framework)


def _allowed(place: Place, trial: Trial) -> List[OpResult]:
    """The results that the rules of a place give, one by one."""
    name, framework, direction, edge = place
    op, samples = TABLE[name].op, trial.call.samples
    results = []
    by_sample: Any
    with np.errstate(all="ignore"):
        for latitude in latitudes(name, framework, direction, edge):
            if direction == "forward":
                by_sample = [latitude.outputs(op, sample, "float32") for sample in samples]
                every = [tuple(map(as_tuple, each)) for each in zip(*by_sample)]
                results += [OpResult(_held(each), trial.result.gradients) for each in every]
            else:
                pairs = zip(trial.cotangents, samples)
                by_sample = [latitude.gradients(op, held, sample, "float32") for held, sample in pairs]
                for each in zip(*by_sample):
                    summed = {
                        at: np.asarray(sum(pulled[at] for pulled in each), np.float32) for at in trial.asked.wanted
                    }
                    results.append(OpResult(trial.result.outputs, summed))
    return results


def _held(outputs: Any) -> Any:
    return tuple(tuple(np.asarray(value).astype(np.float32) for value in values) for values in outputs)


@pytest.mark.parametrize("place", PLACES, ids=" ".join)
def test_every_allowed_result_passes(place):
    """What a rule gives is accepted where it says so."""
    trial = _trial(place[0], place[1], place[3])
    results = _allowed(place, trial)

    assert results or place[0] == "poisson_nll_loss"  # which has latitude in float16 alone
    for result in results:
        _judge(place, replace(trial, result=result))


@pytest.mark.parametrize("place", [place for place in PLACES if place[0] not in ANYTHING], ids=" ".join)
def test_another_result_fails(place):
    """A number far off fails at the very elements at which there is latitude."""
    trial = _trial(place[0], place[1], place[3])
    for other in _allowed(place, trial):
        with pytest.raises(check.CheckFailure):
            _judge(place, replace(trial, result=_off(trial.result, other)))


def _off(right: Any, other: OpResult) -> OpResult:
    def wrong(value: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        differs = ~((value == allowed) | (np.isnan(value) & np.isnan(allowed)))
        where = differs if differs.any() else np.ones(value.shape, bool)
        return np.where(where, np.float32(FAR_OFF), value).astype(value.dtype)

    outputs = tuple(tuple(map(wrong, *pair)) for pair in zip(right.outputs, other.outputs))
    return OpResult(outputs, {at: wrong(value, other.gradients[at]) for at, value in right.gradients.items()})

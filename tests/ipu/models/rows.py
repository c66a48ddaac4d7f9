"""The configurations of the models in each framework's manner, and their runs, which the cases of all files share."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Tuple

import pytest

from ipu_conformance.frameworks import Driver
from ipu_conformance.nets import MODELS, distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.oracle.tolerance.runs import RunTolerance
from ipu_conformance.run import RunConfig, RunRecord, learning_rate, optimizer

RATE, MOMENTUM = 0.0625, 0.5
MANNERS: Mapping[str, Mapping[str, Any]] = {
    "poptorch": {},
    "paddle": {"output_layout": "paddle", "unbiased_statistics": False},
    "tensorflow": {
        "output_layout": "tensorflow",
        "replica_reduction": "sum",
        "optimizer": optimizer("sgd", momentum=MOMENTUM, rate_in_velocity=True),
    },
}
"""What a framework's users see otherwise: the layout of outputs, the variance, and the reduction over replicas."""
ROWS: Mapping[str, Mapping[str, Any]] = {
    "accumulated": {"gradient_accumulation": 3},
    "pipelined": {"gradient_accumulation": 5, "stages": 3},
    "replicated": {"gradient_accumulation": 2, "replicas": 3},
}
"""Three updates each, with these counts."""
FURTHER: Mapping[str, Mapping[str, Any]] = {
    "sharded": {"gradient_accumulation": 3, "stages": 2, "schedule": "sequential"},
    "recomputed": {"gradient_accumulation": 5, "stages": 3, "recompute": True},
    "interleaved": {"gradient_accumulation": 6, "stages": 3, "schedule": "interleaved"},
    "half": {"gradient_accumulation": 3, "dtype": "float16"},
}
"""What only the dumps of models are asked about."""
PIPELINED = {"tensorflow": 6}
"""The accumulation of a pipeline of three stages where 5 is not allowed: TensorFlow takes two for each stage."""
LACKING: Mapping[Tuple[str, str], Mapping[str, str]] = {
    **{("interleaved", model): dict.fromkeys(("poptorch", "paddle"), "the interleaved schedule") for model in MODELS},
    **{("half", model): {"paddle": "half precision in this driver"} for model in MODELS},
    ("half", "resnet"): {
        "tensorflow": "gradients of a batch norm in half precision",
        "paddle": "half precision in this driver",
    },
}
"""What frameworks have no words for, or their dumps none that are read, by row and model."""


def _marks(row: str, model: str) -> List[pytest.MarkDecorator]:
    """The IPUs that a row needs, and the frameworks that lack something for it."""
    lacking = [pytest.mark.unable(*each) for each in LACKING.get((row, model), {}).items()]
    return [pytest.mark.ipus(1 if row in ("accumulated", "half") else 4), *lacking]


def each_model_but(lacking: Mapping[str, Mapping[str, str]]) -> Any:
    """Every model; what frameworks lack for some, by model."""
    marked = {model: [pytest.mark.unable(*each) for each in lacking.get(model, {}).items()] for model in MODELS}
    return pytest.mark.parametrize("model", [pytest.param(model, marks=marks) for model, marks in marked.items()])


each_model = each_model_but({})
each_row = pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.ipus(4 if row != "accumulated" else 1)) for row in ROWS]
)
each_dumped_row = pytest.mark.parametrize(
    ("row", "model"),
    [
        pytest.param(row, model, marks=_marks(row, model), id=f"{row}-{model}")
        for row in (*ROWS, *FURTHER)
        for model in MODELS
    ],
)
"""Rows and models together: the ids are those of two parameters."""


def name_of(framework: Driver) -> str:
    """The word for a driver's framework."""
    return framework.__name__.rpartition(".")[2]  # type: ignore[attr-defined]


def config_for(framework: Driver, model: str, row: str) -> RunConfig:
    """The configuration of a row in a framework's manner."""
    counts, name = dict({**ROWS, **FURTHER}[row]), name_of(framework)
    stages = counts.pop("stages", 1)
    if stages > 1 and counts.get("schedule") != "sequential":
        counts["gradient_accumulation"] = PIPELINED.get(name, counts["gradient_accumulation"])
    plain = RunConfig(
        steps=3,
        learning_rate=learning_rate(base=RATE),
        optimizer=optimizer("sgd", momentum=MOMENTUM),
        stages=MODELS[model]().cut(stages) if stages > 1 else (),
    )
    return replace(plain, **counts, **MANNERS[name])


def inferring(framework: Driver) -> RunConfig:
    """The configuration of an inference in a framework's manner."""
    return RunConfig(device_iterations=3, steps=2, training=False, **MANNERS[name_of(framework)])


RECORDS: Dict[Tuple[str, str, RunConfig], RunRecord] = {}
"""What has run in this session."""


def ran(framework: Driver, model: str, config: RunConfig) -> RunRecord:
    """What a model's training or inference on the target leaves behind; what the API has no words for is a skip."""
    key = (name_of(framework), model, config)
    if key not in RECORDS:
        net = MODELS[model]()
        reason = framework.supports(net, config)
        if reason is not None:
            pytest.skip(reason)
        run = framework.train if config.training else framework.infer
        RECORDS[key] = run(net, config, distinct_micro_batches(net, config))
    return RECORDS[key]


@functools.lru_cache(maxsize=None)
def inferred(model: str, config: RunConfig) -> Any:
    """The oracle's outputs of each step, and their tolerances."""
    net = MODELS[model]()
    return run_tolerance.for_inference(net, distinct_micro_batches(net, config), config)


@functools.lru_cache(maxsize=None)
def tolerance(model: str, config: RunConfig) -> RunTolerance:
    """The tolerance of a training; a cut changes no rounding that it would notice."""
    net = MODELS[model]()
    return run_tolerance.for_run(
        net, distinct_micro_batches(net, config), replace(config, stages=(), schedule="grouped", recompute=False)
    )

"""The configurations of the models in each framework's manner, and their runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Mapping, Tuple

import pytest

from ipu_conformance.nets import MODELS
from ipu_conformance.run import RunConfig, RunRecord, learning_rate, optimizer

from ..training.frame import Runs

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


def config_for(framework: str, model: str, row: str) -> RunConfig:
    """The configuration of a row in a framework's manner."""
    counts = dict({**ROWS, **FURTHER}[row])
    stages = counts.pop("stages", 1)
    if stages > 1 and counts.get("schedule") != "sequential":
        counts["gradient_accumulation"] = PIPELINED.get(framework, counts["gradient_accumulation"])
    plain = RunConfig(
        steps=3,
        learning_rate=learning_rate(base=RATE),
        optimizer=optimizer("sgd", momentum=MOMENTUM),
        stages=MODELS[model]().cut(stages) if stages > 1 else (),
    )
    return replace(plain, **counts, **MANNERS[framework])


def inferring(framework: str) -> RunConfig:
    """The configuration of an inference in a framework's manner."""
    return RunConfig(device_iterations=3, steps=2, training=False, **MANNERS[framework])


def ran(runs: Runs, model: str, config: RunConfig) -> RunRecord:
    """What a model's training or inference on the target leaves behind; what the API has no words for is a skip."""
    net = MODELS[model]()
    reason = runs.driver.supports(net, config)
    if reason is not None:
        pytest.skip(reason)
    return runs.train(net, config) if config.training else runs.infer(net, config)

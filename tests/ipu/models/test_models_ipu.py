"""Models of the kinds that people train compute, train and converge on a device as the oracle says."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Mapping

import pytest

from ipu_conformance import check
from ipu_conformance.frameworks import Driver
from ipu_conformance.nets import MODELS, distinct_micro_batches
from ipu_conformance.oracle.convergence import baseline
from ipu_conformance.oracle.convergence.band import Verdict, judge
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.oracle.training import train as oracle
from ipu_conformance.run import RunConfig, learning_rate, optimizer
from ipu_conformance.workloads.oracle_models import WORKLOADS

SEED = 100
"""A seed that none of the baselines' runs has: theirs are 0 to 19."""

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
PIPELINED = {"tensorflow": 6}
"""The accumulation of a pipeline of three stages where 5 is not allowed: TensorFlow takes two for each stage."""

each_model = pytest.mark.parametrize("model", MODELS)


def name_of(framework: Driver) -> str:
    """The word for a driver's framework."""
    return framework.__name__.rpartition(".")[2]  # type: ignore[attr-defined]


def config_for(framework: Driver, model: str, row: str) -> RunConfig:
    """The configuration of a row in a framework's manner."""
    counts, name = dict(ROWS[row]), name_of(framework)
    stages = counts.pop("stages", 1)
    if stages > 1:
        counts["gradient_accumulation"] = PIPELINED.get(name, counts["gradient_accumulation"])
    plain = RunConfig(
        steps=3,
        learning_rate=learning_rate(base=RATE),
        optimizer=optimizer("sgd", momentum=MOMENTUM),
        stages=MODELS[model]().cut(stages) if stages > 1 else (),
    )
    return replace(plain, **counts, **MANNERS[name])


def supported(framework: Driver, model: str, config: RunConfig) -> None:
    """Skip a case that the vendor's API has no words for."""
    reason = framework.supports(MODELS[model](), config)
    if reason is not None:
        pytest.skip(reason)


@functools.lru_cache(maxsize=None)
def inferred(model: str, config: RunConfig) -> Any:
    """The oracle's outputs of each step, and their tolerances."""
    net = MODELS[model]()
    return run_tolerance.for_inference(net, distinct_micro_batches(net, config), config)


@each_model
def test_a_model_infers_as_specified(framework: Driver, model: str) -> None:
    """The outputs of a model that is not trained are the oracle's; batch norm uses its running statistics."""
    config = RunConfig(device_iterations=3, steps=2, training=False, **MANNERS[name_of(framework)])
    supported(framework, model, config)
    net = MODELS[model]()
    outputs = framework.infer(net, config, distinct_micro_batches(net, config)).outputs or ()

    expected, tolerance = inferred(model, config)
    check.equal(actual=len(outputs), expected=len(expected), what="the number of steps that give outputs")
    for step, value in expected.items():
        what = f"the outputs of step {step}"
        check.close(actual=outputs[step], expected=value, tolerance=tolerance[step], what=what)


@each_model
@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.ipus(4 if row != "accumulated" else 1)) for row in ROWS]
)
def test_a_model_trains_as_specified(framework: Driver, model: str, row: str) -> None:
    """Losses, outputs, weights and running statistics of three updates are the oracle's, however IPUs share them."""
    net, config = MODELS[model](), config_for(framework, model, row)
    supported(framework, model, config)
    data = distinct_micro_batches(net, config)
    run = framework.train(net, config, data)

    check.runs_equivalent(
        actual=run,
        expected=oracle.train(net, data, config),
        # A cut changes no rounding that a tolerance would notice.
        tolerance=run_tolerance.for_run(net, data, replace(config, stages=())),
        fields=["losses", "outputs", "weights", *(["statistics"] if net.statistics else [])],
    )


@each_model
def test_a_model_converges_like_its_baseline(
    framework: Driver, model: str, converges: Callable[[Verdict], None]
) -> None:
    """The mean training loss of each epoch is neither lower nor higher than the spread of the oracle's runs allows."""
    workload = WORKLOADS[f"oracle-{model.replace('_', '-')}"]
    config = workload.config(**MANNERS[name_of(framework)])
    recorded = baseline.load(Path(workload.name))
    losses = workload.losses(lambda net, data, config: framework.train(net, config, data), config, SEED)

    converges(judge(recorded.band(), [losses], metric=f"the {model}'s {recorded.metric}"))

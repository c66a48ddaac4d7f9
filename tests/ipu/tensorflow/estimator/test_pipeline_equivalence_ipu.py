"""A net with kinks and curves that a pipelined estimator trains gives the oracle's weights and losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, NamedTuple

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.oracle.tolerance.runs import ArrayTolerance
from ipu_conformance.run import RunConfig, learning_rate, optimizer

from ...training import configured, cut, data_of, expected, inferred, tolerance
from ..training.config import FACTORS, counted
from .pipelines import Chain, Programs, Trainings

pytestmark = pytest.mark.requires("tensorflow_estimator")

NET = nets.mlp()
ADAM = {
    "optimizer": optimizer("adam", beta1=0.5, beta2=0.75, epsilon=1e-7, epsilon_at="uncorrected"),
    "learning_rate": learning_rate(base=0.0078125),
}
"""The Adam of TensorFlow 1; the decays, and one less them, are exact in float32."""


def piped(schedule: str, stages: int, iterations: int, accumulation: int, replicas: int, **changes: Any) -> RunConfig:
    """A run of the net in stages, with the mean over replicas and the momentum of TensorFlow 1."""
    rules = {"optimizer": optimizer("sgd", momentum=0.5), "replica_reduction": "mean", **changes}
    return cut("mlp", counted(iterations, accumulation, replicas, **rules), stages, schedule)


TRAINED = {
    "grouped-2": piped("grouped", 2, 3, 4, 1),
    "interleaved-4": piped("interleaved", 4, 3, 8, 1, accumulation_reduction="mean"),
    "sequential-3": piped("sequential", 3, 2, 5, 1),
    "grouped-2-R2": piped("grouped", 2, 3, 4, 2),
    "adam-R2": piped("sequential", 2, 4, 3, 2, **ADAM),
}


def function_of(programs: Programs, layer: Any, start: Mapping[str, np.ndarray]) -> Callable[[Any], Any]:
    """One layer of the net."""
    tf, v1 = programs.tf, programs.v1
    if layer.op != "linear":
        return {"tanh": tf.tanh, "relu": tf.nn.relu}[layer.op]

    def linear(x: Any) -> Any:
        weight, bias = (
            v1.get_variable(
                name, start[name].shape, tf.float32, v1.constant_initializer(start[name]), use_resource=True
            )
            for name in layer.weights
        )
        return tf.matmul(x, weight, transpose_b=True) + bias

    return linear


def stages_of(programs: Programs, config: RunConfig, mode: str) -> List[Callable[..., Any]]:
    """The functions of the stages; labels pass them all, and the last returns the loss, or the logits."""
    tf, start = programs.tf, NET.initial_weights(config.seed)

    def stage(number: int) -> Callable[..., Any]:
        own = [layer for layer, place in zip(NET.layers, config.stages) if place == number]

        def function(x: Any, labels: Any) -> Any:
            for layer in own:
                x = function_of(programs, layer, start)(x)
            if number < config.number_of_stages - 1:
                return x, labels
            if mode == "infer":
                return x
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
            return tf.reduce_mean(each)

        return function

    return [stage(number) for number in range(config.number_of_stages)]


def optimizer_of(programs: Programs, config: RunConfig) -> Any:
    """The optimizer of TensorFlow 1 with the rules of a configuration."""
    train, rule, rate = programs.v1.train, config.optimizer, config.learning_rate["base"]
    plain = (
        train.AdamOptimizer(rate, rule["beta1"], rule["beta2"], rule["epsilon"])
        if rule.name == "adam"
        else train.MomentumOptimizer(rate, rule["momentum"])
    )
    return programs.ipu.optimizers.CrossReplicaOptimizer(plain) if config.replicas > 1 else plain


def chain_of(config: RunConfig) -> Chain:
    """The numbers of a configuration as an estimator takes them."""
    return Chain(config.number_of_stages, config.gradient_accumulation, config.device_iterations, config.replicas)


def model_of(programs: Programs, config: RunConfig) -> Callable[..., Any]:
    """The net as a model function."""
    ops = programs.ipu.pipelining_ops

    def model_fn(mode: str, params: Any) -> Any:
        return programs.spec(
            mode,
            computational_stages=stages_of(programs, config, mode),
            gradient_accumulation_count=config.gradient_accumulation,
            optimizer_function=lambda loss: ops.OptimizerFunctionOutput(optimizer_of(programs, config), loss),
            pipeline_schedule=ops.PipelineSchedule[config.schedule.capitalize()],
            reduction_method=config.accumulation_reduction,
        )

    return model_fn


class Found(NamedTuple):
    """What an estimator has trained."""

    weights: Dict[str, np.ndarray]
    loss: float


def fed(programs: Programs, config: RunConfig) -> Callable[[], Any]:
    """The data of a run."""
    data = data_of("mlp", config)
    rows = np.float32(data.inputs[0]), np.int32(data.labels[0])
    return programs.input_fn(rows, config.micro_batch)


def run(programs: Programs, trainings: Trainings, config: RunConfig) -> Found:
    """What training the net with an estimator in one loop has left, once for all cases."""
    found: Found = trainings.shared(programs, config, lambda own: trained(own, config))
    return found


def trained(programs: Programs, config: RunConfig) -> Found:
    """Train the net with an estimator in one loop."""
    chain = chain_of(config)
    estimator = programs.estimator(chain, model_fn=model_of(programs, config))
    watching = programs.watching()
    estimator.train(fed(programs, config), steps=chain.iterations, hooks=[watching])
    weights = {weight.name: np.asarray(estimator.get_variable_value(weight.name), np.float64) for weight in NET.weights}
    return Found(weights, watching.losses[-1])


@pytest.mark.parametrize("config", configured(TRAINED))
def test_a_net_trains_as_specified(programs: Programs, trainings: Trainings, config: RunConfig) -> None:
    """The weights after a loop are the oracle's, and the loss is the mean of the oracle's losses."""
    got = run(programs, trainings, config)

    allowed = tolerance("mlp", config)
    check.runs_equivalent(actual=got, expected=expected("mlp", config), tolerance=allowed, fields=["weights"])
    losses = np.ravel(expected("mlp", config).losses[0])
    rounding = (losses.size + 2) * np.finfo(np.float32).eps * np.abs(losses).max()
    total = np.mean(allowed.losses[0].allowed) + rounding
    check.close(
        actual=np.float64(got.loss),
        expected=losses.mean(),
        tolerance=ArrayTolerance(total, float(total), "the mean of the losses' tolerances and a rounding for each"),
        what="the loss of the loop",
    )


@pytest.mark.parametrize("schedule", ["interleaved", "sequential"])
@pytest.mark.ipus(2)
def test_a_schedule_changes_no_bit(programs: Programs, trainings: Trainings, schedule: str) -> None:
    """Every schedule leaves the bits of the grouped one behind."""
    config = TRAINED["grouped-2"]
    got, grouped = (run(programs, trainings, replace(config, schedule=each)) for each in (schedule, config.schedule))

    assert got.loss == grouped.loss
    for name, value in grouped.weights.items():
        check.identical(actual=got.weights[name], expected=value, what=name)


@pytest.mark.parametrize(
    "config",
    configured({"R1": cut("mlp", replace(FACTORS, device_iterations=4, gradient_accumulation=1, training=False), 2),
                "R2": cut("mlp", counted(4, 1, 2, training=False), 2)}),
)  # fmt: skip
def test_a_net_predicts_as_specified(programs: Programs, config: RunConfig) -> None:
    """The predictions of a pipeline are the oracle's outputs, one for each sample in the order of the data."""
    micro_batches = config.device_iterations * config.gradient_accumulation
    piped_config = replace(config, training=True, gradient_accumulation=2, device_iterations=micro_batches // 2)
    number = micro_batches * config.replicas * config.micro_batch
    estimator = programs.estimator(chain_of(piped_config), model_fn=model_of(programs, piped_config))
    got = np.stack(list(estimator.predict(fed(programs, config), num_predictions=number)))

    (want,), (allowed,) = (list(each.values()) for each in inferred("mlp", config))
    check.close(actual=got.reshape(want.shape), expected=want, tolerance=allowed, what="the predictions")

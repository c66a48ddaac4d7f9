"""The meaning of a training run, executable: what a device must compute for a net, its data and a configuration.

Everything is float64 and deterministic. ``rounding(array, site)`` is applied to the result of every operation, where
sites are "forward/<layer>", "backward/<layer>", "statistics/<name>", "reduce/<weight>" and "update/<weight>". By
default it changes nothing.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.nets import Data, Net, generator
from ipu_conformance.oracle.training import optimizers, schedules
from ipu_conformance.oracle.training.execution import LOSS, Masks, MicroBatch, Place, Rounding, Stage, slots, stages_of
from ipu_conformance.oracle.training.outputs import returned
from ipu_conformance.run import Array, RunConfig, RunError, RunRecord, Weights


def dropout_masks(seed: int) -> Masks:
    """Independent masks for every layer, step, device iteration, turn, replica and seed."""

    def mask(layer: str, place: Place, shape: Tuple[int, ...], rate: float) -> Array:
        return (generator(seed, "dropout", layer, *place).random(shape) >= rate).astype(np.float64)

    return mask


def train(
    net: Net,
    data: Data,
    config: RunConfig,
    *,
    weights: Optional[Weights] = None,
    statistics: Optional[Weights] = None,
    masks: Optional[Masks] = None,
    rounding: Optional[Rounding] = None,
) -> RunRecord:
    """The record of training ``net`` on ``data``, from its initial weights unless others are given."""
    if not config.training:
        raise RunError("train got a configuration for inference: set training=True or call infer.")
    return _run(net, data, config, weights, statistics, masks, rounding)


def infer(
    net: Net,
    data: Data,
    config: RunConfig,
    *,
    weights: Optional[Weights] = None,
    statistics: Optional[Weights] = None,
    rounding: Optional[Rounding] = None,
) -> RunRecord:
    """The record of inference with ``net`` on ``data``: running statistics are used, nothing is dropped or updated."""
    if config.training:
        raise RunError("infer got a configuration for training: set training=False or call train.")
    return _run(net, data, config, weights, statistics, None, rounding)


def _run(
    net: Net,
    data: Data,
    config: RunConfig,
    weights: Optional[Weights],
    statistics: Optional[Weights],
    masks: Optional[Masks],
    rounding: Optional[Rounding],
) -> RunRecord:
    _check(net, data, config)
    stages = stages_of(net, config.stages)
    rounded: Rounding = rounding or (lambda x, site: x)
    masks = masks or dropout_masks(config.seed)
    weights = dict(weights or net.initial_weights(config.seed))
    by_replica: List[Weights] = [dict(statistics or net.initial_statistics())] * config.replicas
    states = {name: optimizers.begin(config.optimizer, weight) for name, weight in weights.items()}
    losses, outputs, by_step, seen = [], [], [], {}
    gradients: List[Weights] = []
    for step in range(config.steps):
        values: Dict[Place, MicroBatch] = {}
        if config.training and config.update == "micro_batch":
            places = _groups(step, config)[0]
            values = {place: _micro_batch(data, place, config, masks, rounded) for place in places}
            weights, states, moved = _stream(
                values, stages, weights, states, by_replica, len(gradients), config, rounded
            )
            gradients.extend(moved)
        for places in [] if values else _groups(step, config):
            for replica in range(config.replicas):
                mine = [place for place in places if place.replica == replica]
                batches = [_micro_batch(data, place, config, masks, rounded) for place in mine]
                by_replica[replica] = _execute(batches, stages, weights, by_replica[replica], config)
                values.update(zip(mine, batches))
            if config.training:
                groups = [
                    [values[place].gradients for place in places if place.replica == replica]
                    for replica in range(config.replicas)
                ]
                gradients.append(_reduced(groups, config, rounded))
                weights, states = _updated(weights, gradients[-1], states, step, len(gradients), config, rounded)
        losses.append(returned(_gathered(values, LOSS, config), config))
        outputs.append(returned(_gathered(values, net.layers[-1].name, config), config))
        by_step.append(weights)
        seen.update({(layer, *place): mask for place, batch in values.items() for layer, mask in batch.masks.items()})
    return RunRecord(
        config,
        net.name,
        tuple(losses),
        tuple(outputs),
        weights,
        (weights,) * config.replicas,
        tuple(by_step),
        optimizer_state={
            part: {name: state[part] for name, state in states.items()}
            for part in optimizers.STATES[config.optimizer.name]
        },
        updates=len(gradients),
        statistics=by_replica[0],
        statistics_by_replica=tuple(by_replica),
        masks=seen,
        gradients=tuple(gradients),
    )


def _check(net: Net, data: Data, config: RunConfig) -> None:
    expected = (config.steps, config.combined_batch)
    if data.inputs.shape != expected + net.input_shape or data.labels.shape[:2] != expected:
        raise RunError(
            f"the data has inputs of shape {data.inputs.shape} and labels of shape {data.labels.shape}: "
            f"{net.name} with {config} takes {expected + net.input_shape} and {expected}."
        )
    if config.stages and len(config.stages) != len(net.layers):
        raise RunError(f"stages are given for {len(config.stages)} layers: {net.name} has {len(net.layers)}.")
    unknown = sorted({name for name, _ in config.decays} - {weight.name for weight in net.weights})
    if unknown:
        raise RunError(f"decays name {unknown[0]!r}: {net.name} has no such weight.")
    placed = {(name, stage) for layer, stage in zip(net.layers, config.stages) for name in layer.weights}
    if config.update == "micro_batch" and len(placed) > len({name for name, _ in placed}):
        raise RunError(f"{net.name} has a weight in two stages, which an update inside a pipeline cannot serve.")


def _groups(step: int, config: RunConfig) -> List[List[Place]]:
    """The micro-batches between two updates, for all updates of a step, in the order of the feed.

    Inference has no updates: all micro-batches of a step are one group.
    """
    places = [
        Place(step, iteration, accumulation, replica)
        for iteration in range(config.device_iterations)
        for accumulation in range(config.gradient_accumulation)
        for replica in range(config.replicas)
    ]
    updates = config.device_iterations if config.training and config.update == "device_iteration" else 1
    size = len(places) // updates
    return [places[start : start + size] for start in range(0, len(places), size)]


def _micro_batch(data: Data, place: Place, config: RunConfig, masks: Masks, rounding: Rounding) -> MicroBatch:
    """The micro-batch of a place, cut from the feed: [device iteration, accumulation, replica, micro]."""
    turn = place.iteration * config.gradient_accumulation + place.accumulation
    first = (turn * config.replicas + place.replica) * config.micro_batch
    samples = slice(first, first + config.micro_batch)
    return MicroBatch(data.inputs[place.step, samples], data.labels[place.step, samples], place, masks, rounding)


def _execute(
    batches: Sequence[MicroBatch], stages: Sequence[Stage], weights: Weights, statistics: Weights, config: RunConfig
) -> Weights:
    """Send micro-batches through the stages by the schedule, and return the running statistics after them."""
    for kind, stage, number in slots(config.schedule, len(stages), len(batches), config.training):
        if kind == "forward":
            statistics = batches[number].forward(stages, stage, weights, statistics, config)
        else:
            batches[number].backward(stages, stage, weights, statistics, config)
    return statistics


def _stream(
    values: Dict[Place, MicroBatch],
    stages: Sequence[Stage],
    weights: Weights,
    states: Dict[str, Dict[str, Array]],
    statistics: List[Weights],
    before: int,
    config: RunConfig,
    rounding: Rounding,
) -> Tuple[Dict[str, Array], Dict[str, Dict[str, Array]], List[Weights]]:
    """The weights, states and gradients when every stage updates after each backward; ``statistics`` are moved.

    In a cycle each stage goes forward with one micro-batch, then backward with another, then updates its weights.
    ``before`` is the number of updates of earlier steps.
    """
    weights, states = dict(weights), dict(states)
    names = [sorted({name for layer in stage for name in layer.weights}) for stage in stages]
    last, count = len(stages) - 1, len(values) // config.replicas
    turns = [[batch for place, batch in sorted(values.items()) if place.iteration == turn] for turn in range(count)]
    step = next(iter(values)).step
    gradients: List[Dict[str, Array]] = [{} for _ in turns]
    for cycle in range(count + 2 * last):
        for stage in range(last + 1):
            if 0 <= cycle - stage < count:
                for replica, batch in enumerate(turns[cycle - stage]):
                    statistics[replica] = batch.forward(stages, stage, weights, statistics[replica], config)
        for stage in range(last + 1):
            turn = cycle - 2 * last + stage
            if not 0 <= turn < count:
                continue
            for replica, batch in enumerate(turns[turn]):
                batch.backward(stages, stage, weights, statistics[replica], config)
            by_replica = [[{name: batch.gradients[name] for name in names[stage]}] for batch in turns[turn]]
            gradients[turn].update(_reduced(by_replica, config, rounding))
        for stage in range(last + 1):
            turn = cycle - 2 * last + stage
            if 0 <= turn < count:
                held = {name: weights[name] for name in names[stage]}
                moved = _updated(held, gradients[turn], states, step, before + turn + 1, config, rounding)
                weights.update(moved[0])
                states.update(moved[1])
    return weights, states, list(gradients)


def _reduced(groups: Sequence[Sequence[Weights]], config: RunConfig, rounding: Rounding) -> Dict[str, Array]:
    """One gradient per weight from those of all micro-batches of all replicas, unscaled and clipped."""
    result: Dict[str, Array] = {}
    for name in groups[0][0]:
        total: Any = 0.0
        for group in groups:
            total = rounding(
                total
                + _accumulated(
                    [gradients[name] for gradients in group], config.accumulation_reduction, f"reduce/{name}", rounding
                ),
                f"reduce/{name}",
            )
        scale = config.loss_scale * (config.replicas if config.replica_reduction == "mean" else 1)
        result[name] = rounding(total / scale, f"reduce/{name}")
    if config.clip_norm is None:
        return result
    return optimizers.clipped(result, config.clip_norm, lambda x: rounding(x, "reduce/clip"))


def _accumulated(gradients: Sequence[Array], reduction: str, site: str, rounding: Rounding) -> Array:
    """The gradients of one replica's micro-batches in one; the running mean divides at every turn, the mean at last."""
    total = np.zeros_like(gradients[0])
    for count, gradient in enumerate(gradients):
        if reduction == "running_mean":
            total = rounding(total * (count / (count + 1)) + gradient / (count + 1), site)
        else:
            total = rounding(total + gradient, site)
    return rounding(total / len(gradients), site) if reduction == "mean" else total


def _updated(
    weights: Weights,
    gradients: Weights,
    states: Dict[str, Dict[str, Array]],
    step: int,
    update: int,
    config: RunConfig,
    rounding: Rounding,
) -> Tuple[Dict[str, Array], Dict[str, Dict[str, Array]]]:
    """The weights and the optimizer's states after an update; all replicas make the same one."""
    rate = schedules.rate(config.learning_rate, step if config.rate_changes == "run" else update - 1)
    rules = {name: optimizers.decaying(config.optimizer, decay) for name, decay in config.decays}
    moved = {
        name: optimizers.step(
            rules.get(name, config.optimizer),
            weight,
            gradients[name],
            states[name],
            rate,
            update,
            lambda x, name=name: rounding(x, f"update/{name}"),  # type: ignore[misc]
        )
        for name, weight in weights.items()
    }
    return {name: pair[0] for name, pair in moved.items()}, {name: pair[1] for name, pair in moved.items()}


def _gathered(values: Dict[Place, MicroBatch], name: str, config: RunConfig) -> Array:
    """The value of a layer for every micro-batch of a step, as [iteration, accumulation, replica, ...]."""
    stacked = np.stack([values[place].value(name) for place in sorted(values)])
    return stacked.reshape(
        (config.device_iterations, config.gradient_accumulation, config.replicas, *stacked.shape[1:])
    )

"""A machine for the engine that trains the suite's nets without a framework.

Its kernels and its optimizers are the oracle's, rounded to float32 after each op, so a run tests neither: it tests the
core's part of a device, which deals out micro-batches, schedules stages, carries boundaries, stashes, accumulates,
reduces and updates.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Tuple

import numpy as np

from ipu_conformance.emulator.core import streams
from ipu_conformance.emulator.core.engine import Engine
from ipu_conformance.emulator.core.plan import Plan, Slot
from ipu_conformance.emulator.core.plan import plan as make_plan
from ipu_conformance.emulator.core.trace import Recorder
from ipu_conformance.nets import INPUT, Data, Net
from ipu_conformance.oracle.training import optimizers, schedules
from ipu_conformance.oracle.training.execution import LABELS, LOSS, Stage, stages_of
from ipu_conformance.oracle.training.layers import Call, call_of, statistics_after
from ipu_conformance.run import Array, RunConfig, RunError, RunRecord, Weights

Values = Dict[str, Array]


def _device(value: Any) -> Array:
    return np.asarray(value, dtype=np.float32)


class NetMachine:
    """Float32 weights, gradients and optimizer state of every replica of a net."""

    def __init__(self, net: Net, config: RunConfig) -> None:
        self.config = config
        self.stages: Tuple[Stage, ...] = stages_of(net, config.stages)
        start = {name: _device(value) for name, value in net.initial_weights(config.seed).items()}
        self.by_replica: List[Values] = [dict(start) for _ in range(config.replicas)]
        self.statistics = [
            {name: _device(value) for name, value in net.initial_statistics().items()} for _ in self.by_replica
        ]
        self.states = [
            {name: optimizers.begin(config.optimizer, weight) for name, weight in start.items()}
            for _ in self.by_replica
        ]
        self.accumulated: List[Values] = [{} for _ in self.by_replica]
        self.updates = [dict.fromkeys(start, 0) for _ in self.by_replica]
        self.step = 0
        self.labels: List[List[Array]] = []
        """By replica and micro-batch: they come from the host, straight to the stage that needs them."""
        self._owned = _owned(self.stages)
        self._wanted = _wanted(self.stages)
        mean = config.accumulation_reduction == "mean"
        self.divisor = float(
            (config.gradient_accumulation if mean else 1)
            * (config.replicas if config.replica_reduction == "mean" else 1)
        )

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Values, keep: bool) -> Tuple[Values, Any]:
        """One stage; the running statistics of batch norm move on."""
        calls, values = self._through(replica, stage, micro_batch, boundary)
        statistics = self.statistics[replica]
        for layer in self.stages[stage]:
            moved = statistics_after(layer, values[layer.inputs[0]], statistics, self.config.unbiased_statistics)
            statistics.update((name, _device(value)) for name, value in moved.items())
        return {name: value for name, value in values.items() if name in self._wanted[stage]}, calls if keep else None

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Values) -> List[Call]:
        """The same calls again, without counting the micro-batch twice in the statistics."""
        return self._through(replica, stage, micro_batch, boundary)[0]

    def _through(self, replica: int, stage: int, micro_batch: int, boundary: Values) -> Tuple[List[Call], Values]:
        calls: List[Call] = []
        values = {**boundary, LABELS: self.labels[replica][micro_batch]}
        weights, statistics = self.by_replica[replica], self.statistics[replica]
        for layer in self.stages[stage]:
            calls.append(call_of(layer, values, weights, statistics, None, True))
            values[layer.name] = _device(calls[-1].forward())
        return calls, values

    def backward(self, replica: int, stage: int, micro_batch: int, stash: List[Call], gradient: Any) -> Values:
        """The stage's gradients join what was accumulated; those of its inputs go on to the stage before."""
        cotangents: Values = dict(gradient or {})
        if stage == len(self.stages) - 1:
            cotangents[LOSS] = _device(np.array(self.config.loss_scale))
        mine: Values = {}
        for call in reversed(stash):
            if call.layer not in cotangents:
                continue
            for name, value in call.backward(cotangents.pop(call.layer)).items():
                totals = mine if name in self.by_replica[replica] else cotangents
                totals[name] = _device(totals[name] + value) if name in totals else _device(value)
        accumulated = self.accumulated[replica]
        for name, value in mine.items():
            accumulated[name] = accumulated[name] + value if name in accumulated else value
        return {name: value for name, value in cotangents.items() if name != INPUT}

    def gradients(self, replica: int, stage: int) -> Values:
        """What was accumulated for the weights that the stage owns."""
        return {name: self.accumulated[replica][name] for name in self._owned[stage]}

    def reduce(self, stage: int, gradients: List[Values]) -> List[Values]:
        """The sum over the replicas, over the divisor and the loss scale."""
        scale = np.float32(self.divisor * self.config.loss_scale)
        total: Values = {name: _device(sum(own[name] for own in gradients) / scale) for name in gradients[0]}
        return [total] * len(gradients)

    def update(self, replica: int, stage: int, gradients: Values) -> None:
        """One step of the optimizer on the weights that the stage owns."""
        weights, states, config = self.by_replica[replica], self.states[replica], self.config
        for name, gradient in gradients.items():
            self.updates[replica][name] += 1
            rate = schedules.rate(config.learning_rate, self.step)
            count = self.updates[replica][name]
            weight, states[name] = optimizers.step(
                config.optimizer, weights[name], gradient, states[name], rate, count, _device
            )
            weights[name] = _device(weight)
            del self.accumulated[replica][name]

    def weights(self, replica: int, stage: int) -> Values:
        """The weights that the stage owns."""
        return {name: self.by_replica[replica][name].copy() for name in self._owned[stage]}

    def set_weights(self, replica: int, stage: int, weights: Mapping[str, Any]) -> None:
        """Replace weights that the stage owns."""
        self.by_replica[replica].update((name, _device(value)) for name, value in weights.items())


def _owned(stages: Tuple[Stage, ...]) -> List[List[str]]:
    """The weights that each stage updates: a weight that several stages use belongs to the first, which ends last."""
    seen: Dict[str, int] = {}
    for number, stage in enumerate(stages):
        for layer in stage:
            for name in layer.weights:
                seen.setdefault(name, number)
    return [[name for name, owner in seen.items() if owner == number] for number in range(len(stages))]


def _wanted(stages: Tuple[Stage, ...]) -> List[List[str]]:
    """What later stages read of what a stage holds; the last one hands out the logits and the loss."""
    reads = [[name for layer in stage for name in layer.inputs] for stage in stages]
    wanted = [
        [name for later in reads[number + 1 :] for name in later if name != LABELS] for number in range(len(stages))
    ]
    wanted[-1] = [stages[-1][-1].inputs[0], LOSS]
    return wanted


def plan_of(config: RunConfig, schedule: str = "") -> Plan:
    """The plan that a configuration implies; ``schedule`` may name one that only the core knows."""
    return make_plan(
        config.devices or tuple(range(config.number_of_stages)),
        schedule or config.schedule,
        config.gradient_accumulation,
        training=config.training,
        recompute=config.recompute,
        replicas=config.replicas,
        device_iterations=config.device_iterations,
    )


_SELECT: Mapping[str, Callable[[streams.Layout, int], streams.Selection]] = {
    "all": lambda layout, period: streams.select_all(layout),
    "every_n": streams.select_every,
    "final": lambda layout, period: streams.select_final(layout),
    "sum": lambda layout, period: streams.select_sum(layout),
}


def train(net: Net, config: RunConfig, data: Data, *, schedule: str = "") -> RunRecord:
    """Train ``net`` on the core and record what came out; the trace is that of the last step."""
    _require(net, config)
    machine = NetMachine(net, config)
    layout = streams.Layout(config.device_iterations, config.gradient_accumulation, config.replicas)
    losses, outputs, by_step = [], [], []
    slots: Tuple[Slot, ...] = ()
    with Engine(plan_of(config, schedule), machine) as engine:
        for step in range(config.steps):
            machine.step = step
            machine.labels = streams.deal(data.labels[step], layout)
            inputs = streams.deal(_device(data.inputs[step]), layout)
            recorder = Recorder(config.replicas)
            made = engine.run([[{INPUT: own} for own in replica] for replica in inputs], recorder)
            selection = _SELECT[config.output_mode](layout, config.output_period)
            losses.append(streams.join([[own[LOSS] for own in replica] for replica in made], selection))
            logits = net.layers[-1].name
            outputs.append(streams.join([[own[logits] for own in replica] for replica in made], selection))
            by_step.append(_float64(machine.by_replica[0]))
            slots = tuple(recorder.trace().slots())
    return RunRecord(
        config,
        net.name,
        tuple(np.asarray(loss, dtype=np.float64) for loss in losses),
        tuple(np.asarray(output, dtype=np.float64) for output in outputs),
        weights=_float64(machine.by_replica[0]),
        weights_by_replica=tuple(map(_float64, machine.by_replica)),
        weights_by_step=tuple(by_step),
        updates=next(iter(machine.updates[0].values())),
        statistics=_float64(machine.statistics[0]),
        statistics_by_replica=tuple(map(_float64, machine.statistics)),
        trace=slots,
        framework="core",
        target="emulator",
    )


def _require(net: Net, config: RunConfig) -> None:
    unable = {
        "inference": not config.training,
        "dropout": any(layer.op == "dropout" for layer in net.layers),
        "float16": config.dtype != "float32",
        "gradient clipping": config.clip_norm is not None,
        "a running mean": config.accumulation_reduction == "running_mean",
        "one update for several device iterations": config.update == "run" and config.device_iterations > 1,
        "a rate that changes on the device": config.rate_changes == "update",
        f"the output layout of {config.output_layout}": config.output_layout != "poptorch",
    }
    for what, asked in unable.items():
        if asked:
            raise RunError(f"The core alone does not do {what}: run {net.name} through a framework's driver.")


def _float64(values: Mapping[str, Array]) -> Weights:
    return {name: value.astype(np.float64) for name, value in values.items()}

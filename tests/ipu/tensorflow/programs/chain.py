"""The chain of products of ``exact`` as a pipeline of functions."""

from __future__ import annotations

import operator
from typing import Any, Dict

import numpy as np

from ..device_programs import Device
from ..exact import RATE, START, Trained, samples

ENUMERATIONS = {
    "pipeline_schedule": "pipelining_ops.PipelineSchedule",
    "recomputation_mode": "pipelining_ops.RecomputationMode",
    "reduction_method": "gradient_accumulation.GradientAccumulationReductionMethod",
}
"""The settings that a chain is given by the name of a member."""


class Chain:
    """The chain of products as a pipeline of one weight a stage."""

    def __init__(self, device: Device, number_of_stages: int, replicas: int = 1, **options: Any) -> None:
        last = max(options.get("device_mapping") or [number_of_stages - 1])
        device.open((1 << last.bit_length()) * replicas, allow_recompute="recomputation_mode" in options)
        for name in options.keys() & ENUMERATIONS.keys():
            options[name] = operator.attrgetter(ENUMERATIONS[name])(device.ipu)[options[name]]
        self.device, self.options = device, options
        self.names = [f"w{stage}" for stage in range(number_of_stages)]

    def weight(self, stage: int) -> Any:
        """The weight of one stage."""
        return self.device.variable(self.names[stage], START[stage])

    def stage(self, number: int) -> Any:
        """The function of one stage."""
        return lambda x: x * self.weight(number)

    def chosen(self) -> Dict[str, Any]:
        """What the optimizer function says besides."""
        return {}

    def optimizer(self) -> Any:
        """The plain optimizer of TensorFlow 1, with means over replicas."""
        ipu, v1 = self.device.ipu, self.device.tf.compat.v1
        return ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))

    def program(self, count: int, runs: int, queue: Any, out: Any, training: bool = True, **more: Any) -> Any:
        """The pipeline."""
        ops, stages = self.device.ipu.pipelining_ops, range(len(self.names))
        settings = {"infeed_queue": queue, "outfeed_queue": out, "device_mapping": list(stages), **self.options, **more}
        if training:
            settings["optimizer_function"] = lambda loss: ops.OptimizerFunctionOutput(
                self.optimizer(), loss, **self.chosen()
            )
        if self.device.mode == "function":  # a graph makes its variables inside the program
            for stage in stages:
                self.weight(stage)
        return lambda: ops.pipeline([self.stage(stage) for stage in stages], count, repeat_count=runs, **settings)

    def train(
        self, count: int, runs: int, replicas: int = 1, last: bool = False, fed: Any = None, **more: Any
    ) -> Trained:
        """The weights and the outfeed after training on samples."""
        fed = samples(count * runs * replicas) if fed is None else fed
        queue, out = self.device.infeed(fed), self.device.outfeed(last)
        self.device.run(self.program(count, runs, queue, out, **more))
        (losses,) = self.device.tf.nest.flatten(self.device.dequeue(out))
        return Trained(np.asarray(self.device.read(self.names), np.float32), losses)


def outfed_by(device: Device, last_stage: Any, **options: Any) -> Any:
    """What a pipeline outfeeds whose first stage hands on x·w0 and x; its loss is twice the first output."""
    ops = device.open(2).ipu.pipelining_ops
    device.variable("w0", START[0])

    def optimizer_function(loss: Any, *rest: Any) -> Any:
        return ops.OptimizerFunctionOutput(device.tf.compat.v1.train.GradientDescentOptimizer(RATE), 2 * loss)

    stages = [lambda x: (x * device.variable("w0", START[0]), x), last_stage]
    return device.pipe(stages, 4, samples(4), **{"optimizer_function": optimizer_function, **options})


def drawn(device: Device, place: int, value: Any) -> Any:
    """A value of which half is dropped, in one way or the other."""
    if place == 0:
        return device.tf.nn.dropout(value, 0.5)
    return device.ipu.rand_ops.dropout(value, rate=0.5)


def counted(device: Device, place: int, value: Any) -> Any:
    """A value times the number of this call, from a variable that counts the calls of the stage."""
    tf, number = device.tf, device.variable(f"n{place}", 1.0)
    now = number.read_value()
    with tf.control_dependencies([now]):
        counting = number.assign_add(1.0)
    with tf.control_dependencies([counting]):
        return value * tf.identity(now)

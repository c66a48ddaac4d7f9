"""Programs whose arithmetic rounds nothing, compiled for the device, and what the oracle makes of them."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle import exact
from ipu_conformance.oracle.exact import STARTS
from ipu_conformance.oracle.exact import pairs as samples
from ipu_conformance.oracle.training.outputs import returned
from ipu_conformance.run import RunConfig, learning_rate

from ..training import reduced
from . import device

__all__ = [
    "COUNTS", "FEATURES", "ONE", "RATE", "START", "Chain", "Device", "chain", "counts",
    "fetched_shape", "inference", "plain_run", "samples", "strategy",
]  # fmt: skip

RATE = 2.0**-6
"""The learning rate."""
FEATURES = 2
START = np.array(STARTS[0], np.float32)
"""The first weight before training."""


counts = RunConfig(micro_batch=1, learning_rate=learning_rate(base=RATE), output_layout="paddle").with_counts
"""``counts(2, 3, 4)``: batches per step, gradient accumulation, replicas; they differ unless they are 1."""
ONE = counts()
COUNTS = [
    counts(*each)
    for each in [
        (1,), (3,), (1, 4), (1, 1, 2), (2, 3), (3, 1, 2), (5, 2, 3), (2, 3, 5), (1, 4, 2), (2, 4, 3), (3, 2, 4),
        (6, 2, 8),
    ]
]  # fmt: skip


def fetched_shape(config: RunConfig, *shape: int) -> Tuple[int, ...]:
    """The shape of a fetched variable that has ``shape`` in a micro-batch."""
    values = np.empty((config.device_iterations, config.gradient_accumulation, config.replicas, *shape))
    return returned(values, config).shape


class Chain(NamedTuple):
    """A program that multiplies by one weight per stage; its loss is the distance from 1."""

    main: Any
    startup: Any
    out: Any
    loss: Any
    weights: Tuple[str, ...]


def chain(paddle: Any, *, stages: int = 1, training: bool = True, optimizer: Any = None, shards: Any = None) -> Chain:
    """Build the program in the default programs; ``shards`` holds the index and the stage of each of its stages.

    The gradient is a sum of samples with signs that depend on the weights: not linear, and exact.
    """
    static = paddle.static
    x = static.data("x", [None, FEATURES], "float32")
    value, weights = x, []
    for number in range(stages):
        placed = shards[number] if shards else {"index": number, "stage": number} if stages > 1 else {}
        with static.ipu_shard_guard(**placed):
            start = paddle.nn.initializer.Assign(np.array(STARTS[number], np.float32))
            weight = static.create_parameter([FEATURES], "float32", name=f"w{number}", default_initializer=start)
            value = value * weight
            weights.append(weight.name)
            if number == stages - 1:
                loss = paddle.sum(paddle.abs(value - 1.0))
    if training:
        (paddle.optimizer.SGD(RATE) if optimizer is None else optimizer).minimize(loss)
    return Chain(static.default_main_program(), static.default_startup_program(), value, loss, tuple(weights))


def strategy(
    paddle: Any, config: RunConfig = ONE, *, ipus: int = 1, training: bool = True, pipelined: bool = False,
    micro_batch: int = 1, **options: Any,
) -> Any:  # fmt: skip
    """A strategy with the counts of a configuration, for ``ipus`` IPUs per replica."""
    chosen = paddle.static.IpuStrategy()
    iterations, accumulation, replicas = config.device_iterations, config.gradient_accumulation, config.replicas
    chosen.set_graph_config(ipus * replicas, training, micro_batch, ipus > 1)
    chosen.set_pipelining_config(pipelined, iterations, accumulation > 1, accumulation)
    if replicas > 1:
        chosen.set_options({"enable_replicated_graphs": True, "replicated_graph_count": replicas})
    chosen.set_options(options)
    return chosen


class Device(device.Device):
    """A chain that was compiled in the global scope, which gets its initial weights if it has none."""

    def __init__(self, paddle: Any, net: Chain, chosen: Any, fetches: Sequence[Any] = ()) -> None:
        scope = paddle.static.global_scope()
        if any(scope.find_var(name) is None for name in net.weights):
            paddle.static.Executor(paddle.CPUPlace()).run(net.startup)
        super().__init__(paddle, list(fetches) or [net.out, net.loss], chosen, program=net.main)
        self.chain = net

    def weights(self) -> Dict[str, np.ndarray]:
        """The weights as the host has them."""
        return {name: self.value(name) for name in self.chain.weights}

    def synced_weights(self) -> Dict[str, np.ndarray]:
        """The weights after the device has sent them."""
        self.sync()
        return self.weights()

    def set(self, name: str, value: np.ndarray) -> None:
        """Change a variable on the host."""
        self.paddle.static.global_scope().find_var(name).get_tensor().set(value, self.paddle.CPUPlace())


def inference(
    paddle: Any, *fetches: Any, config: RunConfig = ONE, feeds: Sequence[str] = ("x",), **options: Any
) -> device.Device:
    """The main program, compiled to fetch these variables and to train nothing."""
    return device.Device(paddle, fetches, strategy(paddle, config, training=False, **options), feeds=feeds)


class Run(NamedTuple):
    """The oracle's run: outputs and losses by micro-batch, weights at the end."""

    outputs: np.ndarray
    losses: np.ndarray
    weights: Dict[str, np.ndarray]


def plain_run(x: np.ndarray, config: RunConfig, *, stages: int = 1, mean: bool = True, rate: float = RATE) -> Run:
    """What the oracle makes of a chain: one update per batch of the step, on the gradients of all its micro-batches."""
    record = exact.train(exact.products(stages), x, reduced(config, "mean" if mean else "sum", rate))
    number = config.micro_batches
    return Run(
        exact.float32((record.outputs or ())[0]).reshape(number, -1, exact.pairs(1).shape[1]),
        exact.float32(record.losses[0]).reshape(number),
        {name: exact.float32(value) for name, value in (record.weights or {}).items()},
    )

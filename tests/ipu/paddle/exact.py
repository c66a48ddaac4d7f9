"""Programs whose arithmetic has no rounding, and what a plain loop over the micro-batches makes of them.

Weights, samples and rates are small multiples of powers of two, so that any order of computing gives the same bits and
results are compared exactly. ``plain_run`` proves it each time: it computes in float64 and in float32 and asks for the
same values.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

RATE = 2.0**-6
"""The learning rate."""
FEATURES = 2
START = ((1.0, -2.0), (0.5, 1.5), (-1.0, 0.25), (2.0, 0.5))
"""The initial weights of each stage."""


class Factors(NamedTuple):
    """Batches per step, gradient accumulation and replicas; in a case they differ in pairs unless they are 1."""

    B: int = 1
    G: int = 1
    R: int = 1

    def __str__(self) -> str:
        return f"D{self.B}-G{self.G}-R{self.R}"

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one run."""
        return self.B * self.G * self.R

    def reported(self, *shape: int) -> Tuple[int, ...]:
        """The shape of a fetched variable of which a micro-batch has ``shape``."""
        enabled = ((self.R, self.R > 1), (self.G, self.G > 1), (self.B, self.B > 1))
        return (*(factor for factor, on in enabled if on), *(shape or (1,)))


ONE = Factors()
FACTORS = (
    ONE,
    Factors(B=3),
    Factors(G=4),
    Factors(R=2),
    Factors(B=2, G=3),
    Factors(B=3, R=2),
    Factors(G=4, R=2),
    Factors(B=2, G=4, R=3),
    Factors(B=3, G=2, R=4),
)


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
            start = paddle.nn.initializer.Assign(np.array(START[number], np.float32))
            weight = static.create_parameter([FEATURES], "float32", name=f"w{number}", default_initializer=start)
            value = value * weight
            weights.append(weight.name)
            if number == stages - 1:
                loss = paddle.sum(paddle.abs(value - 1.0))
    if training:
        (paddle.optimizer.SGD(RATE) if optimizer is None else optimizer).minimize(loss)
    return Chain(static.default_main_program(), static.default_startup_program(), value, loss, tuple(weights))


def strategy(
    paddle: Any,
    factors: Factors = ONE,
    *,
    ipus: int = 1,
    training: bool = True,
    pipelined: bool = False,
    micro_batch: int = 1,
    **options: Any,
) -> Any:
    """A strategy with these factors, for ``ipus`` IPUs per replica."""
    chosen = paddle.static.IpuStrategy()
    chosen.set_graph_config(
        num_ipus=ipus * factors.R, is_training=training, micro_batch_size=micro_batch, enable_manual_shard=ipus > 1
    )
    chosen.set_pipelining_config(
        enable_pipelining=pipelined,
        batches_per_step=factors.B,
        enable_gradient_accumulation=factors.G > 1,
        accumulation_factor=factors.G,
    )
    if factors.R > 1:
        chosen.set_options({"enable_replicated_graphs": True, "replicated_graph_count": factors.R})
    chosen.set_options(options)
    return chosen


class Device:
    """A chain that was compiled in a scope, and the ways to run and to read it."""

    def __init__(self, paddle: Any, made: Chain, chosen: Any, fetches: Sequence[Any] = (), feeds: Any = ("x",)) -> None:
        self.paddle, self.made = paddle, made
        self.fetches = list(fetches) or [made.out, made.loss]
        self.executor = paddle.static.Executor(paddle.CPUPlace())
        self.scope = paddle.static.global_scope()
        if any(self.scope.find_var(name) is None for name in made.weights):
            self.executor.run(made.startup)
        self.compiled = paddle.static.IpuCompiledProgram(made.main, scope=self.scope, ipu_strategy=chosen)
        self.backend = self.compiled._backend
        self.program = self.compiled.compile(list(feeds), [fetch.name for fetch in self.fetches])

    def run(self, x: np.ndarray, **more: Any) -> List[np.ndarray]:
        """Feed and fetch once."""
        fetched: List[np.ndarray] = self.executor.run(self.program, feed={"x": x}, fetch_list=self.fetches, **more)
        return fetched

    def weights(self) -> Dict[str, np.ndarray]:
        """The weights as the host has them."""
        return {name: self.value(name) for name in self.made.weights}

    def value(self, name: str) -> np.ndarray:
        """One variable as the host has it."""
        return np.array(self.scope.find_var(name).get_tensor())

    def set(self, name: str, value: np.ndarray) -> None:
        """Change a variable on the host."""
        self.scope.find_var(name).get_tensor().set(value, self.paddle.CPUPlace())


def samples(count: int) -> np.ndarray:
    """That many samples of two features, no two of them alike; a mean over 3 of them is exact too."""
    numbers = np.arange(count, dtype=np.float32)
    return np.stack([(numbers % 5 + 1) * np.float32(0.75), (numbers // 5 + 1) * np.float32(-0.375)], axis=1)


class Run(NamedTuple):
    """What a plain loop gives: outputs and losses by micro-batch, weights at the end."""

    outputs: np.ndarray
    losses: np.ndarray
    weights: Dict[str, np.ndarray]


def plain_run(
    x: np.ndarray, factors: Factors, *, stages: int = 1, micro_batch: int = 1, mean: bool = True, rate: float = RATE
) -> Run:
    """Train by a plain loop: one update per batch, on the gradients of G x R micro-batches."""
    exact = _loop(x.astype(np.float64), factors, stages, micro_batch, mean, rate)
    rounded = _loop(x, factors, stages, micro_batch, mean, rate)
    for name, value in exact.weights.items():
        assert np.array_equal(value, rounded.weights[name]), f"{name} is not exact; choose other numbers"
    return rounded


def _loop(x: np.ndarray, factors: Factors, stages: int, micro_batch: int, mean: bool, rate: float) -> Run:
    kind = x.dtype.type
    weights = [np.array(START[number], kind) for number in range(stages)]
    parts = x.reshape(factors.micro_batches, micro_batch, FEATURES)
    outputs, losses = [], []
    per_update = factors.G * factors.R
    for first in range(0, len(parts), per_update):
        total = [np.zeros(FEATURES, kind) for _ in weights]
        for part in parts[first : first + per_update]:
            values = [part]
            for weight in weights:
                values.append(values[-1] * weight)
            outputs.append(values[-1])
            losses.append(np.abs(values[-1] - kind(1)).sum(dtype=kind))
            gradient = np.sign(values[-1] - kind(1))
            for number in reversed(range(stages)):
                total[number] = total[number] + (gradient * values[number]).sum(axis=0, dtype=kind)
                gradient = gradient * weights[number]
        divisor = kind(per_update if mean else 1)
        weights = [weight - kind(rate) * own / divisor for weight, own in zip(weights, total)]
    return Run(np.stack(outputs), np.stack(losses), {f"w{number}": weight for number, weight in enumerate(weights)})

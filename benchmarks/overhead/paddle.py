"""What the emulated IPU build of Paddle costs, against stock ``Executor.run``."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, List

import numpy as np

from benchmarks.overhead import turns
from ipu_conformance.emulator import hook

hook.install("paddle")

import paddle  # noqa: E402
from paddle import static  # noqa: E402

from ipu_conformance.emulator.core.engine import Engine  # noqa: E402
from ipu_conformance.workloads.paddle_mnist import Settings, model  # noqa: E402
from ipu_conformance.workloads.paddle_mnist.digits import Samples  # noqa: E402
from ipu_conformance.workloads.paddle_mnist.ipu import IpuTrainer, training_strategy  # noqa: E402
from ipu_conformance.workloads.paddle_mnist.trainers import Host, NativeTrainer, feed  # noqa: E402

SMALL, LARGE = 8, 64
"""Batch sizes: one at which the loop weighs most, and that of the workload."""


def batches(size: int, count: int) -> List[Samples]:
    """Images and labels without meaning: what they show costs no time."""
    random = np.random.default_rng(0)
    return [
        Samples(random.standard_normal((size, 1, 28, 28), np.float32), random.integers(0, 10, (size, 1)))
        for _ in range(count)
    ]


def single(batch: int, count: int, repeats: int) -> float:
    """Print the overhead on one IPU; return the time that compiling took."""
    settings = Settings(batch_size=batch)
    data = batches(batch, count)
    native = NativeTrainer(settings, Host(settings))
    host = Host(settings)
    start = time.perf_counter()
    ipu = IpuTrainer(settings, host)
    compile_time = time.perf_counter() - start

    def run(side: Any) -> None:
        for each in data:
            side.train(each)

    turns.row(f"one IPU, batch {batch}", partial(run, ipu), partial(run, native), count, repeats, "at most 1.10")
    return compile_time


def replicas(batch: int, count: int, repeats: int) -> None:
    """Print how much faster two replicas are together than one after the other."""
    settings = Settings(batch_size=2 * batch, num_ipus=2, replication_factor=2)
    ipu = IpuTrainer(settings, Host(settings))
    executable = ipu.compiled._backend.executable
    together, apart = executable.engine, Engine(executable.plan, executable.machine, parallel=False)
    data = batches(2 * batch, count)

    def run(engine: Engine) -> None:
        executable.engine = engine
        for each in data:
            ipu.train(each)

    in_turn, in_parallel = partial(run, apart), partial(run, together)
    turns.row(f"two replicas, batch {batch}", in_turn, in_parallel, count, repeats, "at least 1.6")
    executable.engine = together


def wide_network(batch: int) -> model.Network:
    """A network whose weights, gradients and state take most of the memory."""
    with model.new_programs(0) as (main, startup):
        image, label = model.inputs(batch)
        hidden = static.nn.fc(image, 8192, activation="relu")
        scores = static.nn.fc(hidden, model.CLASSES)
        costs = paddle.nn.functional.softmax_with_cross_entropy(scores, label)
        cost = paddle.mean(costs)
        paddle.optimizer.Adam(learning_rate=1e-3).minimize(cost)
    return model.Network(main, startup, image, scores, costs, cost)


def memory_of(side: str, batch: int, wide: bool) -> int:
    """The bytes that a model and its training add, without the host's copy; called in a process of its own."""
    count = {"plain": 0, "one IPU": 1, "two replicas": 2}[side]

    def train(network: model.Network, settings: Settings) -> int:
        scope, executor = static.Scope(), static.Executor(paddle.CPUPlace())
        executor.run(network.startup, scope=scope)
        program = network.main
        if count:
            compiled = static.IpuCompiledProgram(network.main, scope=scope, ipu_strategy=training_strategy(settings))
            program = compiled.compile([model.IMAGE, model.LABEL], [network.cost.name])
        for each in batches(settings.batch_size, 8):
            executor.run(program, feed=feed(each), fetch_list=[network.cost], scope=scope)
        lasting = [variable for variable in network.main.list_vars() if variable.persistable]
        return sum(int(np.prod(variable.shape)) * 4 for variable in lasting)

    def settings_of(size: int) -> Settings:
        share = max(count, 1)
        return Settings(batch_size=size * share, num_ipus=share, replication_factor=share)

    train(model.build(2, learning_rate=1e-3), settings_of(2))
    before = turns.status("VmRSS")
    turns.forget_peak()
    network = wide_network(batch) if wide else model.build(batch, learning_rate=1e-3)
    lasting = train(network, settings_of(batch))
    return turns.status("VmHWM") - before - (lasting if count else 0)


def main(repeats: int, threads: int) -> None:
    """Print every ratio with the limit that it is held to."""
    turns.title("ms per batch", "emulated", "plain")
    compile_time = single(SMALL, 40, repeats)
    single(LARGE, 8, repeats)
    turns.title("ms per batch", "in turn", "together")
    turns.two_threads(repeats)
    replicas(SMALL, 20, repeats)
    replicas(LARGE, 4, repeats)
    turns.line("compiling LeNet-5, s", f"{compile_time:.2f}", limit="under 2")
    rows = ((f"LeNet-5, batch {LARGE}", LARGE, False), (f"wide layer, batch {SMALL}", SMALL, True))
    turns.memory("benchmarks.overhead.paddle", threads, rows)


if __name__ == "__main__":
    paddle.enable_static()
    turns.start(main, memory_of, lambda threads: None)

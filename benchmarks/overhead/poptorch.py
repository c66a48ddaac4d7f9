"""What the emulated PopTorch costs, against the same loop in plain torch."""

from __future__ import annotations

from functools import partial
from typing import Tuple

import torch

from benchmarks.overhead import turns
from ipu_conformance.emulator import hook

hook.install("poptorch")

from ipu_conformance.emulator.core.engine import Engine  # noqa: E402
from ipu_conformance.workloads.poptorch_mnist import Settings  # noqa: E402
from ipu_conformance.workloads.poptorch_mnist.model import Network  # noqa: E402
from ipu_conformance.workloads.poptorch_mnist.trainers import IpuTrainer, NativeTrainer, return_everything  # noqa: E402

SMALL, LARGE = 8, 128
"""Batch sizes: that of the workload, and one at which kernels outweigh the loop around them."""


def samples(count: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """Images and labels without meaning: what they show costs no time."""
    random = torch.Generator().manual_seed(0)
    return torch.randn(count, 1, 28, 28, generator=random), torch.randint(0, 10, (count,), generator=random)


def wide_network() -> torch.nn.Module:
    """The workload's network with a hidden layer so wide that weights and gradients take most of the memory."""
    network = Network()
    network.hidden, network.classifier = torch.nn.Linear(1600, 8192), torch.nn.Linear(8192, 10)
    return network


def single(batch: int, iterations: int, repeats: int) -> float:
    """Print the overhead on one IPU; return the time that compiling took."""
    settings = Settings(batch_size=batch, device_iterations=iterations, train_size=10**6)
    data = samples(settings.combined_batch)
    torch.manual_seed(0)
    ipu, native = IpuTrainer(Network(), settings), NativeTrainer(Network(), settings)
    ipu.train(*data)
    native.train(*data)
    emulated, plain = partial(ipu.train, *data), partial(native.train, *data)
    turns.row(f"one IPU, batch {batch}", emulated, plain, iterations, repeats, "at most 1.10")
    return ipu.training_model.compilationTime.total_seconds()


def replicas(batch: int, iterations: int, repeats: int) -> None:
    """Print how much faster two replicas are together than one after the other."""
    import poptorch

    options = poptorch.Options().deviceIterations(iterations).replicationFactor(2).randomSeed(0)
    return_everything(poptorch, options)
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.03)
    model = poptorch.trainingModel(network, options=options, optimizer=optimizer)
    data = samples(batch * iterations * 2)
    model(*data)
    compiled = model.compiled
    together, apart = compiled.engine, Engine(compiled.plan, compiled.machine, parallel=False)

    def run(engine: Engine) -> None:
        compiled.engine = engine
        model(*data)

    in_turn, in_parallel = partial(run, apart), partial(run, together)
    turns.row(f"two replicas, batch {batch}", in_turn, in_parallel, iterations, repeats, "at least 1.6")


def memory_of(side: str, batch: int, wide: bool) -> int:
    """The bytes that a model and its training add, without the host's copy; called in a process of its own."""
    import poptorch

    count = {"plain": 0, "one IPU": 1, "two replicas": 2}[side]

    def train(network: torch.nn.Module, size: int) -> None:
        data = samples(size * 4 * max(count, 1))
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
        if not count:
            for _ in range(4):
                for images, labels in zip(data[0].split(size), data[1].split(size)):
                    optimizer.zero_grad()
                    network(images, labels)[1].backward()
                    optimizer.step()
            return
        options = poptorch.Options().deviceIterations(4).replicationFactor(count)
        model = poptorch.trainingModel(network, options=options, optimizer=optimizer)
        for _ in range(4):
            model(*data)

    train(Network(), 2)
    before = turns.status("VmRSS")
    turns.forget_peak()
    network = wide_network() if wide else Network()
    train(network, batch)
    weights = sum(weight.nbytes for weight in network.parameters())
    return turns.status("VmHWM") - before - (weights if count else 0)


def main(repeats: int, threads: int) -> None:
    """Print every ratio with the limit that it is held to."""
    turns.title("ms per batch", "emulated", "plain")
    compile_time = single(SMALL, 50, repeats)
    single(LARGE, 4, repeats)
    turns.title("ms per batch", "in turn", "together")
    turns.two_threads(repeats)
    replicas(SMALL, 25, repeats)
    replicas(LARGE, 3, repeats)
    turns.line("compiling the workload, s", f"{compile_time:.2f}", limit="under 3")
    rows = (("workload, batch 128", LARGE, False), ("wide layer, batch 8", SMALL, True))
    turns.memory("benchmarks.overhead.poptorch", threads, rows)


if __name__ == "__main__":
    turns.start(main, memory_of, torch.set_num_threads)

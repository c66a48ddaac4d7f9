"""What the emulated PopTorch costs: ratios against the same loop in plain torch, both sides in one run.

    python benchmarks/overhead.py [--threads 1] [--repeats 9]

The two sides of a ratio take turns, and the ratio is the median over the turns, so that a busy machine disturbs both
alike. Each side trains the same network on the same batches with the same number of threads. What two replicas gain
needs two idle cores, which no turn-taking can replace: the gain of two threads that only multiply matrices stands
beside it, as the most that the machine gives at the time.

Memory is the growth of a process in which torch is warm: the peak of its resident memory while it trains a new model,
over what it held before it made the model. An emulated device holds weights of its own besides the host's, as a real
one does; "per replica" leaves the host's weights out and is compared with all that plain torch needs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import torch

from ipu_conformance.emulator import hook

hook.install("poptorch")

from ipu_conformance.emulator.execute import Engine  # noqa: E402
from ipu_conformance.workloads.poptorch_mnist.model import Network  # noqa: E402
from ipu_conformance.workloads.poptorch_mnist.settings import Settings  # noqa: E402
from ipu_conformance.workloads.poptorch_mnist.sides import Ipu, Native, return_everything  # noqa: E402

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


def seconds(action: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def in_turns(one: Callable[[], Any], other: Callable[[], Any], repeats: int) -> Tuple[float, float, float]:
    """The median times of both sides and the median of the ratios, one over other; the first turn is not counted."""
    pairs: List[Tuple[float, float]] = []
    for turn in range(repeats + 1):
        # Who begins changes from turn to turn.
        if turn % 2:
            second = seconds(other)
            first = seconds(one)
        else:
            first = seconds(one)
            second = seconds(other)
        pairs.append((first, second))
    pairs = pairs[1:]
    firsts, seconds_ = zip(*pairs)
    ratio = statistics.median(first / second for first, second in pairs)
    return statistics.median(firsts), statistics.median(seconds_), ratio


def single(batch: int, iterations: int, repeats: int) -> Tuple[float, float]:
    """Print the overhead on one IPU; return the ratio and the time that compiling took."""
    settings = Settings(batch_size=batch, device_iterations=iterations, train_size=10**6)
    data = samples(settings.combined_batch)
    torch.manual_seed(0)
    ipu, native = Ipu(Network(), settings), Native(Network(), settings)
    ipu.train(*data)
    native.train(*data)
    emulated, plain, ratio = in_turns(lambda: ipu.train(*data), lambda: native.train(*data), repeats)
    name = f"one IPU, batch {batch}"
    print(f"{name:<34}{emulated / iterations * 1e3:10.2f}{plain / iterations * 1e3:10.2f}{ratio:8.3f}   at most 1.10")
    return ratio, ipu.training_model.compilationTime.total_seconds()


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

    one, other, ratio = in_turns(lambda: run(apart), lambda: run(together), repeats)
    name = f"two replicas, batch {batch}"
    print(f"{name:<34}{one / iterations * 1e3:10.2f}{other / iterations * 1e3:10.2f}{ratio:8.3f}   at least 1.6")


def two_threads(repeats: int) -> None:
    """Print what two threads gain that share nothing and hardly touch Python."""
    matrix = torch.randn(600, 600)

    def work() -> None:
        for _ in range(20):
            torch.mm(matrix, matrix)

    def together() -> None:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    one, other, ratio = in_turns(lambda: (work(), work()), together, repeats)
    name = "two threads of matrix products"
    print(f"{name:<34}{one / 20 * 1e3:10.2f}{other / 20 * 1e3:10.2f}{ratio:8.3f}   the ceiling")


def forget_peak() -> None:
    """Let the peak of resident memory begin again from here."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    """A size that the kernel states of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


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
    before = _status("VmRSS")
    forget_peak()
    network = wide_network() if wide else Network()
    train(network, batch)
    weights = sum(weight.nbytes for weight in network.parameters())
    return _status("VmHWM") - before - (weights if count else 0)


def memory(threads: int) -> None:
    """Print the growth of memory of all sides, each in a process of its own."""
    print(f"\n{'memory, MB':<34}{'plain':>10}{'one IPU':>10}{'2 repl.':>10}{'per replica':>15}")
    for name, batch, wide in (("workload, batch 128", LARGE, False), ("wide layer, batch 8", SMALL, True)):
        found: Dict[str, int] = {}
        for side in ("plain", "one IPU", "two replicas"):
            asked = json.dumps([side, batch, wide])
            command = [sys.executable, __file__, "--threads", str(threads), "--memory-of", asked]
            found[side] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ratios = f"{found['one IPU'] / found['plain']:.2f}, {found['two replicas'] / 2 / found['plain']:.2f}"
        row = "".join(f"{found[side] / 1e6:10.1f}" for side in found)
        print(f"{name:<34}{row}{ratios:>15}   at most 1.2")


def main() -> None:
    """Print every ratio with the limit that it is held to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads that one operation of torch uses (1)")
    parser.add_argument("--repeats", type=int, default=9, help="turns that are counted (9)")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory_of:
        print(memory_of(*json.loads(args.memory_of)))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {args.threads} threads an operation\n")
    print(f"{'ms per batch':<34}{'emulated':>10}{'plain':>10}{'ratio':>8}")
    compile_time = single(SMALL, 50, args.repeats)[1]
    single(LARGE, 4, args.repeats)
    print(f"\n{'ms per batch':<34}{'in turn':>10}{'together':>10}{'ratio':>8}")
    two_threads(args.repeats)
    replicas(SMALL, 25, args.repeats)
    replicas(LARGE, 3, args.repeats)
    print(f"\n{'compiling the workload, s':<34}{compile_time:10.2f}{'':>18}   under 3")
    memory(args.threads)


if __name__ == "__main__":
    main()

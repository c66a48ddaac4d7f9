"""How planning, accounting and executing grow with the size of the pipeline: times and ratios, no limits.

    python benchmarks/plan_scale.py

Planning and accounting cover stash depths and the bubble of every slot of a replica; "all slots" counts the slots of
all replicas. The ratio is the time of a slot over that of the row above: it stays near 1 when the growth is linear.
Executing calls a machine that does nothing, so what is left is the engine's own cost of a slot.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any, Callable, List, Tuple

from ipu_conformance.emulator.execute import Engine
from ipu_conformance.emulator.plan import Plan, plan
from ipu_conformance.emulator.schedules import SCHEDULES
from ipu_conformance.emulator.topology import Topology, pipeline
from ipu_conformance.emulator.trace import Recorder

SIZES: List[Tuple[int, int, int]] = [(8, 128, 2), (16, 256, 4), (32, 512, 8), (64, 1024, 16), (64, 4096, 16)]
"""Stages, micro-batches and replicas."""


class Idle:
    """A machine whose slots cost nothing."""

    divisor = 1.0

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        return None, None

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        return None

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        return None

    def gradients(self, replica: int, stage: int) -> Any:
        return None

    def reduce(self, stage: int, gradients: List[Any]) -> List[Any]:
        return gradients

    def update(self, replica: int, stage: int, gradients: Any) -> None:
        return None

    def weights(self, replica: int, stage: int) -> Any:
        return {}

    def set_weights(self, replica: int, stage: int, weights: Any) -> None:
        return None


def best(action: Callable[[], Any], repeats: int) -> float:
    """The shortest of several times, in seconds: the one that other programs disturbed least."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def plan_and_account(topology: Topology, name: str, micro_batches: int) -> Plan:
    """A plan and everything that is counted from its slots."""
    planned = plan(topology, name, micro_batches, recompute=True)
    planned.stash_depths()
    planned.bubble()
    return planned


def planning(repeats: int) -> None:
    """Print one table a schedule."""
    for name in SCHEDULES:
        print(f"\n{name}, training with recomputation")
        print(f"{'stages':>7}{'micro':>7}{'repl.':>7}{'all slots':>12}{'seconds':>10}{'ns/row':>9}{'ratio':>8}")
        before = 0.0
        for stages, micro_batches, replicas in SIZES:
            topology = pipeline(stages, replicas)
            planned = plan(topology, name, micro_batches, recompute=True)
            seconds = best(partial(plan_and_account, topology, name, micro_batches), repeats)
            each = seconds / len(planned.columns) * 1e9
            ratio = f"{each / before:8.2f}" if before else " " * 7 + "-"
            print(f"{stages:7}{micro_batches:7}{replicas:7}{len(planned):12,}{seconds:10.3f}{each:9.0f}{ratio}")
            before = each


def executing(repeats: int) -> None:
    """Print the engine's own cost of a slot."""
    print(f"\n{'engine':<12}{'slots':>9}{'us/slot':>9}{'traced':>9}")
    for name in SCHEDULES:
        planned = plan(pipeline(8, 2), name, 64, recompute=True)
        engine = Engine(planned, Idle())
        inputs = [[None] * planned.total_micro_batches for _ in range(planned.replicas)]
        plain = best(partial(engine.run, inputs), repeats) / len(planned) * 1e6
        traced = best(partial(engine.run, inputs, Recorder(2)), repeats) / len(planned) * 1e6
        print(f"{name:<12}{len(planned):9,}{plain:9.2f}{traced:9.2f}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="how often each is timed; the best counts (5)")
    repeats = parser.parse_args().repeats
    planning(repeats)
    executing(repeats)


if __name__ == "__main__":
    main()

"""How the memory and cost estimates grow with the size of the pipeline: times and ratios, no limits.

    python benchmarks/accounting_scale.py [--repeats 3] [--schedule grouped]

Each row is a chain of layers, two ops a stage, trained with Adam. "slots" counts the slots of all replicas; the
estimates work on one replica, because all are alike. The ratio is the time of a replica's slot over that of the row
above: it stays near 1 when the growth is linear, and is below 1 where fixed costs still weigh.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Callable, List, Tuple

from ipu_conformance.emulator.core import cost, memory
from ipu_conformance.emulator.core.plan import plan
from ipu_conformance.emulator.core.schedules import SCHEDULES
from ipu_conformance.emulator.core.topology import pipeline
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor

SIZES: Tuple[Tuple[int, int, int], ...] = ((8, 128, 2), (16, 256, 4), (32, 512, 8), (64, 1024, 16), (64, 4096, 16))
"""Stages, micro-batches and replicas."""


def chain(stages: int, width: int = 256, micro_batch: int = 8) -> Graph:
    """A multi-layer perceptron of one layer a stage."""
    ops: List[Op] = []
    tensors = [Tensor("x0", "FLOAT", (micro_batch, width))]
    for s in range(stages):
        tensors.append(Tensor(f"w{s}", "FLOAT", (width, width)))
        tensors += [Tensor(name, "FLOAT", (micro_batch, width)) for name in (f"h{s}", f"x{s + 1}")]
        ops.append(Op("MatMul", f"layer{s}", (f"x{s}", f"w{s}"), (f"h{s}",), ipu=s, stage=s))
        ops.append(Op("Relu", f"relu{s}", (f"h{s}",), (f"x{s + 1}",), ipu=s, stage=s))
    return Graph("chain", ops, ["x0"], [f"x{stages}"], tensors, [f"w{s}" for s in range(stages)])


def best(action: Callable[[], Any], repeats: int) -> float:
    """The shortest of several times, in seconds: the one that other programs disturbed least."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print one row per size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="grouped")
    arguments = parser.parse_args()
    print(f"{'stages':>6} {'micro-batches':>13} {'replicas':>8} {'slots':>11} {'memory':>9} {'ratio':>6}", end="")
    print(f" {'cost':>9} {'ratio':>6} {'peak of an IPU':>14} {'seconds (est.)':>14}")
    before: Tuple[float, ...] = ()
    for stages, micro_batches, replicas in SIZES:
        planned = plan(pipeline(stages, replicas), arguments.schedule, micro_batches)
        graph = chain(stages)
        times = (
            best(lambda p=planned, g=graph: memory.estimate(p, g, optimizer="adam"), arguments.repeats),  # type: ignore[misc]
            best(lambda p=planned, g=graph: cost.estimate(p, g, optimizer="adam"), arguments.repeats),  # type: ignore[misc]
        )
        per_slot = tuple(seconds / len(planned.columns) for seconds in times)
        ratios = [f"{now / then:.2f}" for now, then in zip(per_slot, before)] or ["-", "-"]
        peak = memory.size_text(memory.estimate(planned, graph, optimizer="adam").peak)
        seconds = cost.estimate(planned, graph, optimizer="adam").seconds
        print(f"{stages:>6} {micro_batches:>13} {replicas:>8} {len(planned):>11,}", end="")
        print(f" {times[0]:>8.3f}s {ratios[0]:>6} {times[1]:>8.3f}s {ratios[1]:>6} {peak:>14} {seconds:>14.4f}")
        before = per_slot


if __name__ == "__main__":
    main()

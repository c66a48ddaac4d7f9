"""How planning, accounting and executing grow with the size of the pipeline: times and ratios, no limits.

    python benchmarks/scale.py [--repeats 5] [--schedule grouped]

Accounting is the stash depths, the bubble, and the memory and cost estimates of a chain of layers, two ops for each
stage, trained with Adam. "All slots" counts those of all replicas; a row is a slot that is stored, those of one
replica, because all are alike. The ratio is the time of a row over that of the line above: it stays near 1 when the
growth is linear, and is below 1 where fixed costs still weigh.

Executing calls a machine that does nothing, so what is left is the engine's own cost of a slot.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any, Callable, List, Sequence, Tuple

from ipu_conformance.emulator.core import cost, memory
from ipu_conformance.emulator.core.engine import Engine
from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.core.schedules import SCHEDULES
from ipu_conformance.emulator.core.topology import pipeline
from ipu_conformance.emulator.core.trace import Recorder
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor
from ipu_conformance.text_table import text_table

SIZES: List[Tuple[int, int, int]] = [(8, 128, 2), (16, 256, 4), (32, 512, 8), (64, 1024, 16), (64, 4096, 16)]
"""Stages, micro-batches and replicas."""
PLANNING = [
    *("stages", "micro", "repl.", "all slots", "plan s", "depths s", "memory s", "cost s", "ns/row", "ratio"),
    *("peak of an IPU", "estimated s"),
]


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


def chain(stages: int) -> Graph:
    """A multi-layer perceptron of one layer a stage."""
    ops: List[Op] = []
    tensors = [Tensor("x0", "FLOAT", (8, 256))]
    for s in range(stages):
        tensors.append(Tensor(f"w{s}", "FLOAT", (256, 256)))
        tensors += [Tensor(name, "FLOAT", (8, 256)) for name in (f"h{s}", f"x{s + 1}")]
        ops.append(Op("MatMul", f"layer{s}", (f"x{s}", f"w{s}"), (f"h{s}",), ipu=s, stage=s))
        ops.append(Op("Relu", f"relu{s}", (f"h{s}",), (f"x{s + 1}",), ipu=s, stage=s))
    return Graph("chain", tuple(ops), ("x0",), (f"x{stages}",), tensors, [f"w{s}" for s in range(stages)])


def schedule_figures(planned: Plan) -> None:
    """What is counted from the slots of a plan alone."""
    planned.stash_depths()
    planned.bubble()


def planning(repeats: int, schedules: Sequence[str]) -> None:
    """Print one table a schedule."""
    for name in schedules:
        table = [PLANNING]
        before = 0.0
        for stages, micro_batches, replicas in SIZES:
            topology = pipeline(stages, replicas)
            planned = plan(topology, name, micro_batches, recompute=True)
            graph = chain(stages)
            actions = (
                partial(plan, topology, name, micro_batches, recompute=True),
                partial(schedule_figures, planned),
                partial(memory.estimate, planned, graph, optimizer="adam"),
                partial(cost.estimate, planned, graph, optimizer="adam"),
            )
            times = [best(action, repeats) for action in actions]
            each = sum(times) / len(planned.columns) * 1e9
            ratio = f"{each / before:.2f}" if before else "-"
            peak = memory.size_text(memory.estimate(planned, graph, optimizer="adam").peak)
            seconds = cost.estimate(planned, graph, optimizer="adam").seconds
            size = [str(stages), str(micro_batches), str(replicas), f"{len(planned):,}"]
            table.append([*size, *(f"{t:.3f}" for t in times), f"{each:.0f}", ratio, peak, f"{seconds:.4f}"])
            before = each
        print("", f"{name}, training with recomputation", *text_table(table, align=str.rjust), sep="\n", flush=True)


def executing(repeats: int) -> None:
    """Print the engine's own cost of a slot."""
    table = [["engine", "slots", "us/slot", "traced"]]
    for name in SCHEDULES:
        planned = plan(pipeline(8, 2), name, 64, recompute=True)
        engine = Engine(planned, Idle())
        inputs = [[None] * planned.total_micro_batches for _ in range(planned.replicas)]
        plain = best(partial(engine.run, inputs), repeats) / len(planned) * 1e6
        traced = best(partial(engine.run, inputs, Recorder(2)), repeats) / len(planned) * 1e6
        table.append([name, f"{len(planned):,}", f"{plain:.2f}", f"{traced:.2f}"])
    print("", *text_table(table), sep="\n")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="how often each is timed; the best counts (5)")
    parser.add_argument("--schedule", action="append", choices=sorted(SCHEDULES), help="by default all of them")
    args = parser.parse_args()
    planning(args.repeats, args.schedule or list(SCHEDULES))
    executing(args.repeats)


if __name__ == "__main__":
    main()

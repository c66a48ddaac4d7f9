"""How the benchmarks of overhead measure: turns, threads and the memory of processes."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from ipu_conformance.text_table import text_table

CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
chosen = "wall"
"""The clock that ``start`` was told to use."""


def seconds(action: Callable[[], Any]) -> float:
    """How long one call takes."""
    clock = CLOCKS[chosen]
    start = clock()
    action()
    return clock() - start


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


WIDTHS = (42, 10, 10, 8)
"""Of the columns: what is measured, both sides and their ratio. Rows are printed as they come, so widths are fixed."""


def line(*cells: str, limit: str = "") -> None:
    """Print the cells in their columns, the first to the left, and the limit behind them."""
    columns = [cells[0].ljust(WIDTHS[0]), *map(str.rjust, cells[1:], WIDTHS[1:])]
    print("".join(columns) + (f"   {limit}" if limit else ""), flush=True)


def title(what: str, one: str, other: str) -> None:
    """Print the head of a table."""
    print()
    line(what, one, other, "ratio")


def row(name: str, one: Callable[[], Any], other: Callable[[], Any], steps: int, repeats: int, limit: str) -> None:
    """Print the milliseconds of a step of both sides, the ratio and the limit that it is held to."""
    first, second, ratio = in_turns(one, other, repeats)
    line(name, f"{first / steps * 1e3:.3f}", f"{second / steps * 1e3:.3f}", f"{ratio:.3f}", limit=limit)


def two_threads(repeats: int) -> None:
    """Print what two threads gain that share nothing and hardly touch Python."""
    matrix = np.random.default_rng(0).standard_normal((600, 600), np.float32)

    def work() -> None:
        for _ in range(20):
            matrix @ matrix

    def together() -> None:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    row("two threads of matrix products", lambda: (work(), work()), together, 20, repeats, "the ceiling")


def forget_peak() -> None:
    """Let the peak of resident memory begin again from here."""
    Path("/proc/self/clear_refs").write_text("5")


def status(field: str) -> int:
    """A size that the kernel states of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def memory(module: str, threads: int, rows: Sequence[Tuple[str, int, bool]]) -> None:
    """Print the growth of memory of all sides, each in a process of its own: ``module --memory-of [side, ...]``."""
    table = [["memory, MB", "plain", "one IPU", "two replicas", "per replica", "limit"]]
    for name, batch, wide in rows:
        sizes: Dict[str, int] = {}
        for side in ("plain", "one IPU", "two replicas"):
            arguments = json.dumps([side, batch, wide])
            command = [sys.executable, "-m", module, "--threads", str(threads), "--memory-of", arguments]
            sizes[side] = int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        ratios = f"{sizes['one IPU'] / sizes['plain']:.2f}, {sizes['two replicas'] / 2 / sizes['plain']:.2f}"
        table.append([name, *(f"{size / 1e6:.1f}" for size in sizes.values()), ratios, "at most 1.2"])
    print("", *text_table(table), sep="\n")


def start(main: Callable[[int, int], None], memory_of: Callable[..., int], set_threads: Callable[[int], None]) -> None:
    """Run the benchmark of one framework, or one of its measurements of memory, as the command line asks."""
    global chosen
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--memory-of")
    args = parser.parse_args()
    chosen = args.clock
    set_threads(args.threads)
    if args.memory_of:
        print(memory_of(*json.loads(args.memory_of)))
    else:
        main(args.repeats, args.threads)

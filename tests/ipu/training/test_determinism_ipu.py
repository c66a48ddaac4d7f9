"""A run is a function of its net, data, configuration and seed: again, or in another process, it is the same."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np

from ipu_conformance import check, targets
from ipu_conformance.run import RunConfig, RunRecord
from ipu_conformance.workers.scheduling import THREADS

from .frame import Runs, data_of, net_of
from .table import GRID, each

REPEATED = {
    word: GRID[word]
    for word in (
        "residual-D3-G1-R2-rmsprop",
        "mlp-pipelined-4-D1-G8-R2-rmsprop-recompute",
        "tied_weights-sharded-4-D1-G2-R3-adamw",
    )
}


def digest(run: RunRecord) -> str:
    """A hash of every bit of a run's losses, outputs and weights."""
    parts = hashlib.sha256()
    for array in (*run.losses, *(run.outputs or ()), *(value for _, value in sorted((run.weights or {}).items()))):
        parts.update(np.ascontiguousarray(array).tobytes())
    return parts.hexdigest()


@each(REPEATED)
def test_the_same_run_leaves_the_same_bits_again(runs: Runs, name: str, config: RunConfig) -> None:
    """A second run in the same process, after others, is the first."""
    again = runs.driver.train(net_of(name), config, data_of(name, config))

    check.runs_identical(actual=again, expected=runs.train(name, config), net=net_of(name))


OTHER = """
import sys
from ipu_conformance import frameworks, targets
import ipu_conformance.frameworks.dialects
name, target, package, word = sys.argv[1:]
targets.activate(targets.discover()[target], targets.FRAMEWORKS[name])
import importlib
case = importlib.import_module(package)
net, config = case.REPEATED[word][:2]
config = frameworks.dialects.spoken(name, config)
print("DIGEST", case.digest(frameworks.load(name).train(case.net_of(net), config, case.data_of(net, config))))
"""


@each({word: REPEATED[word] for word in list(REPEATED)[:1]})
def test_another_process_leaves_the_same_bits(runs: Runs, name: str, config: RunConfig) -> None:
    """Neither the process nor the number of its threads changes a bit."""
    target = targets.active(runs.framework)
    check.holds(target is not None, f"{runs.framework} has no target")
    word = next(iter(REPEATED))
    arguments = [runs.framework, target.name, __name__, word] if target else []
    threads = {variable: "3" if os.environ.get(variable) != "3" else "1" for variable in THREADS}
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OTHER, *arguments],
        env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in process.stdout.splitlines() if line.startswith("DIGEST")]

    check.equal(
        actual=len(lines), expected=1, what=f"the number of runs of the other process ({process.stderr[-400:]})"
    )
    check.equal(
        actual=lines[0].split()[1], expected=digest(runs.train(name, config)), what="the hash of the other process' run"
    )


@each({word: REPEATED[word] for word in list(REPEATED)[1:]})
def test_another_seed_begins_elsewhere(runs: Runs, name: str, config: RunConfig) -> None:
    """The initial weights, and so the losses, follow the seed."""
    other = replace(config, seed=config.seed + 1)

    check.differs(actual=runs.train(name, config).losses[0], other=runs.train(name, other).losses[0], what="the losses")

"""How cases are spread over pytest-xdist's workers: a framework is imported by as few of them as makes sense.

Importing a framework costs a worker seconds and hundreds of megabytes. So work is handed out in chunks of one
framework, and a worker keeps to a framework it has imported as long as there is work for it; only then does it take up
the one with the most work left for each worker that has it. Cases that share a compiled program or a run are one
chunk, however many they are, and so are tests of the project that share a process. The longest chunks go first, and a
long case is a chunk of its own: what is handed out last decides how long the other workers wait.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence, Set

from ipu_conformance.targets import FRAMEWORKS

CHUNK = 8
"""Cases of one framework that a worker is handed at a time: small enough to balance, large enough to batch."""

NEUTRAL = "none"
_IN_PATH = re.compile(r"(?:^|[/_])({})(?=[/_.])".format("|".join(FRAMEWORKS)))
_IN_PARAMETERS = re.compile(r"\[(?:.*-)?({})(?:-.*)?\]$".format("|".join(FRAMEWORKS)))


THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
"""What the frameworks read when they are imported: the threads of one operation."""


ARENAS = ("MALLOC_ARENA_MAX", "2")
"""What glibc reads when a process starts: the pools of memory that its threads share.

A pool is as large as it ever was. With one for each thread, a worker that runs replicas in threads grows from case to
case.
"""


def threads(workers: int, cores: int, environment: Mapping[str, str]) -> Dict[str, str]:
    """What to set for that many workers: a worker's share of the cores and few pools of memory, unless the user has.

    Each worker would use every core for every operation, and threads that wait for each other's cores cost more than
    the operations do.
    """
    share = str(max(1, cores // max(1, workers)))
    wanted = {**dict.fromkeys(THREADS, share), ARENAS[0]: ARENAS[1]}
    return {name: value for name, value in wanted.items() if name not in environment}


def framework_of(nodeid: str) -> Optional[str]:
    """The framework that a test's id names, in its parameters or its path; None if it names none."""
    path = nodeid.split("::", 1)[0]
    found = _IN_PARAMETERS.search(nodeid) or _IN_PATH.search(path)
    return found.group(1) if found else None


def program_of(nodeid: str) -> Optional[str]:
    """The compiled program that a case shares with others, as far as its id tells; None where it has its own.

    The ids of ``ops/…::test_…[<framework>-<family>-<op>-<dtype>-…]`` name one: the ops of a family are compiled
    together, once for a file, a framework and a dtype. The folder ``ops`` is the suite's, not that of a framework.
    """
    path, _, name = nodeid.partition("::")
    folders = path.split("/")[:-1]
    words = name.rpartition("[")[2].rstrip("]").split("-")
    if "[" not in name or "ops" not in folders or set(folders) & set(FRAMEWORKS):
        return None
    if len(words) < 4 or words[0] not in FRAMEWORKS:
        return None
    framework, family, _, dtype = words[:4]
    return f"{path}::{framework}-{family}-{dtype}"


def run_of(nodeid: str) -> Optional[str]:
    """The run of a net that a case shares with others, as far as its id tells; None where it has its own.

    The ids of ``training/…::test_…[<framework>-<row>]`` name the row of a table, those of ``models`` a model and its
    configuration. A framework runs a row once in a worker, whatever number of cases in whatever files look at it. The
    folder ``training`` is the suite's, not that of a framework.
    """
    path, _, name = nodeid.partition("::")
    folders = path.split("/")[:-1]
    framework, _, row = name.partition("[")[2].rstrip("]").partition("-")
    if not folders or folders[-1] not in ("training", "models") or set(folders) & {"unit", *FRAMEWORKS}:
        return None
    return f"{folders[-1]}::{row}" if row and framework in FRAMEWORKS else None


RUN_FILES = ("/test_cifar10_ipu.py", "/test_mnist_ipu.py")
"""Whose cases of the same parameters look at the same run of a workload."""
WHOLE_FILES = (
    *RUN_FILES,
    "/test_collectives_ipu.py",
    "/tensorflow/estimator/",
    "/tensorflow/keras/",
)
"""Where the cases of a file look at the same few runs, or compare with the same native ones."""
SHARING = ("unit/suite/test_wheel.py", "unit/faults/test_kills.py", "unit/workloads/")
"""Where tests share what the first of them starts, and a second worker would start again: a process that has imported a
framework, a wheel that is built and installed, a long run."""

COSTS = (
    ("test_every_fault_is_killed", 1500),
    ("unit/workloads/test_keras", 1500),
    ("unit/workloads/test_estimator", 1500),
    ("unit/suite/test_wheel", 1000),
    ("unit/", 40),
    ("ops/test_any_call", 2100),
    ("ipu/models/", 800),
    ("/test_convergence", 2800),
    ("test_dataset/test_mnist", 10000),
    ("/test_mnist", 2000),
    ("/test_cifar10", 1200),
    ("ipu/ops/", 40),
    ("ipu/training/", 300),
    ("/estimator/", 150),
    ("/keras/", 200),
    ("/training/", 150),
    ("", 40),
)
"""Milliseconds of processor time that a test takes, by the first of these that its id holds.

They are rounded means of ``python -m benchmarks.suite_time``. A wrong one costs balance and nothing else.
"""
DEARER = {"tensorflow": 2.5}
"""How many times as long tests of a framework take: TensorFlow traces its programs."""
LONG = 1000
"""Milliseconds from which a test is a chunk of its own."""


def cost(nodeid: str) -> float:
    """About how many milliseconds a test takes."""
    milliseconds = next(each for part, each in COSTS if part in nodeid)
    return milliseconds * DEARER.get(framework_of(nodeid) or NEUTRAL, 1.0)


def shared_by(nodeid: str) -> Optional[str]:
    """What a test shares with others of its framework: a compiled program, runs or what they start; None if nothing."""
    path = nodeid.partition("::")[0]
    if any(place in path for place in WHOLE_FILES) and "unit/" not in path:
        return path
    return program_of(nodeid) or run_of(nodeid) or next((place for place in SHARING if place in path), None)


def chunks(nodeids: Sequence[str]) -> Dict[str, str]:
    """Each test's chunk, "framework:name": the tests that share something, a long test, or CHUNK others in order."""
    counts: Dict[str, int] = {}
    result = {}
    for nodeid in nodeids:
        framework, name = framework_of(nodeid) or NEUTRAL, shared_by(nodeid)
        if name is None and cost(nodeid) >= LONG:
            name = nodeid
        elif name is None:
            index = counts.get(framework, 0)
            counts[framework] = index + 1
            name = str(index // CHUNK)
        result[nodeid] = f"{framework}:{name}"
    return result


def next_chunk(waiting: Mapping[str, float], imported: Set[str], workers_with: Mapping[str, int]) -> str:
    """The chunk that a worker takes next, the first of the longest; ``waiting`` holds how long each takes.

    First one of a framework it has imported, then the framework with the most work per worker that already has it,
    and work that needs no framework fills the gaps at the end.
    """
    queues: Dict[str, List[str]] = {}
    for chunk in waiting:
        queues.setdefault(chunk.split(":", 1)[0], []).append(chunk)
    work = {framework: sum(waiting[chunk] for chunk in queue) for framework, queue in queues.items()}
    own = [framework for framework in queues if framework in imported and framework != NEUTRAL]
    others = [framework for framework in queues if framework != NEUTRAL]
    if own:
        best = max(own, key=lambda framework: work[framework])
    elif others:
        best = max(others, key=lambda framework: work[framework] / (1 + workers_with.get(framework, 0)))
        # A framework that other workers are about to finish is not worth another import.
        if workers_with.get(best, 0) and len(queues[best]) <= workers_with[best] and NEUTRAL in queues:
            best = NEUTRAL
    else:
        best = NEUTRAL
    return max(queues[best], key=lambda chunk: waiting[chunk])

"""Which cases a level has, as data: computed from measured times and from the faults that each case notices.

``levels.json`` lists the cases of smoke and premerge by family, that is by test function; qualify and soak have the
rest. A family that the file does not know runs at premerge until the lists are remade:

    python -m benchmarks.suite_time --notes FOLDER    # processor time of every case
    ipu-conformance levels update FOLDER [FOLDER …] --kills tests/unit/faults/{poptorch,paddle,tensorflow}.ini
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ipu_conformance.atomic_write import replacing
from ipu_conformance.errors import ConformanceError
from ipu_conformance.workers.scheduling import RUN_FILES, framework_of, program_of, run_of

FILE = Path(__file__).with_name("levels.json")
SMOKE_CASES = 300
SMOKE_SECONDS = 25.0
"""Processor time of smoke's cases; each worker takes some seconds to start on top. All of these are seconds of the
machine that the notes were taken on, and the machine of the lists is a slow one (docs/levels.md)."""
SMOKE_DEAR = 1.7
"""An area whose cheapest case takes longer begins at premerge."""
SMOKE_KILLS = 0.9
"""The share of all faults with a known killer that smoke is to notice, where its time allows."""
PREMERGE_SECONDS = 240.0
"""Processor time of premerge's cases; starting, importing and collecting come on top (docs/levels.md)."""
DEAR_SECONDS = 0.3
"""A case above it is in premerge only where no other one notices a fault, and where time is left."""
SHOWN = (
    "poptorch/training/test_mnist_ipu.py::test_the_executed_dumps_are_what_the_device_did",
    "paddle/training/test_mnist_ipu.py::test_the_executed_dump_is_what_the_device_did",
    "paddle/training/test_mnist_ipu.py::test_the_executed_dump_classifies_as_the_device",
    "tensorflow/training/test_mnist_ipu.py::test_the_executed_dumps_are_what_the_device_did",
    "tensorflow/training/test_cifar10_ipu.py::test_the_executed_dumps_are_what_the_device_did",
    "tensorflow/training/test_estimator_cnn_ipu.py::test_the_executed_dumps_are_what_the_device_did",
)
"""Families that leave the dumps of a workload in a report; premerge has the cheapest case of each, dear or not."""
KILLERS = 2
"""Cases of different families that premerge has for every fault, if so many are known; the second is not a dear one."""


class LevelsError(ConformanceError):
    """The lists of levels cannot be read, or do not fit the suite."""


def parted(case: str) -> Tuple[str, str]:
    """The family of a case and its parameters, which are empty for a case without any."""
    family, _, rest = case.partition("[")
    return family, rest[:-1] if rest else ""


@dataclass(frozen=True)
class Levels:
    """The cases of smoke and of premerge, which has those of smoke too, by family."""

    smoke: Mapping[str, FrozenSet[str]]
    premerge: Mapping[str, FrozenSet[str]]

    def of(self, case: str) -> str:
        """The least thorough level that has a case."""
        family, parameters = parted(case)
        if parameters in self.smoke.get(family, ()):
            return "smoke"
        if family not in self.premerge or parameters in self.premerge[family]:
            return "premerge"
        return "qualify"

    @property
    def digest(self) -> str:
        """The SHA-256 of the lists."""
        return hashlib.sha256(json.dumps(self._data(), sort_keys=True).encode()).hexdigest()

    def _data(self) -> Dict[str, Any]:
        return {
            name: {family: sorted(cases) for family, cases in sorted(table.items())}
            for name, table in (("smoke", self.smoke), ("premerge", self.premerge))
        }

    def write(self, path: Path = FILE) -> None:
        """Write the lists with their digest, a line a family, whole or not at all."""
        tables = []
        for name, table in self._data().items():
            rows = ",\n".join(f"{json.dumps(family)}: {json.dumps(cases)}" for family, cases in table.items())
            tables.append(f"{json.dumps(name)}: {{\n{rows}\n}}")
        text = ",\n".join([f'"digest": {json.dumps(self.digest)}', *tables])
        with replacing(path) as beside:
            beside.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


def read(path: Path = FILE) -> Levels:
    """The lists of a file, whose digest must be theirs."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        tables = [{family: frozenset(cases) for family, cases in data[name].items()} for name in ("smoke", "premerge")]
        levels, digest = Levels(*tables), data["digest"]
    except OSError as error:
        raise LevelsError(f"{path.name} cannot be read: {error.strerror}; install the package again.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LevelsError(f"{path.name} holds no lists of levels: {error!r}; install the package again.") from error
    if levels.digest != digest:
        raise LevelsError(f"{path.name} was changed by hand; remake it with `ipu-conformance levels update`.")
    return levels


@functools.lru_cache(maxsize=1)
def shipped() -> Levels:
    """The lists of the package."""
    return read()


def computed(seconds: Mapping[str, float], kills: Mapping[str, Sequence[str]]) -> Levels:
    """The lists that follow from the processor time of every case and from the cases that notice each fault.

    Smoke has a cheap case of each area of each framework, and what notices the most faults in the time that is left.
    Premerge adds, cheapest first, two cases of different families for every fault, one case of every kind (a test
    function on a framework, an op), and then whatever fits.
    """
    prices = _Prices(seconds)
    smoke = _smoke({case: prices.of(case) for case in seconds}, prices.cheapest_first(seconds), kills)
    for case in smoke:
        prices.take(case)
    for killers in kills.values():
        families: Set[str] = {parted(case)[0] for case in killers if case in prices.taken}
        for case in prices.cheapest_first(set(killers) & set(seconds)):
            wanted = KILLERS if prices.of(case) <= DEAR_SECONDS else 1
            if len(families) < wanted and parted(case)[0] not in families:
                families.add(parted(case)[0])
                prices.take(case)
    for case in _first(prices.cheapest_first(seconds), _kind):
        if prices.of(case) <= DEAR_SECONDS or parted(case)[0] in SHOWN:
            prices.take(case)
    for _ in range(2):  # a run that the first round has added makes the cases that look at it cheap
        for case in prices.cheapest_first(seconds):
            if case not in prices.taken and prices.spent + prices.of(case) <= PREMERGE_SECONDS:
                prices.take(case)
    known = {parted(case)[0] for case in seconds}
    return Levels(_by_family(smoke), {**dict.fromkeys(known, frozenset()), **_by_family(prices.taken)})


def _smoke(seconds: Mapping[str, float], order: Sequence[str], kills: Mapping[str, Sequence[str]]) -> List[str]:
    """Whatever notices the most faults for its time, while a cheap case of every area that has none yet still fits."""
    notices: Dict[str, Set[str]] = {}
    for fault, killers in kills.items():
        for case in killers:
            if seconds.get(case, SMOKE_DEAR + 1) <= SMOKE_DEAR:
                notices.setdefault(case, set()).add(fault)
    waiting = {fault for fault, killers in kills.items() if any(case in seconds for case in killers)}
    most_left = (1 - SMOKE_KILLS) * len(waiting)
    cheapest: Dict[Any, str] = {}
    for case in order:
        if seconds[case] <= SMOKE_DEAR and len(cheapest) < SMOKE_CASES:
            cheapest.setdefault(_area(case), case)
    chosen: List[str] = []
    spent = sum(seconds[case] for case in cheapest.values())

    def worth(case: str) -> Tuple[float, float, str]:
        return -len(notices[case] & waiting) / (seconds[case] + 0.05), seconds[case], case

    while notices and len(waiting) > most_left:
        best = min(notices, key=worth)
        if not notices[best] & waiting:
            break
        area = _area(best)
        instead = seconds[cheapest[area]] if area in cheapest else 0.0
        fits = len(chosen) + len(cheapest) + (area not in cheapest) <= SMOKE_CASES
        if fits and spent + seconds[best] - instead <= SMOKE_SECONDS:
            chosen.append(best)
            waiting -= notices[best]
            spent += seconds[best] - instead
            cheapest.pop(area, None)
        del notices[best]
    return [*chosen, *cheapest.values()]


class _Prices:
    """What a case adds to the time of a list: its own, and that of the run it looks at where it is the first to."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._own = _shared(seconds)
        self._runs: Dict[str, float] = {}
        for case, own in self._own.items():
            run = _run(case)
            if run is not None:
                self._runs[run] = max(own, self._runs.get(run, 0.0))
        for run in self._runs:
            if run.endswith(" "):  # cases without parameters look at runs of their file, at which ones nobody knows
                self._runs[run] = max(own for other, own in self._runs.items() if other.startswith(run))
        self._made: Set[str] = set()
        self.taken: Set[str] = set()
        self.spent = 0.0

    def of(self, case: str) -> float:
        """The seconds that the list takes longer with a case."""
        run = _run(case)
        return self._own[case] if run is None or run in self._made else self._runs[run]

    def take(self, case: str) -> None:
        """Add a case to the list."""
        if case in self.taken:
            return
        self.spent += self.of(case)
        self.taken.add(case)
        run = _run(case)
        if run is not None:
            self._made.add(run)

    def cheapest_first(self, cases: Iterable[str]) -> List[str]:
        """The cases in the order of their prices as they are now."""
        return sorted(cases, key=lambda case: (self.of(case), case))


@functools.lru_cache(maxsize=None)
def _run(case: str) -> Optional[str]:
    """The run that a case and others look at, and whichever comes first makes; None where a case has its own."""
    path, _, _ = case.partition("::")
    if path.endswith(RUN_FILES):
        return f"{path} {parted(case)[1]}"
    run = run_of(case)
    return run and f"{framework_of(case)} {run}"


def _shared(seconds: Mapping[str, float]) -> Mapping[str, float]:
    """The same with the time of a program shared by its cases: whichever comes first compiles it for all."""
    programs: Dict[str, List[str]] = {}
    for case in seconds:
        programs.setdefault(program_of(case) or case, []).append(case)
    means = {program: sum(seconds[case] for case in cases) / len(cases) for program, cases in programs.items()}
    return {case: means[program] for program, cases in programs.items() for case in cases}


def _first(order: Iterable[str], key: Any) -> List[str]:
    result: Dict[Any, str] = {}
    for case in order:
        result.setdefault(key(case), case)
    return list(result.values())


def _area(case: str) -> Tuple[str, Any]:
    """The file of a case, or the family of ops that it belongs to, and its framework."""
    program = program_of(case)
    return (program.rpartition("-")[0] if program else case.partition("::")[0]), framework_of(case)


def _kind(case: str) -> Tuple[Any, ...]:
    """The test function and the framework of a case; of ops also which."""
    family, parameters = parted(case)
    op = tuple(parameters.split("-")[2:3]) if program_of(case) else ()
    return (family, framework_of(case), *op)


def _by_family(cases: Iterable[str]) -> Dict[str, FrozenSet[str]]:
    result: Dict[str, Set[str]] = {}
    for case in cases:
        family, parameters = parted(case)
        result.setdefault(family, set()).add(parameters)
    return {family: frozenset(members) for family, members in result.items()}

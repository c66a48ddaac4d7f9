"""Runs cases of one framework in one process: on the right device, noting places, and under one fault at a time.

After every case all fixtures end, those of the session too, so that no case reads what another one ran before. Only a
recording keeps them, case after case of one program, as an ordinary run does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import signal
import time
from pathlib import Path
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Generator,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    TextIO,
)

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

from ipu_conformance import levels
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import declared, slips
from ipu_conformance.matrix import search
from ipu_conformance.matrix.verdict import Verdict, of_exception
from ipu_conformance.selection import LEVELS
from ipu_conformance.suite_files import suite_folder
from ipu_conformance.targets import FRAMEWORKS, activate, discover

QUIET = ("-qq", "--tb=line", "--assert=plain", "--no-header", "--no-summary", "-p", "no:cacheprovider")
TARGET = ("--ipu-target", "emulator")
FURTHER = 8
"""Cases that are tried in vain after a fault was noticed once."""


LIMIT = 40.0
"""Seconds of processor time after which a case on a wrong device is stopped; waiting may take six times as long."""
PATIENCE = 4.0
"""How often the time of a case on the right device, and a second, its run under a slip may take."""
TOGETHER = 50
"""Cases whose calls are compared before slips are tried: a slip that few of them meet comes first."""
CASES = 3
"""Cases of a family that are tried under slips."""


class TimeUpError(BaseException):
    """A case was stopped: the wrong device goes on for ever. No error of the device, so no check takes it for one."""


class SpoiledError(BaseException):
    """A fault left something behind, so that nothing can be said of the next one in this process."""


@contextlib.contextmanager
def limited(limit: float = LIMIT) -> Iterator[None]:
    """Stop what is inside when its processor time is up, unless it is inside of native code."""

    def stop(number: int, frame: Any) -> None:
        raise TimeUpError(f"the case was stopped after {limit:g} s of processor time, or {6 * limit:g} s in all")

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, limit), (signal.ITIMER_REAL, signal.SIGALRM, 6 * limit))
    before = [signal.signal(number, stop) for _, number, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before):
            signal.setitimer(timer, 0.0)
            signal.signal(number, handler)


class Outcome(NamedTuple):
    """What became of one run of one case."""

    verdict: Verdict
    seconds: float
    sentence: str


class Exceptions:
    """Keeps the first exception of a test, which a report tells of in words only."""

    def __init__(self) -> None:
        self.first: Optional[BaseException] = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
        """Keep what was raised in any phase."""
        if call.excinfo is not None and self.first is None:
            self.first = call.excinfo.value
        return (yield)


class Loop:
    """A pytest plug-in that hands the collected cases to ``work`` instead of running each once."""

    def __init__(self, work: Callable[[Loop], None]) -> None:
        self._work = work
        self._raised = Exceptions()
        self.cases: Dict[str, pytest.Item] = {}
        self.seconds: Dict[str, float] = {}
        """The processor time of the last run of each case that passed."""
        self.spoiled: Optional[SpoiledError] = None
        self.ended = False
        """Whether the work came to its end."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do the work on the cases of the session."""
        session.config.pluginmanager.register(self._raised)
        folder = suite_folder()
        for item in session.items:
            path = item.path.resolve()
            if folder in path.parents:
                name = f"{path.relative_to(folder).as_posix()}::{item.nodeid.partition('::')[2]}"
                self.cases[name] = item
        try:
            self._work(self)
        except SpoiledError as error:
            self.spoiled = error
        else:
            self.ended = True
        return True

    def run(self, case: str, then: Optional[str] = None, limit: float = LIMIT) -> Outcome:
        """Run one case; fixtures that the case ``then`` shares with it are kept for that one."""
        item = self.cases[case]
        if hasattr(item, "_initrequest"):
            item._initrequest()
        if then is None:  # a program holds what the cases of a session ask for, and this is one
            item.session.items = [item]
        self._raised.first = None
        start = time.process_time()
        with limited(limit), catch_warnings_for_item(config=item.config, ihook=item.ihook, when="runtest", item=item):
            reports = runtestprotocol(item, log=False, nextitem=self.cases[then] if then else None)
        seconds = time.process_time() - start
        error = self._raised.first
        if error is not None and any(report.failed for report in reports):
            line = (str(error).strip().splitlines() or [""])[0]
            return Outcome(of_exception(error, suite_folder()), seconds, f"{type(error).__name__}: {line}"[:300])
        called = next((report.outcome for report in reports if report.when == "call"), "skipped")
        self.seconds[case] = seconds
        return Outcome(Verdict(called), seconds, "")


def pytest_session(paths: Sequence[str], framework: str, work: Callable[[Loop], None]) -> None:
    """Collect the cases of a framework once, at every level, and do ``work`` on them."""
    folder = suite_folder()
    arguments = [str(folder / path) for path in paths] or [str(folder)]
    options = [*QUIET, *TARGET, "--ipu-level", LEVELS[-1], "--ipu-frameworks", framework, "-m", f"ipu and {framework}"]
    loop = Loop(work)
    code = pytest.main([*options, *arguments], plugins=[loop])
    if loop.spoiled is not None:
        raise loop.spoiled
    if not loop.cases:
        raise catalogue.FaultError(f"no case of {framework} was collected (pytest ended with {int(code)})")
    if not loop.ended:
        raise catalogue.FaultError(f"the runs of {framework} were interrupted (pytest ended with {int(code)})")


def record(framework: str, level: str, killers: Collection[str], out: TextIO, paths: Sequence[str] = ()) -> None:
    """Write a line for every case: its verdict on the right device, its processor time and the places it passed.

    Those are the cases of a level, known ``killers``, and the first one of every family that has none of either.
    """

    def work(loop: Loop) -> None:
        wake(framework)
        places: Set[str] = set()
        lists = levels.shipped()
        wanted = {case for case in loop.cases if LEVELS.index(lists.of(case)) <= LEVELS.index(level)}
        wanted.update(set(killers).intersection(loop.cases))
        families = set(map(search.family, wanted))
        first = {search.family(case): case for case in reversed(loop.cases) if search.family(case) not in families}
        chosen = {*wanted, *first.values()}
        order = [case for case in loop.cases if case in chosen]
        with catalogue.motions(places.add):
            for case, following in zip(order, [*order[1:], None]):
                outcome = loop.run(case, following)
                note = {"case": case, **outcome._asdict(), "seconds": round(outcome.seconds, 4)}
                print(json.dumps({**note, "places": sorted(places)}), file=out, flush=True)
                places.clear()

    pytest_session(paths, framework, work)


def judge(
    framework: str,
    candidates: Mapping[str, Sequence[str]],
    enough: int,
    out: TextIO,
    paths: Sequence[str] = (),
    before: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a line for every run of a case under a fault, until ``enough`` families of cases have noticed each.

    After one has, the next FURTHER cases have a chance to be of another. What ``before`` holds is not tried again. A
    process that a fault spoiled is of no further use: SpoiledError.
    """

    def work(loop: Loop) -> None:
        wake(framework)
        tried = {(run["fault"], run["case"]): Verdict(run["verdict"]) for run in before}
        for fault, cases in candidates.items():
            families: Set[str] = set()
            in_vain = 0
            for case in cases:
                if case not in loop.cases or search.family(case) in families:
                    continue
                verdict = tried.get((fault, case)) or attempt(loop, fault, case, out)
                if verdict is Verdict.KILLED:
                    families.add(search.family(case))
                elif families:
                    in_vain += 1
                if len(families) >= enough or in_vain >= FURTHER:
                    break

    pytest_session(paths, framework, work)


def provoke(
    framework: str,
    candidates: Mapping[str, Sequence[str]],
    most: int,
    out: TextIO,
    paths: Sequence[str] = (),
    before: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a line for every run of a case under a fault, until each family has noticed one.

    First the faults that ``candidates`` has for a case; then slips of functions that it calls, the most promising
    first, at most ``most`` of them, and as many of what is declared under a name like its own; then the same with
    other cases of the family, up to CASES. What ``before`` holds is not tried again. A process that a fault spoiled is
    of no further use: SpoiledError.
    """

    def work(loop: Loop) -> None:
        wake(framework)
        slips.load(framework)
        killed = {search.family(run["case"]) for run in before if run["verdict"] == Verdict.KILLED}
        tried = {(run["fault"], run["case"]) for run in before}
        idle = []
        for case, faults in candidates.items():
            new = [fault for fault in faults if (fault, case) not in tried]
            if case not in loop.cases or search.family(case) in killed:
                continue
            if all(attempt(loop, fault, case, out) is not Verdict.KILLED for fault in new):
                idle.append(case)
        kin: Dict[str, List[str]] = {}
        for case in loop.cases:
            kin.setdefault(search.family(case), []).append(case)
        runs = list(before)
        for turn in range(CASES):
            chosen = {case: search.relative(case, kin[search.family(case)], turn) for case in idle}
            there = [case for case in chosen.values() if case]
            left: Set[str] = set()
            for start in range(0, len(there), TOGETHER):
                still = _slip(loop, _calls(loop, there[start : start + TOGETHER]), most, out, runs)
                left |= _slip(loop, _namesakes(sorted(still), framework), most, out, runs)
            idle = [first for first, case in chosen.items() if case is None or case in left]

    pytest_session(paths, framework, work)


def confirm(
    framework: str, kills: Mapping[str, Sequence[str]], out: TextIO, before: Sequence[Mapping[str, Any]] = ()
) -> List[str]:
    """Write a line for every kill that is claimed: what becomes of the case under the fault, if it passes without.

    What ``before`` holds is not tried again. A case that the suite does not have notices nothing, nor is a slip noticed
    whose function the emulator does not have. The families of cases that the suite has are returned.
    """
    families: List[str] = []

    def work(loop: Loop) -> None:
        wake(framework)
        slips.load(framework)
        families.extend(dict.fromkeys(map(search.family, loop.cases)))
        tried = {(run["fault"], run["case"]) for run in before}
        for fault, cases in kills.items():
            for case in cases:
                if (fault, case) in tried:
                    continue
                gone = "" if case in loop.cases else "the suite has no such case"
                try:
                    if not gone:
                        attempt(loop, fault, case, out)
                except catalogue.FaultError as error:
                    gone = str(error)
                if gone:
                    _noted(Outcome(Verdict.SKIPPED, 0.0, gone), fault, case, out)

    pytest_session((), framework, work)
    return families


def _calls(loop: Loop, cases: Sequence[str]) -> Dict[str, Set[str]]:
    """The slips of the functions that each case calls."""
    result: Dict[str, Set[str]] = {}
    for case in cases:
        places: Set[str] = set()
        with slips.called(places.add):
            loop.run(case)
        result[case] = {slips.SLIP + place for place in places}
    return result


def _namesakes(cases: Sequence[str], framework: str) -> Dict[str, Set[str]]:
    """The slips of what is declared under a name that shares a word with the case."""
    known = [slips.SLIP + place for place in declared.places(framework)]
    return {case: {slip for slip in known if search.words(slip) & search.words(case)} for case in cases}


def _slip(
    loop: Loop, meeting: Mapping[str, Set[str]], most: int, out: TextIO, runs: List[Mapping[str, Any]]
) -> Set[str]:
    """Try cases under the slips that they meet, and return those that noticed none; ``runs`` grows by the tries."""
    experience = search.Experience(meeting)
    for run in runs:
        experience.add(run["fault"], run["case"], run["verdict"])
    tried = {(run["fault"], run["case"]) for run in runs}
    left = set()
    for case, met in meeting.items():
        untried = {fault for fault in met if (fault, case) not in tried}
        limit = PATIENCE * (1 + loop.seconds.get(case, LIMIT))
        verdict = Verdict.PASSED
        for _ in range(min(most, len(untried))):
            fault = experience.next(case, untried)
            untried.remove(fault)
            verdict = attempt(loop, fault, case, out, limit)
            experience.add(fault, case, verdict)
            runs.append({"fault": fault, "case": case, "verdict": verdict})
            if verdict is Verdict.KILLED:
                break
        if verdict is not Verdict.KILLED:
            left.add(case)
    return left


def attempt(loop: Loop, fault: str, case: str, out: TextIO, limit: float = LIMIT) -> Verdict:
    """Run a case under a fault and write down what became of it.

    A failure counts if the case passes again without the fault, else the process is spoiled.
    """
    outcome = _under(loop, fault, case, out, limit)
    if outcome.verdict is Verdict.PASSED or loop.run(case).verdict is Verdict.PASSED:
        return _noted(outcome, fault, case, out)
    sentence = f"the case fails without the fault as well, afterwards; {outcome.sentence}"[:300]
    _noted(outcome._replace(verdict=Verdict.BROKE, sentence=sentence), fault, case, out)
    raise SpoiledError(f"{fault} left something behind in {case}")


def _under(loop: Loop, fault: str, case: str, out: TextIO, limit: float) -> Outcome:
    """Run a case under a fault; a file beside the result says which it is, should the process end."""
    _beside(Path(out.name)).write_text(json.dumps({"fault": fault, "case": case}), encoding="utf-8")
    with catalogue.inject(fault):
        return loop.run(case, limit=limit)


def _noted(outcome: Outcome, fault: str, case: str, out: TextIO) -> Verdict:
    print(json.dumps({"fault": fault, "case": case, **outcome._asdict()}), file=out, flush=True)
    return outcome.verdict


def _beside(result: Path) -> Path:
    return result.with_suffix(".trying")


def trying(result: Path) -> Dict[str, str]:
    """The fault and the case of the last run that a process began, by its result; nothing if it began none."""
    path = _beside(result)
    begun: Dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return begun


def wake(framework: str) -> None:
    """Import a framework with the emulator in place, and know all of its faults.

    A function of the emulator can be replaced only once the framework is there, and a refusal is known once its row is.
    """
    activate(discover()["emulator"], FRAMEWORKS[framework])
    importlib.import_module(framework)
    catalogue.load(framework)


def known(framework: str) -> List[catalogue.Fault]:
    """The faults that a framework's device can have, those of the core among them."""
    return [fault for fault in catalogue.table() if fault.front_end in ("core", framework)]


def described(framework: str) -> Dict[str, Dict[str, str]]:
    """What each of them does, and where, by its name."""
    return {fault.name: {"what": fault.what, "place": fault.point} for fault in known(framework)}


def lines(path: Path) -> List[Dict[str, Any]]:
    """What a process wrote, without a last line that it did not finish."""
    notes = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            notes.append(json.loads(line))
        except ValueError:
            break
    return notes

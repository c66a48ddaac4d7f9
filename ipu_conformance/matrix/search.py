"""Which cases to run under which fault: pure functions of a recording and of what is known already."""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ipu_conformance.matrix.verdict import Verdict
from ipu_conformance.workers.scheduling import framework_of, program_of

HOPE = 0.3
"""The chance that a family notices a fault which nothing is known of and no other family meets."""
DOUBT = 2.0
"""How many tries that chance is worth against what became of tries."""
AGAIN, ACCEPTED = "#2", "?"
"""How the names of faults end that begin with the second call, and of those that accept what is refused."""
NEAR = 4.0
"""How many tries in other files a try in the same file is worth."""


def family(case: str) -> str:
    """The test function of a case: the file and the function, without parameters."""
    return case.partition("[")[0]


def group(case: str) -> str:
    """The cases that may share what was run: those of one program, else of one file and framework."""
    return program_of(case) or f"{case.partition('::')[0]}::{framework_of(case)}"


def passing(recording: Mapping[str, Mapping[str, Any]]) -> Dict[str, List[str]]:
    """The sound cases that pass each place, cheapest first.

    A case that reads what another one ran passes no place itself, so the places of a group are those of all its cases.
    """
    by_group = _places_of_groups(recording)
    result: Dict[str, List[str]] = {}
    for case, note in sorted(recording.items(), key=lambda pair: float(pair[1]["seconds"])):
        if note["verdict"] == "passed":
            for place in by_group[group(case)]:
                result.setdefault(place, []).append(case)
    return result


def _places_of_groups(recording: Mapping[str, Mapping[str, Any]]) -> Dict[str, Set[str]]:
    result: Dict[str, Set[str]] = {}
    for case, note in recording.items():
        result.setdefault(group(case), set()).update(note["places"])
    return result


def candidates(
    faults: Mapping[str, str],
    recording: Mapping[str, Mapping[str, Any]],
    hints: Mapping[str, Sequence[str]],
    most: int,
) -> Dict[str, List[str]]:
    """For each fault (by name, with its place) at most ``most`` cases in the order to try them.

    Known killers come first, of them those that notice the most faults, so that few cases notice many; then cases that
    pass the place themselves, each family's cheapest before its second.
    """
    passed = passing(recording)
    noticed = Counter(case for cases in hints.values() for case in set(cases))
    result = {}
    for fault, place in faults.items():
        known = sorted(hints.get(fault, ()), key=lambda case: -noticed[case])
        passing_it = passed.get(place, [])
        direct = [case for case in passing_it if place in recording[case]["places"]]
        indirect = [case for case in passing_it if place not in recording[case]["places"]]
        ordered = [*known, *_by_turns(direct), *_by_turns(indirect)]
        result[fault] = list(dict.fromkeys(ordered))[:most]
    return result


def provocations(
    faults: Mapping[str, str],
    recording: Mapping[str, Mapping[str, Any]],
    hints: Mapping[str, Sequence[str]],
    runs: Sequence[Mapping[str, Any]],
    most: int,
) -> Dict[str, List[str]]:
    """For one case of each family that has noticed nothing in ``runs``, the faults in the order to try them.

    First those that it is known to notice, then at most ``most`` whose place it or another case of its group passes
    and that it was not tried under, the most promising by the runs first. It is the cheapest case that is known to
    notice any, or just the cheapest.
    """
    tried = {(run["fault"], run["case"]) for run in runs}
    noticing = {family(run["case"]) for run in runs if run["verdict"] == Verdict.KILLED}
    at_place: Dict[str, List[str]] = {}
    for fault, place in faults.items():
        at_place.setdefault(place, []).append(fault)
    by_group = _places_of_groups(recording)
    meeting = {
        case: {fault for place in by_group[group(case)] for fault in at_place.get(place, ())} for case in recording
    }
    experience = Experience(meeting)
    for run in runs:
        experience.add(run["fault"], run["case"], run["verdict"])
    known: Dict[str, List[str]] = {}
    for fault, cases in hints.items():
        for case in cases:
            known.setdefault(case, []).append(fault)
    chosen: Dict[str, str] = {}
    order = sorted(recording.items(), key=lambda pair: (pair[0] not in known, float(pair[1]["seconds"])))
    for case, note in order:
        if note["verdict"] == "passed" and family(case) not in noticing:
            chosen.setdefault(family(case), case)
    result = {}
    for case in chosen.values():
        untried = [fault for fault in meeting[case] if (fault, case) not in tried]
        untried.sort(key=lambda fault: (-experience.chance(fault, case), fault))
        result[case] = list(dict.fromkeys([*known.get(case, ()), *untried[:most]]))
    return result


def _by_turns(cases: Iterable[str]) -> List[str]:
    """The first case of every family, then the second of each, and so on."""
    counts: Dict[str, int] = {}
    placed: List[Tuple[int, int, str]] = []
    for number, case in enumerate(cases):
        turn = counts.get(family(case), 0)
        counts[family(case)] = turn + 1
        placed.append((turn, number, case))
    return [case for _, _, case in sorted(placed)]


def relative(case: str, cases: Sequence[str], turn: int) -> Optional[str]:
    """The case itself, then in turn the last of its family's cases and those at a half and at a quarter, then None."""
    others = [each for each in cases if each != case]
    if turn == 0:
        return case
    places = [len(others) - 1, len(others) // 2, len(others) // 4]
    distinct = list(dict.fromkeys(place for place in places if 0 <= place < len(others)))
    return others[distinct[turn - 1]] if turn <= len(distinct) else None


class Experience:
    """What became of tries, and which fault is the most promising for a case by that.

    A fault that cases noticed is tried again on others, above all on those of the same file; one under which they
    passed or broke is left for later. Of a fault that was not tried yet the chance is the better the fewer families
    meet it, and the more words its place shares with the case.
    """

    def __init__(self, meeting: Mapping[str, Set[str]]) -> None:
        """``meeting`` holds the faults that each case meets."""
        self._families: Dict[str, Set[str]] = {}
        for case, faults in meeting.items():
            for fault in faults:
                self._families.setdefault(fault, set()).add(family(case))
        self._tries: Counter[Tuple[str, str]] = Counter()
        self._kills: Counter[Tuple[str, str]] = Counter()

    def add(self, fault: str, case: str, verdict: str) -> None:
        """Learn from a try."""
        for where in ("", case.partition("::")[0]):
            self._tries[fault, where] += 1
            self._kills[fault, where] += verdict == Verdict.KILLED

    def chance(self, fault: str, case: str) -> float:
        """How likely it is that the case notices the fault."""
        others = max(len(self._families.get(fault, ())), 1)
        hope = min(HOPE * (1 + len(words(fault) & words(case))) / others**0.5, 0.9)
        if fault.endswith(ACCEPTED):  # an error came, and a case that ended well is about it
            hope = max(hope, 0.9)
        hope /= 2 if fault.endswith(AGAIN) else 1  # what is wrong at once is noticed by most that notice it later
        file = case.partition("::")[0]
        kills = self._kills[fault, ""] + (NEAR - 1) * self._kills[fault, file] + DOUBT * hope
        return kills / (self._tries[fault, ""] + (NEAR - 1) * self._tries[fault, file] + DOUBT)

    def next(self, case: str, faults: Iterable[str]) -> str:
        """The most promising of the faults."""
        return max(sorted(faults), key=lambda fault: self.chance(fault, case))


@functools.lru_cache(maxsize=None)
def words(name: str) -> FrozenSet[str]:
    """The words of a name that say what it is about, without the endings of plurals."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    parts += [word for form, told in FORMS.items() if name.startswith("slip:") and form in name for word in told]
    return frozenset(part.lower().rstrip("s") for part in parts if len(part) > 2) - COMMON


FORMS = {
    "(": ("default", "argument"),
    ":-": ("name", "member", "module"),
    ":__getattr__": ("name", "module", "package", "import", "imported", "attribute", "operation"),
    "!": ("warn", "deprecated"),
    "?": ("refused", "error"),
}
"""What a slip is about, by the form of its place."""
COMMON = {"slip", "core", "tensorflow", "poptorch", "paddle", "test", "ipu", "run", "the", "and", "are", "not", "one"}

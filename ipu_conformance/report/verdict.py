"""The verdict on a device: a function of what was to run, what became of it, the mandatory list and the waivers."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ipu_conformance.notes import NOT_SHOWN
from ipu_conformance.report.mandatory import Waiver, matches
from ipu_conformance.report.results import FAILED, SKIPPED, Result, area_of

QUALIFIED, NOT_QUALIFIED, INCOMPLETE = VERDICTS = ("QUALIFIED", "NOT QUALIFIED", "INCOMPLETE")
EXIT_CODES: Mapping[str, int] = {QUALIFIED: 0, NOT_QUALIFIED: 1, INCOMPLETE: 3}
"""2 is bad input or a target that did not answer, 130 an interrupt."""
NOT_COVERED = "the framework comes without "
"""How the reason begins for which a mandatory case is outside of what a verdict covers: the module's name follows."""
MOST_NAMED = 20
"""Failed cases that are named one by one; the report has all."""


@dataclass(frozen=True)
class Verdict:
    """QUALIFIED, NOT QUALIFIED or INCOMPLETE, and the reasons, a sentence each."""

    word: str
    reasons: Tuple[str, ...]
    remarks: Tuple[str, ...]
    """What changes nothing and is to be known: waivers in use, stale or unused, advisory failures."""
    covers: str

    @property
    def exit_code(self) -> int:
        """The exit code of ``qualify``."""
        return EXIT_CODES[self.word]

    def facts(self) -> Dict[str, Any]:
        """Plain data."""
        return {
            "word": self.word,
            "reasons": list(self.reasons),
            "remarks": list(self.remarks),
            "covers": self.covers,
        }


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on."""

    planned: Sequence[str]
    """The cases that the run, or all its shards together, was to execute."""
    results: Mapping[str, Result]
    mandatory: Iterable[str]
    """The mandatory cases of the frameworks that the run is about."""
    left_out: Mapping[str, str]
    """Why a mandatory case is not among the planned ones, as far as it is known."""
    why_advisory: Callable[[str], Optional[str]]
    waivers: Sequence[Waiver]
    today: datetime.date
    covers: str
    fault: str = ""
    """The fault that was on, by its name."""
    interrupted: str = ""
    """Why the run ended before its end; empty if it did not."""
    whole: int = 0
    """How many cases all shards have together; 0 where nobody knows."""
    why_parted: str = ""
    """Why the planned cases are not the whole run."""
    may_hide: Sequence[str] = ()
    """The frameworks whose targets need not show more than the vendor's API does."""


def judged(evidence: Evidence) -> Verdict:
    """The verdict, with each reason a sentence."""
    excused, remarks = _waived(evidence)
    failures, gaps = _failures(evidence, excused, remarks), _gaps(evidence)
    absent = Counter(why for case, why in _unplanned(evidence).items() if why.startswith(NOT_COVERED))
    remarks += [f"Not covered: {_cases(count, 'mandatory ')} not run: {_ended(why)}" for why, count in absent.items()]
    hidden = Counter(result.sentence for result in _hidden(evidence).values())
    remarks += [f"Not covered: {_cases(count)} skipped: {_ended(why)}" for why, count in sorted(hidden.items())]
    word = NOT_QUALIFIED if failures else INCOMPLETE if gaps else QUALIFIED
    return Verdict(word, tuple(failures + gaps), tuple(remarks), evidence.covers)


def _waived(evidence: Evidence) -> Tuple[Dict[str, Waiver], List[str]]:
    """The failed cases that a waiver in force excuses, and what is to be said of the waivers."""
    failed = [case for case, result in evidence.results.items() if result.outcome == FAILED]
    excused: Dict[str, Waiver] = {}
    remarks = []
    for waiver in evidence.waivers:
        hit = [case for case in failed if matches(case, waiver.case)]
        known = [case for case in evidence.results if matches(case, waiver.case)]
        if waiver.until < evidence.today:
            remarks.append(f"The waiver of {waiver.case} ended on {waiver.until} and excuses nothing: {waiver.reason}.")
        elif hit:
            excused.update(dict.fromkeys(hit, waiver))
            count = "" if len(hit) == 1 else f" ({len(hit)} cases)"
            why = f"{_ended(waiver.reason)} {waiver.link}"
            remarks.append(f"{waiver.case} failed{count} and is waived until {waiver.until}: {why}")
        elif known:
            remarks.append(f"The waiver of {waiver.case} is stale, the case does not fail any more: take it out.")
        else:
            remarks.append(f"The waiver of {waiver.case} is unused, no case of the run has that id: take it out.")
    return excused, remarks


def _failures(evidence: Evidence, excused: Mapping[str, Waiver], remarks: List[str]) -> List[str]:
    """A sentence for each failed case that counts; an advisory one becomes a remark."""
    sentences = []
    for case, result in sorted(evidence.results.items()):
        if result.outcome != FAILED or case in excused:
            continue
        advisory = evidence.why_advisory(case)
        if advisory is not None:
            remarks.append(f"Advisory: {case} failed, which fails no device ({_bare(advisory)}).")
        else:
            sentences.append(f"{case} failed: {_ended(result.sentence)}")
    if len(sentences) > MOST_NAMED:
        sentences[MOST_NAMED:] = [f"{len(sentences) - MOST_NAMED} more cases failed."]
    return sentences


def _gaps(evidence: Evidence) -> List[str]:
    """What was not run and why, a sentence for each cause."""
    sentences = []
    if evidence.fault:
        sentences.append(f"The fault {evidence.fault} was on: a device that is wrong on purpose is not judged.")
    planned = set(evidence.planned)
    missing = [case for case in evidence.planned if case not in evidence.results]
    if missing:
        why = evidence.interrupted or "the run ended before"
        sentences.append(f"{_cases(missing, 'planned ')} not run, of {len(planned):,}: {_ended(why)}")
    mandatory = set(evidence.mandatory)
    causes: Counter[str] = Counter()
    for cause in _unplanned(evidence).values():
        causes[cause] += not cause.startswith(NOT_COVERED)
    for cause, count in sorted((+causes).items()):
        sentences.append(f"{_cases(count, 'mandatory ')} not run: {_ended(cause)}")
    elsewhere = evidence.whole - len(planned)
    if elsewhere > 0 and not +causes:
        sentences.append(f"{_cases(elsewhere)} not run, of {evidence.whole:,}: {_ended(evidence.why_parted)}")
    causes = Counter()
    hidden = _hidden(evidence)
    skipped = {case: each for case, each in evidence.results.items() if each.outcome == SKIPPED and case not in hidden}
    for case, result in skipped.items():
        if case in mandatory:
            causes[_bare(result.sentence)] += 1
    for cause, count in sorted(causes.items()):
        sentences.append(f"{_cases(count, 'mandatory ')} skipped: {_ended(cause)}")
    sentences += _skipped_areas({case: each for case, each in evidence.results.items() if case not in hidden}, skipped)
    if not missing and len(skipped) + len(hidden) == len(evidence.results):
        sentences.append("No case was executed.")
    return sentences


def _unplanned(evidence: Evidence) -> Dict[str, str]:
    """The mandatory cases that are not among the planned ones, and why."""
    missing = sorted(set(evidence.mandatory) - set(evidence.planned))
    return {case: evidence.left_out.get(case, "the run does not have them") for case in missing}


def _hidden(evidence: Evidence) -> Dict[str, Result]:
    """The cases skipped for want of what the vendor's API does not show, on targets that need not show it."""
    return {
        case: result
        for case, result in evidence.results.items()
        if result.outcome == SKIPPED and result.sentence.startswith(NOT_SHOWN) and result.framework in evidence.may_hide
    }


def _skipped_areas(results: Mapping[str, Result], skipped: Mapping[str, Result]) -> List[str]:
    """A sentence for each area of a framework of which every case was skipped."""
    executed = {(result.framework, area_of(case)) for case, result in results.items() if case not in skipped}
    counts = Counter((result.framework, area_of(case)) for case, result in skipped.items())
    return [
        f"Area {area} of {framework} was not tested: every case of it was skipped ({count})."
        for (framework, area), count in sorted(counts.items())
        if (framework, area) not in executed
    ]


def _cases(cases: Any, kind: str = "") -> str:
    count = cases if isinstance(cases, int) else len(cases)
    return f"{count:,} {kind}case{' was' if count == 1 else 's were'}"


def _bare(sentence: str) -> str:
    return sentence.strip().rstrip(".")


def _ended(sentence: str) -> str:
    return f"{_bare(sentence)}."

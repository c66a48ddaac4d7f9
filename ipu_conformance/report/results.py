"""The result of one case: what became of it, why, where, and how to run it alone."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workers.scheduling import framework_of

PASSED, FAILED, SKIPPED = OUTCOMES = ("passed", "failed", "skipped")
CHECK, ERROR, CRASH, TIME_LIMIT = CAUSES = ("check", "error", "crash", "time limit")
"""Why a case failed: a check of it, an exception, the end of its process, its time limit."""

NEUTRAL = "none"
"""The column of cases that need no framework."""

_PLACE = re.compile(
    r"(?:(?:after )?(?:step|device iteration|accumulation step|replica|stage|update|sample|value) \d+(?:, )?)+"
    r"(?: \((?:before|after)[^)]*\))?"
)
_OF_PLACE = re.compile(rf",? (?:of|at|in|on)? ?{_PLACE.pattern}")
_WEIGHT = re.compile(r"(?:\bthe |\b\w+(?:\.\w+)*\.|^)(weight|bias)\b")
_CALL = re.compile(r"(\b[a-z]\w*)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
"""A call of an op with its arguments."""
_BEYOND = re.compile(r" is \S+ (?:at \[[^\]]*\] )?where .*$")
"""What is said of a single wrong value, instead of that it differs."""
MOST_READ = 1000
"""Letters of a sentence that its kind is told by."""
_NUMBER = re.compile(r"-?\b\d[\d.,]*(?:e[+-]?\d+)?\b|\[[^\]]*\]|'[^']*'")


@dataclass(frozen=True)
class Result:
    """What became of one case."""

    case: str
    outcome: str
    seconds: float
    sentence: str = ""
    """Why it failed or was skipped."""
    cause: str = ""
    """One of CAUSES for a failed case, empty for others."""
    details: str = ""
    """What pytest says of a failure: the trace and what the case printed."""
    margin: Optional[Mapping[str, Any]] = None
    """The tightest of its ``checks`` within a tolerance: the share that was ``used``, and of ``what``."""
    curves: Tuple[Mapping[str, Any], ...] = ()
    timelines: Tuple[Mapping[str, Any], ...] = ()
    graphs: Tuple[str, ...] = ()
    """IR dumps of the device that were compared, as canonical JSON."""
    program: str = ""
    """The text of a program that shows a failed case alone."""
    devices: Tuple[str, ...] = ()
    """The devices that the case had leased."""
    at: str = ""
    worker: str = ""
    target: str = "auto"
    """The target that was asked for; the first line of a journal has it for all cases."""

    @property
    def framework(self) -> str:
        """The framework that the case runs on."""
        return framework_of(self.case) or NEUTRAL

    @property
    def place(self) -> str:
        """Where the wrong value stands, decoded; empty if the sentence does not say it."""
        found = _PLACE.search(self.sentence)
        words = found.group(0).rstrip(", ") if found and self.outcome == FAILED else ""
        return re.sub(r" \((.*)\)$", r": \1", words)

    @property
    def command(self) -> str:
        """The command line that runs the case alone."""
        from ipu_conformance.check.failure import CaseReference  # checks import NumPy

        return CaseReference(self.case, self.target).command()

    @property
    def kind_of_failure(self) -> str:
        """The sentence without place, numbers and names of weights: cases that fail for one cause share it."""
        if self.cause != CHECK:
            return _NUMBER.sub("#", self.sentence)
        differs = _BEYOND.sub(" differs", self.sentence[:MOST_READ])
        words = _OF_PLACE.sub("", _CALL.sub(r"\1", differs).partition(": ")[0])
        return _NUMBER.sub("#", _WEIGHT.sub(r"a \1", words)).replace(" differs at #", " differs")

    def entry(self) -> Dict[str, Any]:
        """The line of the journal, without what is empty."""
        row = {name: value for name, value in asdict(self).items() if name != "target" and value not in ("", (), None)}
        return {"kind": "case", **row}

    def facts(self) -> Dict[str, Any]:
        """The row of report.json, in which only ``seconds`` differs between two runs with one result."""
        row: Dict[str, Any] = {
            "case": self.case,
            "framework": self.framework,
            "chapter": chapter_of(self.case),
            "area": area_of(self.case),
            "outcome": self.outcome,
            "seconds": self.seconds,
        }
        if self.outcome != PASSED:
            row["sentence"] = self.sentence
        if self.outcome == FAILED:
            row.update(cause=self.cause, place=self.place, command=self.command)
        if self.margin is not None:
            row["margin"] = dict(self.margin)
        return row


_FIELDS = tuple(each.name for each in fields(Result) if each.name != "target")


def result_of(entry: Mapping[str, Any]) -> Result:
    """The result that ``entry`` wrote."""
    values = {name: entry[name] for name in _FIELDS if name in entry}
    for name in ("curves", "timelines", "graphs", "devices"):
        values[name] = tuple(values.get(name, ()))
    return Result(**values)


def results_of(entries: List[Dict[str, Any]]) -> Dict[str, Result]:
    """The results of a journal by case; a case that was run again has its last one."""
    target = next((entry["run"]["target"] for entry in entries if entry["kind"] == "begin"), "auto")
    return {entry["case"]: replace(result_of(entry), target=target) for entry in entries if entry["kind"] == "case"}


def chapter_of(case: str) -> str:
    """The chapter of the suite that a case belongs to: the folder of its file, apart from the framework's own."""
    folders = [part for part in PurePosixPath(case.partition("::")[0]).parts[:-1] if part not in FRAMEWORKS]
    return folders[0] if folders else "whole"


MOST_OF_A_NAME = 110
"""Letters of a file's name; a longer one ends with a digest, so that no two cases share a file."""


def stem_of(case: str) -> str:
    """The letters of a case's id, for the name of a file."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", case).strip("-")
    if len(words) <= MOST_OF_A_NAME:
        return words
    return f"{words[: MOST_OF_A_NAME - 9]}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"


def area_of(case: str) -> str:
    """The area of a case: its file below the framework's folder, without test_, _ipu and the ending."""
    path = PurePosixPath(case.partition("::")[0])
    name = re.sub(r"^test_|_ipu$", "", path.stem)
    return "/".join([*(part for part in path.parts[:-1] if part not in FRAMEWORKS), name])

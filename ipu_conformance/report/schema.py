"""The schema of report.json, versioned, and of the journal: which words an object has and what each of them is."""

from __future__ import annotations

import datetime
from typing import Any, Mapping, Sequence

from ipu_conformance.errors import ConformanceError
from ipu_conformance.report.results import CAUSES, OUTCOMES
from ipu_conformance.report.verdict import VERDICTS

VERSION = 1


class SchemaError(ConformanceError):
    """A report does not follow the schema; the message names the place."""


class Words:
    """One of some words."""

    def __init__(self, *words: Any) -> None:
        self.words = words


class Each:
    """A list of things of one form."""

    def __init__(self, form: Any) -> None:
        self.form = form


class Table:
    """An object whose keys are free and whose values have one form."""

    def __init__(self, form: Any) -> None:
        self.form = form


class Maybe:
    """A word that may be missing."""

    def __init__(self, form: Any) -> None:
        self.form = form


class Moment:
    """A text such as 2027-01-31T10:00:00+00:00."""


NUMBER = (int, float)
LARGEST = 1e300
"""The largest number; a larger one, an infinity and NaN are refused."""
COUNT_AND_DIGEST = {"count": int, "digest": str}

FRAMEWORK = {
    "target": str,
    "kind": str,
    "ipus": int,
    "reason": str,
    "module": str,
    "version": str,
    "sdk": (str, type(None)),
    "identity": Table(str),
}
"""What executes a framework."""

RUN = {
    "ipu_conformance": str,
    "target": str,
    "level": str,
    "frameworks": Table(FRAMEWORK),
    "count": (int, type(None)),
    "shard": str,
    "suite": str,
    "mandatory": COUNT_AND_DIGEST,
    "waivers": Each({"case": str, "reason": str, "link": str, "until": str}),
}
WHOLE = {"count": Maybe(int), "digest": Maybe(str)}
MARGIN = {"used": NUMBER, "what": str, "checks": int}
CURVE = {
    "metric": str,
    "passed": bool,
    "values": Each(NUMBER),
    "low": Each(NUMBER),
    "mean": Each(NUMBER),
    "high": Each(NUMBER),
}

REPORT: Mapping[str, Any] = {
    "schema": Words(VERSION),
    "verdict": {"word": Words(*VERDICTS), "reasons": Each(str), "remarks": Each(str), "covers": str},
    "run": RUN,
    "planned": COUNT_AND_DIGEST,
    "whole": WHOLE,
    "counts": dict.fromkeys(OUTCOMES, int),
    "areas": Each({"chapter": str, "framework": str, **dict.fromkeys(OUTCOMES, int)}),
    "cases": Each(
        {
            "case": str,
            "framework": str,
            "chapter": str,
            "area": str,
            "outcome": Words(*OUTCOMES),
            "seconds": NUMBER,
            "sentence": Maybe(str),
            "cause": Maybe(Words(*CAUSES)),
            "place": Maybe(str),
            "command": Maybe(str),
            "devices": Maybe(Each(str)),
            "repeated": Maybe(str),
            "margin": Maybe(MARGIN),
        }
    ),
    "curves": Each({"case": str, **CURVE}),
    "devices": Each({"device": str, "failed": int, "of": int}),
    "times": {"started": str, "ended": str, "runs": int},
}

MACHINE = {"platform": str, "processor": str, "cores": (int, type(None)), "memory_bytes": int}
LINE = {"kind": str, "chain": str}
"""Words of every line of the journal."""
JOURNAL: Mapping[str, Mapping[str, Any]] = {
    "begin": {
        **LINE,
        "at": Moment(),
        "run": {**RUN, "mandatory": {"digest": str, "cases": Each(str)}, "advisory": Table(str)},
        "environment": {
            "ipu_conformance": str,
            "python": str,
            "packages": Table((str, type(None))),
            "machine": MACHINE,
            "machines": Maybe(Each(MACHINE)),
            "device": Table(FRAMEWORK),
            "variables": Table(str),
            "fault": str,
            "executable": str,
        },
    },
    "plan": {**LINE, "at": Moment(), "cases": Each(str)},
    "case": {
        **LINE,
        "case": str,
        "outcome": Words(*OUTCOMES),
        "seconds": NUMBER,
        "sentence": Maybe(str),
        "cause": Maybe(Words(*CAUSES)),
        "details": Maybe(str),
        "margin": Maybe(MARGIN),
        "curves": Maybe(Each(CURVE)),
        "timelines": Maybe(
            Each({"framework": str, "workload": Maybe(str), "slots": list, "memory": (list, type(None))})
        ),
        "graphs": Maybe(Each(str)),
        "program": Maybe(str),
        "devices": Maybe(Each(str)),
        "at": Maybe(str),
        "worker": Maybe(str),
    },
    "repeats": {**LINE, "at": Moment(), "case": str, "devices": Table(Each(str)), "left": int},
    "end": {**LINE, "at": Moment(), "why": str, "whole": WHOLE, "left_out": Table(str)},
}
"""The lines of the journal by their kind."""


def require(report: Any, source: str = "The report") -> None:
    """Refuse a report that does not follow the schema, by the first place that does not."""
    if isinstance(report, dict) and report.get("schema") != VERSION:
        raise SchemaError(f"{source} has schema {report.get('schema')!r}, and this release reads {VERSION}.")
    _require(report, REPORT, "report")


def require_journal(entries: Sequence[Mapping[str, Any]], source: str) -> None:
    """Refuse entries of a journal that no run writes, by the first place that does not follow the schema."""
    for number, entry in enumerate(entries, start=1):
        place = f"{source}: line {number}"
        _require(entry.get("kind"), Words(*JOURNAL), f"{place}.kind")
        _require(entry, JOURNAL[entry["kind"]], place)


def _require(value: Any, form: Any, place: str) -> None:
    if isinstance(form, Words):
        if value not in form.words:
            raise SchemaError(f"{place} is {value!r}; the schema allows {', '.join(map(str, form.words))}.")
    elif isinstance(form, Each):
        _require(value, list, place)
        for number, each in enumerate(value):
            _require(each, form.form, f"{place}[{number}]")
    elif isinstance(form, Table):
        _require(value, dict, place)
        for key, each in value.items():
            _require(each, form.form, f"{place}.{key}")
    elif isinstance(form, Mapping):
        _require_words(value, form, place)
    elif isinstance(form, Moment):
        _require(value, str, place)
        _require_moment(value, place)
    elif not isinstance(value, form) or (isinstance(value, bool) and form is not bool):
        names = form if isinstance(form, tuple) else (form,)
        raise SchemaError(f"{place} is {value!r}; the schema has {' or '.join(each.__name__ for each in names)} there.")
    elif isinstance(value, (int, float)) and not abs(value) <= LARGEST:
        raise SchemaError(f"{place} is not a finite number of up to {LARGEST:g}.")


def _require_moment(value: str, place: str) -> None:
    try:
        datetime.datetime.fromisoformat(value)
    except ValueError:
        raise SchemaError(f"{place} is {value!r}; the schema has a time such as 2027-01-31T10:00:00+00:00.") from None


def _require_words(value: Any, form: Mapping[str, Any], place: str) -> None:
    _require(value, dict, place)
    for word, inner in form.items():
        if word in value:
            _require(value[word], inner.form if isinstance(inner, Maybe) else inner, f"{place}.{word}")
        elif not isinstance(inner, Maybe):
            raise SchemaError(f"{place} has no {word}, which the schema asks for.")
    unknown = sorted(set(value) - set(form))
    if unknown:
        raise SchemaError(f"{place} has {unknown[0]}, which the schema does not know.")

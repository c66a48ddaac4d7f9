"""The schema of report.json, versioned, and its validation: which words an object has and what each of them is."""

from __future__ import annotations

from typing import Any, Mapping

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


NUMBER = (int, float)
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

REPORT: Mapping[str, Any] = {
    "schema": Words(VERSION),
    "verdict": {"word": Words(*VERDICTS), "reasons": Each(str), "remarks": Each(str), "covers": str},
    "run": {
        "ipu_conformance": str,
        "target": str,
        "level": str,
        "frameworks": Table(FRAMEWORK),
        "count": (int, type(None)),
        "shard": str,
        "suite": str,
        "mandatory": COUNT_AND_DIGEST,
        "waivers": Each({"case": str, "reason": str, "link": str, "until": str}),
    },
    "planned": COUNT_AND_DIGEST,
    "whole": {"count": Maybe(int), "digest": Maybe(str)},
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
            "margin": Maybe({"used": NUMBER, "what": str, "checks": int}),
        }
    ),
    "curves": Each(
        {
            "case": str,
            "metric": str,
            "passed": bool,
            "values": Each(NUMBER),
            "low": Each(NUMBER),
            "mean": Each(NUMBER),
            "high": Each(NUMBER),
        }
    ),
    "devices": Each({"device": str, "failed": int, "of": int}),
    "times": {"started": str, "ended": str, "runs": int},
}


def require(report: Any) -> None:
    """Refuse a report that does not follow the schema, by the first place that does not."""
    if isinstance(report, dict) and report.get("schema") != VERSION:
        raise SchemaError(f"The report has schema {report.get('schema')!r}, and this release reads {VERSION}.")
    _require(report, REPORT, "report")


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
    elif not isinstance(value, form) or (isinstance(value, bool) and form is not bool):
        names = form if isinstance(form, tuple) else (form,)
        raise SchemaError(f"{place} is {value!r}; the schema has {' or '.join(each.__name__ for each in names)} there.")


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

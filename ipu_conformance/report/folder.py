"""The folder of a report: everything in it besides the journal follows from the journal, file by file."""

from __future__ import annotations

import datetime
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipu_conformance import __version__
from ipu_conformance.atomic_write import replacing
from ipu_conformance.errors import ConformanceError
from ipu_conformance.report import journal, mandatory, repetitions, schema
from ipu_conformance.report.repetitions import Repeats, repeats_of
from ipu_conformance.report.results import FAILED, OUTCOMES, Result, results_of, stem_of
from ipu_conformance.report.verdict import Evidence, Verdict, judged
from ipu_conformance.targets import FRAMEWORKS

SCHEMA = schema.VERSION
REPORT, MANIFEST, ENVIRONMENT, JUNIT, PAGE = FILES = (
    "report.json",
    "manifest.json",
    "environment.json",
    "junit.xml",
    "index.html",
)
FAILURES = "failures"
TRACES = "traces"
GRAPHS = "ir"
MOST_SHOWN = 80
"""Characters of a value in a sentence."""


class ReportError(ConformanceError):
    """A folder holds no report, or one that cannot be used."""


class Record(NamedTuple):
    """What a journal says: the run, the cases that it was to execute, and what became of them."""

    run: Mapping[str, Any]
    """The facts of the first line: tool, target, frameworks, level, shard, digests, waivers."""
    environment: Mapping[str, Any]
    planned: Tuple[str, ...]
    whole: Mapping[str, Any]
    """How many cases all shards have together, and the digest of their ids; empty if no run came to its end."""
    left_out: Mapping[str, str]
    results: Mapping[str, Result]
    ended: str
    """Why the last run ended: empty if it came to its end."""
    times: Mapping[str, Any]
    repeats: Repeats


def recorded(entries: Sequence[Mapping[str, Any]]) -> Record:
    """The record of a journal's entries; a journal without a beginning is refused."""
    begins = [entry for entry in entries if entry["kind"] == "begin"]
    plans = [entry for entry in entries if entry["kind"] == "plan"]
    ends = [entry for entry in entries if entry["kind"] == "end"]
    if not begins:
        raise ReportError("The journal has no beginning: no case was collected; run the qualification again.")
    last_begin = max(number for number, entry in enumerate(entries) if entry["kind"] == "begin")
    last = next((entry for entry in entries[last_begin:] if entry["kind"] == "end"), None)
    stopped = "the run was stopped before its end" if last is None else str(last["why"])
    return Record(
        run=begins[0]["run"],
        environment=begins[-1]["environment"],
        planned=tuple(sorted({case for plan in plans for case in plan["cases"]})),
        whole=next((entry["whole"] for entry in reversed(ends) if entry["whole"]), {}),
        left_out={case: why for end in ends for case, why in end["left_out"].items()},
        results=results_of([dict(entry) for entry in entries]),
        ended=stopped,
        times={
            "started": begins[0]["at"],
            "ended": entries[-1].get("at", "") or begins[-1]["at"],
            "runs": len(begins),
        },
        repeats=repeats_of(entries),
    )


def changed(first: Mapping[str, Any], second: Mapping[str, Any]) -> Dict[str, Tuple[Any, Any]]:
    """What two runs that are to be one do not have in common, by its name: facts of their first lines."""
    rows = [
        {
            **flat(begin["run"]),
            "list of advisory cases": begin["run"]["advisory"],
            "fault": begin["environment"]["fault"],
            "Python": begin["environment"]["python"],
            **{f"version of {name}": version for name, version in begin["environment"]["packages"].items()},
        }
        for begin in (first, second)
    ]
    return differing(*rows)


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Dict[str, Tuple[Any, Any]]:
    """The words whose values differ, with both; None stands for a word that is missing."""
    words = dict.fromkeys([*first, *second])
    return {word: (first.get(word), second.get(word)) for word in words if first.get(word) != second.get(word)}


def flat(run: Mapping[str, Any]) -> Dict[str, Any]:
    """The facts of a run by words that a sentence can hold: what executes a framework stands under its name."""
    rows = {word: value for word, value in run.items() if word not in ("frameworks", "mandatory", "advisory")}
    rows["choice of frameworks"] = ", ".join(sorted(run["frameworks"]))
    for name, facts in sorted(run["frameworks"].items()):
        rows.update({f"{name} {word}": value for word, value in facts.items() if word not in ("identity", "reason")})
        rows.update({f"{name} device's {word}": value for word, value in facts["identity"].items()})
    return {**rows, "mandatory list": run["mandatory"]["digest"]}


def shown(value: Any) -> str:
    """A value of a run, short enough for a sentence."""
    text = "none" if value is None or value == "" or value == [] else " ".join(str(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def verdict_of(record: Record) -> Verdict:
    """The verdict that follows from a record, on the day that it was begun."""
    run = record.run
    frameworks = run["frameworks"]
    listed: FrozenSet[str] = mandatory.of_frameworks(run["mandatory"]["cases"], list(frameworks))
    why = record.ended if record.ended and not record.planned else _why_not_selected(run)
    left_out = {case: record.left_out.get(case) or why for case in listed}
    verdict = judged(
        Evidence(
            planned=record.planned,
            results=record.results,
            mandatory=listed,
            left_out=left_out,
            why_advisory=mandatory.Advisory(run["advisory"]).why,
            waivers=mandatory.waivers_of(run["waivers"], "the journal"),
            today=datetime.date.fromisoformat(record.times["started"][:10]),
            covers=covers(run),
            fault=str(record.environment["fault"]),
            interrupted=record.ended,
            whole=record.whole.get("count", len(record.planned)),
            may_hide=[name for name, row in frameworks.items() if row["kind"] != "emulator"],
            why_parted=_why_not_selected(run) if run["shard"] else record.ended,
        )
    )
    of_devices = repetitions.remarks(record.repeats, record.results) + repetitions.remarks_of_lost(record.results)
    return replace(verdict, remarks=(*verdict.remarks, *of_devices))


def _why_not_selected(run: Mapping[str, Any]) -> str:
    if run["shard"]:
        return f"this is shard {run['shard']}; join all shards with `ipu-conformance report merge`"
    return "the suite that was run has no such cases, or the command line did not ask for them"


def covers(run: Mapping[str, Any]) -> str:
    """What a verdict is about, in a sentence."""
    rows = {name: run["frameworks"][name] for name in FRAMEWORKS if name in run["frameworks"]}
    on = ", ".join(f"{name} ({row['module']} {row['version']}) on {row['target']}" for name, row in rows.items())
    part = f", shard {run['shard']}" if run["shard"] else ""
    return f"{on or 'no framework'}; level {run['level']}{part}; ipu-conformance {run['ipu_conformance']}"


def report_of(record: Record, verdict: Verdict) -> Dict[str, Any]:
    """report.json: what a run with the same results leaves again, apart from ``times`` and ``seconds``."""
    results = [record.results[case] for case in sorted(record.results)]
    run = {key: value for key, value in record.run.items() if key not in ("mandatory", "advisory")}
    listed = record.run["mandatory"]["cases"]
    return {
        "schema": SCHEMA,
        "verdict": verdict.facts(),
        "run": {**run, "mandatory": {"digest": record.run["mandatory"]["digest"], "count": len(listed)}},
        "planned": {"count": len(record.planned), "digest": mandatory.digest_of(record.planned)},
        "whole": dict(record.whole),
        "counts": {outcome: sum(result.outcome == outcome for result in results) for outcome in OUTCOMES},
        "areas": areas(results),
        "cases": [_row(result, record.repeats) for result in results],
        "devices": repetitions.by_device(record.repeats),
        "curves": [{"case": result.case, **curve} for result in results for curve in result.curves],
        "times": dict(record.times),
    }


def _row(result: Result, repeats: Repeats) -> Dict[str, Any]:
    """A case in report.json: where it failed, and on which devices it fails again."""
    row = result.facts()
    if result.outcome == FAILED and result.devices:
        row["devices"] = list(result.devices)
    if result.case in repeats:
        row["repeated"] = repetitions.told(result, repeats)
    return row


def areas(results: Sequence[Result]) -> List[Dict[str, Any]]:
    """Counts of outcomes by chapter and framework."""
    counts: Counter[Tuple[str, str, str]] = Counter()
    for result in results:
        facts = result.facts()
        counts[facts["chapter"], facts["framework"], result.outcome] += 1
    keys = sorted({key[:2] for key in counts})
    return [
        {"chapter": chapter, "framework": framework, **{each: counts[chapter, framework, each] for each in OUTCOMES}}
        for chapter, framework in keys
    ]


def texts(record: Record, verdict: Verdict) -> Dict[str, str]:
    """The files that follow from a journal, by their paths in the folder; the manifest follows from them."""
    from ipu_conformance.report import junit, page, scripts, timelines

    report = report_of(record, verdict)
    schema.require(report)
    return {
        REPORT: pretty(report),
        ENVIRONMENT: pretty(record.environment),
        JUNIT: junit.text(record, verdict),
        PAGE: page.page(record, verdict, report),
        **{f"{FAILURES}/{name}": text for name, text in scripts.files(record).items()},
        **{f"{GRAPHS}/{name}": text for name, text in _graphs(record).items()},
        **{f"{TRACES}/{name}": text for name, text in timelines.files(record).items()},
    }


def require_new(folder: Path) -> None:
    """Refuse a place where no new report can be: there is something, or nothing can be written."""
    if (folder / journal.FILE).exists():
        raise ReportError(f"{folder} holds a report; choose another folder with --out.")
    if os.path.lexists(folder) and not folder.is_dir():
        raise ReportError(f"{folder} is not a folder; choose a new one with --out.")
    if folder.is_dir() and any(folder.iterdir()):
        raise ReportError(f"{folder} holds other files; choose a new folder with --out.")
    require_writable(folder)


def require_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be written; it exists afterwards."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ReportError(f"{folder} cannot be written: {error.strerror}; choose another with --out.") from error


def write(folder: Path, entries: Sequence[Mapping[str, Any]]) -> Verdict:
    """Write all files that follow from the journal; the manifest comes last."""
    record = recorded(entries)
    verdict = verdict_of(record)
    written = texts(record, verdict)
    (folder / MANIFEST).unlink(missing_ok=True)
    for place in (FAILURES, TRACES, GRAPHS):
        shutil.rmtree(folder / place, ignore_errors=True)
    for name in FILES:
        for part in folder.glob(f"{name}.*.part"):  # of a run that was killed while it wrote
            part.unlink()
    for name, text in written.items():
        (folder / name).parent.mkdir(exist_ok=True)
        with replacing(folder / name) as beside:
            beside.write_text(text, encoding="utf-8")
    with replacing(folder / MANIFEST) as beside:
        beside.write_text(sealed(manifest(folder, written, record, verdict)), encoding="utf-8")
    return verdict


def _graphs(record: Record) -> Dict[str, str]:
    """The IR dumps that cases compared or executed, by file name."""
    files = {}
    for case, result in sorted(record.results.items()):
        for number, text in enumerate(result.graphs):
            files[f"{stem_of(case)}{f'-{number + 1}' if number else ''}.json"] = text
    return files


def manifest(folder: Path, names: Iterable[str], record: Record, verdict: Verdict) -> Dict[str, Any]:
    """What the manifest says: the SHA-256 of the journal, of the files that follow from it, of the mandatory list."""
    return {
        "schema": SCHEMA,
        "ipu_conformance": __version__,
        "files": {name: file_digest(folder / name) for name in sorted({journal.FILE, *names})},
        "mandatory": record.run["mandatory"]["digest"],
        "verdict": verdict.word,
    }


def sealed(manifest: Mapping[str, Any]) -> str:
    """A manifest's text, with its own digest."""
    body = {key: value for key, value in manifest.items() if key != "digest"}
    return pretty({**body, "digest": hashlib.sha256(journal.canonical(body).encode()).hexdigest()})


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pretty(data: Any) -> str:
    """Data as readable JSON, always the same for the same data; a case of a report is one line."""
    if isinstance(data, dict) and "cases" in data:
        rest = {key: value for key, value in data.items() if key != "cases"}
        head = json.dumps(rest, indent=1, sort_keys=True, ensure_ascii=False)[: -len("\n}")]
        rows = ",\n".join(journal.canonical(row) for row in data["cases"])
        return f'{head},\n "cases": [\n{rows}\n]\n}}\n'
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_report(folder: Path) -> Dict[str, Any]:
    """The report.json of a folder; one that does not follow the schema is refused."""
    path = folder / REPORT
    try:
        report = json.loads(_text(path))
    except OSError as error:
        raise ReportError(f"{folder} holds no report: {error.strerror}; give the folder of a qualification.") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is not JSON: {error}.") from error
    schema.require(report, str(path))
    return dict(report)


def _text(path: Path) -> str:
    """The text of a file; a pipe, or a link to a device, might never end."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, f"its {path.name} is no regular file")
    return path.read_text(encoding="utf-8")


def spoken(verdict: Verdict, folder: Path) -> List[str]:
    """The verdict in lines of text, the digest that tells this report from any other, and where to read it."""
    return [
        f"{verdict.word}: {verdict.covers}",
        *(f"- {reason}" for reason in verdict.reasons),
        *(f"  {remark}" for remark in verdict.remarks),
        f"digest: {(manifest_of(folder) or {}).get('digest', 'none, the report is not sealed')}",
        f"report: {folder / PAGE}",
    ]


def verdict_from(facts: Mapping[str, Any]) -> Verdict:
    """The verdict of a report.json."""
    return Verdict(facts["word"], tuple(facts["reasons"]), tuple(facts["remarks"]), facts["covers"])


def failed(record: Record) -> List[Result]:
    """The failed cases, in the order of their ids."""
    return [record.results[case] for case in sorted(record.results) if record.results[case].outcome == FAILED]


def manifest_of(folder: Path) -> Optional[Dict[str, Any]]:
    """The manifest of a folder, None if it is not sealed or not readable."""
    try:
        data = json.loads(_text(folder / MANIFEST))
        journal.canonical(data).encode()
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None

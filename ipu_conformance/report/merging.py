"""Joins the reports of shards into one; shards of different runs are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import journal, mandatory, verification
from ipu_conformance.report.folder import Record, ReportError
from ipu_conformance.report.journal import FILE, Journal
from ipu_conformance.report.sharding import parse
from ipu_conformance.report.verdict import Verdict


def merge(folders: Sequence[Path], out: Path) -> Verdict:
    """Write the report of several shards together to a new folder."""
    if len(folders) < 2:
        raise ReportError("One report needs no merging; give the folders of two shards or more.")
    records = []
    for folder in folders:
        wrong = verification.complaints(folder)
        if wrong:
            raise ReportError(f"{folder} cannot be merged: {wrong[0]}")
        records.append(report_folder.recorded(journal.read(folder / FILE).entries))
    _require_one_run(folders, records)
    if (out / FILE).exists():
        raise ReportError(f"{out} holds a report; choose another folder.")
    written = Journal(out / FILE)
    try:
        for entry in _entries(records):
            written.append(entry)
        return report_folder.write(out, written.entries)
    finally:
        written.close()


def _require_one_run(folders: Sequence[Path], records: Sequence[Record]) -> None:
    """Refuse reports that are not shards of one run, by what differs."""
    first = _comparable(records[0])
    for folder, record in zip(folders, records):
        if not record.run["shard"]:
            raise ReportError(f"{folder} is the report of a whole run; merge takes those of shards (--shard 1/2).")
        for word, value in _comparable(record).items():
            if value != first[word]:
                raise ReportError(f"{folder} differs from {folders[0]} in its {word}; merge takes shards of one run.")
    seen: Dict[str, Path] = {}
    for folder, record in zip(folders, records):
        shard = record.run["shard"]
        if shard in seen:
            raise ReportError(f"{seen[shard]} and {folder} are both shard {shard}; give each shard once.")
        seen[shard] = folder


def _comparable(record: Record) -> Dict[str, Any]:
    run = {word: value for word, value in record.run.items() if word != "shard"}
    shard = parse(record.run["shard"])
    return {
        **run,
        "number of shards": shard and shard.of,
        "Python": record.environment["python"],
        "fault": record.environment["fault"],
        "packages": record.environment["packages"],
    }


def _entries(records: Sequence[Record]) -> List[Mapping[str, Any]]:
    """The journal of all shards together."""
    ordered = sorted(records, key=lambda record: _number(record))
    first = ordered[0]
    whole = next((record.whole for record in ordered if record.whole), {})
    planned = sorted({case for record in ordered for case in record.planned})
    of = parse(first.run["shard"])
    missing = sorted(set(range(1, (of.of if of else 0) + 1)) - {_number(record) for record in ordered})
    why = "; ".join(record.ended for record in ordered if record.ended)
    if missing:
        why = f"shard {', '.join(map(str, missing))} of {of.of if of else 0} is missing"
    left_out = {case: each for record in ordered for case, each in record.left_out.items()}
    if missing:
        left_out.update(dict.fromkeys(set(first.run["mandatory"]["cases"]) - set(planned) - set(left_out), why))
    elif whole and mandatory.digest_of(planned) != whole["digest"]:
        raise ReportError("The shards together are not the run that they are parts of; run them from one command line.")
    return [
        {
            "kind": "begin",
            "at": min(record.times["started"] for record in ordered),
            "run": {**first.run, "shard": ""},
            "environment": {**first.environment, "machines": [record.environment["machine"] for record in ordered]},
        },
        {"kind": "plan", "at": first.times["started"], "cases": planned},
        *(record.results[case].entry() for record in ordered for case in sorted(record.results)),
        *(
            {"kind": "repeats", "at": record.times["ended"], "case": case, "devices": devices}
            for record in ordered
            for case, devices in record.repeats.items()
        ),
        {
            "kind": "end",
            "at": max(record.times["ended"] for record in ordered),
            "why": why,
            "whole": whole,
            "left_out": left_out,
        },
    ]


def _number(record: Record) -> int:
    shard = parse(record.run["shard"])
    return 0 if shard is None else shard.number

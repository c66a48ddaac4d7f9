"""Joins the reports of shards into one; shards of different runs are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import journal, mandatory, verification
from ipu_conformance.report.folder import Record, ReportError
from ipu_conformance.report.journal import FILE, Journal
from ipu_conformance.report.sharding import Shard, parse
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
    entries = _entries(records)
    report_folder.require_new(out)
    written = Journal(out / FILE)
    try:
        for entry in entries:
            written.append(entry)
        return report_folder.write(out, written.entries)
    finally:
        written.close()


def _require_one_run(folders: Sequence[Path], records: Sequence[Record]) -> None:
    """Refuse reports that are not shards of one run, by what differs."""
    for folder, record in zip(folders, records):
        if not record.run["shard"]:
            raise ReportError(f"{folder} is the report of a whole run; merge takes those of shards (--shard 1/2).")
    for folder, record in zip(folders, records):
        for word, (first, other) in report_folder.changed(_comparable(records[0]), _comparable(record)).items():
            raise ReportError(
                f"{folder} differs from {folders[0]} in its {word}: {report_folder.shown(other)}, "
                f"not {report_folder.shown(first)}; merge takes shards of one run."
            )
    seen: Dict[str, Path] = {}
    for folder, record in zip(folders, records):
        shard = record.run["shard"]
        if shard in seen:
            raise ReportError(f"{seen[shard]} and {folder} are both shard {shard}; give each shard once.")
        seen[shard] = folder


def _comparable(record: Record) -> Dict[str, Any]:
    """What the shards of a run have in common; each may have run on devices of its own."""
    run = {word: value for word, value in record.run.items() if word != "shard"}
    frameworks = {name: {**row, "identity": {}} for name, row in run["frameworks"].items()}
    run.update({"frameworks": frameworks, "number of shards": _shard(record).of})
    return {"run": run, "environment": record.environment}


def _frameworks(records: Sequence[Record]) -> Dict[str, Any]:
    """What executes each framework, with the names of the devices of all shards."""
    rows: Dict[str, Any] = {}
    for name, row in records[0].run["frameworks"].items():
        each = [record.run["frameworks"][name]["identity"] for record in records]
        identity = {}
        for word in dict.fromkeys(word for names in each for word in names):
            values = [names.get(word, "") for names in each]
            numbered = (f"shard {_shard(record).number}: {value}" for record, value in zip(records, values))
            identity[word] = values[0] if len(set(values)) == 1 else "; ".join(numbered)
        rows[name] = {**row, "identity": identity}
    return rows


def _entries(records: Sequence[Record]) -> List[Mapping[str, Any]]:
    """The journal of all shards together."""
    ordered = sorted(records, key=lambda record: _shard(record).number)
    first = ordered[0]
    whole = next((record.whole for record in ordered if record.whole), {})
    planned = sorted({case for record in ordered for case in record.planned})
    of = _shard(first).of
    missing = sorted(set(range(1, of + 1)) - {_shard(record).number for record in ordered})
    why = "; ".join(record.ended for record in ordered if record.ended)
    if missing:
        numbers = ", ".join(map(str, missing))
        why = f"shard {numbers} of {of} is missing" if len(missing) == 1 else f"shards {numbers} of {of} are missing"
    left_out = {case: each for record in ordered for case, each in record.left_out.items()}
    if missing:
        left_out.update(dict.fromkeys(set(first.run["mandatory"]["cases"]) - set(planned) - set(left_out), why))
    elif whole and mandatory.digest_of(planned) != whole["digest"]:
        raise ReportError("The shards together are not the run that they are parts of; run them from one command line.")
    return [
        {
            "kind": "begin",
            "at": min(record.times["started"] for record in ordered),
            "run": {**first.run, "shard": "", "frameworks": _frameworks(ordered)},
            "environment": {**first.environment, "machines": [record.environment["machine"] for record in ordered]},
        },
        {"kind": "plan", "at": first.times["started"], "cases": planned},
        *(record.results[case].entry() for record in ordered for case in sorted(record.results)),
        *(
            {"kind": "repeats", "at": record.times["ended"], "case": case, "devices": devices, "left": 0}
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


def _shard(record: Record) -> Shard:
    """The shard of a record, which is one."""
    shard = parse(record.run["shard"])
    if shard is None:
        raise ReportError("The report of a whole run is no shard.")
    return shard

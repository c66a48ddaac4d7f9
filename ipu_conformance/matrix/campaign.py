"""Makes the matrix: records each framework's cases once, then runs the faults, in processes side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ipu_conformance.emulator.faults import ENVIRONMENT, catalogue
from ipu_conformance.matrix import search, session, table
from ipu_conformance.matrix.table import Matrix, MatrixError
from ipu_conformance.matrix.verdict import Verdict
from ipu_conformance.targets import FRAMEWORKS

ENOUGH = 2
"""Families of cases that are to notice a fault before the search ends."""
MOST = 60
"""Cases that are tried under one fault."""
PROVOCATIONS, SLIPS = 5, 24
"""Faults of the catalogue, and then slips, under which a family that has noticed nothing is tried."""

RESUMED = ("judge", "provoke", "confirm")
"""The kinds of jobs that go on behind a fault which has ended their process."""

Say = Callable[[str], None]
Hints = Mapping[str, Mapping[str, Sequence[str]]]
"""By framework and fault, the cases that are known to notice it."""


def make(
    folder: Path,
    frameworks: Sequence[str],
    level: str,
    processes: int,
    say: Say,
    paths: Sequence[str] = (),
    hints: Optional[Hints] = None,
) -> Matrix:
    """Record, judge every fault, then provoke every family that noticed none; what a folder holds is not done again."""
    folder.mkdir(parents=True, exist_ok=True)
    known = hints or {}
    where = {"paths": list(paths)}
    killers = {name: sorted({case for cases in known.get(name, {}).values() for case in cases}) for name in frameworks}
    recordings = [
        _job("record", name, folder, {"level": level, "killers": killers[name], **where}) for name in frameworks
    ]
    _run([job for job in recordings if not _ended(job)], processes, say)
    judged: List[Path] = []
    for name in frameworks:
        tries = search.candidates(_places(folder, name), _recorded(folder, name), known.get(name, {}), MOST)
        judged += _shared("judge", name, folder, tries, {**where, "enough": ENOUGH}, processes)
    _run([job for job in judged if not _ended(job)], processes, say)
    provoked: List[Path] = []
    for name in frameworks:
        runs = _runs(folder, name, "judge")
        recording, cases = _recorded(folder, name), known.get(name, {})
        faults = search.provocations(_places(folder, name), recording, cases, runs, PROVOCATIONS)
        provoked += _shared("provoke", name, folder, faults, {**where, "most": SLIPS}, processes)
    _run([job for job in provoked if not _ended(job)], processes, say)
    parts = []
    for name in frameworks:
        runs = _runs(folder, name, "judge") + _runs(folder, name, "provoke")
        parts.append(table.gathered(name, _faults(folder, name), _recorded(folder, name), runs))
    return table.joined(parts)


class Confirmation(NamedTuple):
    """What became of the kills that are claimed for one framework when they were tried again."""

    faults: int
    """Faults with a kill."""
    lost: List[str]
    """Of these the ones that no case noticed again."""
    kills: int
    unconfirmed: List[Dict[str, Any]]
    """The runs of those that did not come again."""
    matrix: Matrix
    """What these runs say, and nothing else: kills that came, and every family of cases that the suite has."""


def confirm(
    folder: Path, frameworks: Sequence[str], processes: int, say: Say, one_in: int = 1, claims: Optional[Hints] = None
) -> Dict[str, Confirmation]:
    """Try every kill that is claimed, or those of one fault in so many, each with a run without the fault behind it.

    The published ones are, those of ``claims`` beside them. What the catalogue no longer has is not tried.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = joint(published(), claims or {})
    claimed, described = {}, {}
    for name in frameworks:
        catalogue.load(name)
        described[name] = session.described(name)
        there = [(fault, cases) for fault, cases in known.get(name, {}).items() if cases]
        there = [(fault, cases) for fault, cases in there if fault in described[name] or fault.startswith(table.SLIP)]
        claimed[name] = dict(there[::one_in])
    jobs = [job for name in frameworks for job in _shared("confirm", name, folder, claimed[name], {}, processes)]
    _run([job for job in jobs if not _ended(job)], processes, say)
    return {
        name: _confirmed(name, claimed[name], _runs(folder, name, "confirm"), described[name], _families(folder, name))
        for name in frameworks
    }


def joint(*sources: Hints) -> Dict[str, Dict[str, List[str]]]:
    """The cases that several sources know to notice each fault, each once."""
    known: Dict[str, Dict[str, List[str]]] = {}
    for source in sources:
        for name, rows in source.items():
            for fault, cases in rows.items():
                before = known.setdefault(name, {}).setdefault(fault, [])
                before.extend(case for case in dict.fromkeys(cases) if case not in before)
    return known


def _confirmed(
    name: str,
    claimed: Mapping[str, Sequence[str]],
    runs: Sequence[Dict[str, Any]],
    described: Mapping[str, Mapping[str, str]],
    families: Sequence[str],
) -> Confirmation:
    noticed = {run["fault"] for run in runs if run["verdict"] == Verdict.KILLED}
    tried = [run for run in runs if run["verdict"] != Verdict.SKIPPED]
    matrix = table.gathered(name, described, families, tried)
    return Confirmation(
        len(claimed),
        [fault for fault in claimed if fault not in noticed],
        sum(map(len, claimed.values())),
        [run for run in runs if run["verdict"] != Verdict.KILLED],
        matrix,
    )


def _families(folder: Path, framework: str) -> List[str]:
    families: List[str] = json.loads((folder / f"{framework}.families.json").read_text(encoding="utf-8"))
    return families


def published() -> Dict[str, Dict[str, List[str]]]:
    """The cases that noticed each fault in the published matrix."""
    try:
        matrix = table.read()
    except MatrixError:
        return {}
    return {name: {fault: row.kills for fault, row in rows.items()} for name, rows in matrix.rows.items()}


def recorded(paths: Sequence[Path]) -> Dict[str, List[Dict[str, Any]]]:
    """The runs under faults that were written down, by framework, with which the name of each file begins."""
    found: Dict[str, List[Dict[str, Any]]] = {}
    for path in paths:
        framework = path.name.partition(".")[0]
        if framework not in FRAMEWORKS:
            raise MatrixError(f"{path.name} holds no runs: a name begins with one of {', '.join(FRAMEWORKS)}.")
        try:
            runs = session.lines(path)
        except OSError as error:
            raise MatrixError(f"{path} cannot be read: {error.strerror}.") from error
        found.setdefault(framework, []).extend(run for run in runs if run.get("fault"))
    return found


def killers(paths: Sequence[Path]) -> Dict[str, Dict[str, List[str]]]:
    """The cases that noticed each fault in runs that were written down."""
    found: Dict[str, Dict[str, List[str]]] = {}
    for framework, runs in recorded(paths).items():
        for run in runs:
            if run["verdict"] == Verdict.KILLED:
                found.setdefault(framework, {}).setdefault(run["fault"], []).append(run["case"])
    return found


def _faults(folder: Path, framework: str) -> Dict[str, Dict[str, str]]:
    faults: Dict[str, Dict[str, str]] = json.loads((folder / f"{framework}.faults.json").read_text(encoding="utf-8"))
    return faults


def _places(folder: Path, framework: str) -> Dict[str, str]:
    return {fault: each["place"] for fault, each in _faults(folder, framework).items()}


def _recorded(folder: Path, framework: str) -> Dict[str, Dict[str, Any]]:
    return {str(note["case"]): note for note in session.lines(folder / f"{framework}.record.jsonl")}


def _runs(folder: Path, framework: str, kind: str) -> List[Dict[str, Any]]:
    return [note for path in sorted(folder.glob(f"{framework}.{kind}*.jsonl")) for note in session.lines(path)]


def _shared(
    kind: str,
    framework: str,
    folder: Path,
    candidates: Mapping[str, Sequence[str]],
    settings: Mapping[str, Any],
    processes: int,
) -> List[Path]:
    """Jobs that share the candidates among processes."""
    jobs = []
    for part in range(processes):
        share = {key: each for number, (key, each) in enumerate(candidates.items()) if number % processes == part}
        jobs.append(_job(f"{kind}{part}", framework, folder, {**settings, "candidates": share}))
    return jobs


def _job(kind: str, framework: str, folder: Path, settings: Mapping[str, Any]) -> Path:
    """Write what one process is to do; its result stands beside it."""
    path = folder / f"{framework}.{kind}.json"
    path.write_text(json.dumps({"kind": kind, "framework": framework, **settings}), encoding="utf-8")
    return path


def _result(job: Path) -> Path:
    return job.with_suffix(".jsonl")


def _ended(job: Path) -> bool:
    return job.with_suffix(".done").exists()


def _run(jobs: Sequence[Path], processes: int, say: Say) -> None:
    waiting = list(jobs)
    running: Dict[Path, subprocess.Popen[bytes]] = {}
    environment = {name: value for name, value in os.environ.items() if name != ENVIRONMENT}
    environment.update(OMP_NUM_THREADS="1", TF_NUM_INTRAOP_THREADS="1")
    while waiting or running:
        while waiting and len(running) < processes:
            job = waiting.pop(0)
            with job.with_suffix(".log").open("wb") as log:
                command = [sys.executable, "-m", "ipu_conformance.matrix.campaign", str(job)]
                running[job] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            say(f"{job.stem}: started")
        time.sleep(1)
        for job, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[job]
            if process.returncode < 0 and job.stem.split(".")[-1].startswith(RESUMED) and session.trying(_result(job)):
                say(f"{job.stem}: a fault ended the process; it goes on behind that")
                waiting.insert(0, job)
                continue
            if process.returncode:
                raise MatrixError(f"{job.stem} ended with {process.returncode}; {job.with_suffix('.log')} says why.")
            say(f"{job.stem}: {len(session.lines(_result(job)))} runs")


def _before(job: Path) -> List[Dict[str, Any]]:
    """What a job found before it was interrupted; a fault that ended the process broke the device."""
    notes = session.lines(_result(job)) if _result(job).exists() else []
    last = session.trying(_result(job))
    ended = last and all((note["fault"], note["case"]) != (last["fault"], last["case"]) for note in notes)
    return (
        [*notes, {**last, "verdict": Verdict.BROKE, "seconds": 0.0, "sentence": "the process ended"}]
        if ended
        else notes
    )


def work(job: Path) -> None:
    """Do what a job says, in this process."""
    asked = json.loads(job.read_text(encoding="utf-8"))
    framework, kind = asked["framework"], str(asked["kind"])
    before = _before(job) if kind.startswith(RESUMED) else []
    with _result(job).open("w", encoding="utf-8") as out:
        out.writelines(f"{json.dumps(note)}\n" for note in before)
        out.flush()
        if kind == "record":
            session.record(framework, asked["level"], asked["killers"], out, asked["paths"])
            rows = session.described(framework)
            job.with_name(f"{framework}.faults.json").write_text(json.dumps(rows), encoding="utf-8")
        elif kind.startswith("confirm"):
            families = session.confirm(framework, asked["candidates"], out, before)
            job.with_name(f"{framework}.families.json").write_text(json.dumps(families), encoding="utf-8")
        elif kind.startswith("judge"):
            session.judge(framework, asked["candidates"], asked["enough"], out, asked["paths"], before)
        else:
            session.provoke(framework, asked["candidates"], asked["most"], out, asked["paths"], before)
    job.with_suffix(".done").touch()


if __name__ == "__main__":
    try:
        work(Path(sys.argv[1]))
    except session.SpoiledError:  # a new process goes on behind the fault
        os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]])

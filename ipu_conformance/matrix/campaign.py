"""Makes the matrix: records each framework's cases once, then runs the faults, in processes side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence

from ipu_conformance.emulator.faults import ENVIRONMENT
from ipu_conformance.matrix import search, session, table
from ipu_conformance.matrix.table import Matrix, MatrixError

ENOUGH = 2
"""Families of cases that are to notice a fault before the search ends."""
MOST = 60
"""Cases that are tried under one fault."""

Say = Callable[[str], None]


def make(
    folder: Path, frameworks: Sequence[str], level: str, processes: int, say: Say, paths: Sequence[str] = ()
) -> Matrix:
    """Record and judge; what a folder holds already is not done again."""
    folder.mkdir(parents=True, exist_ok=True)
    known = _hints()
    jobs = [_job("record", name, folder, {"level": level, "paths": list(paths)}) for name in frameworks]
    _run([job for job in jobs if not _ended(job)], processes, say)
    judged = []
    for name in frameworks:
        recording = {str(note["case"]): note for note in session.lines(folder / f"{name}.record.jsonl")}
        faults = json.loads((folder / f"{name}.faults.json").read_text(encoding="utf-8"))
        places = {fault: str(each["place"]) for fault, each in faults.items()}
        tries = search.candidates(places, recording, known.get(name, {}), MOST)
        for part in range(processes):
            share = {fault: cases for number, (fault, cases) in enumerate(tries.items()) if number % processes == part}
            settings = {"level": level, "paths": list(paths), "candidates": share, "enough": ENOUGH}
            judged.append(_job(f"judge{part}", name, folder, settings))
    _run([job for job in judged if not _ended(job)], processes, say)
    parts = []
    for name in frameworks:
        faults = json.loads((folder / f"{name}.faults.json").read_text(encoding="utf-8"))
        runs = [note for part in range(processes) for note in session.lines(folder / f"{name}.judge{part}.jsonl")]
        parts.append(table.gathered(name, faults, session.lines(folder / f"{name}.record.jsonl"), runs))
    return table.joined(parts)


def _hints() -> Dict[str, Dict[str, List[str]]]:
    """The cases that noticed each fault the last time."""
    try:
        matrix = table.read()
    except MatrixError:
        return {}
    return {name: {fault: row.kills for fault, row in rows.items()} for name, rows in matrix.rows.items()}


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
            if process.returncode:
                raise MatrixError(f"{job.stem} ended with {process.returncode}; {job.with_suffix('.log')} says why.")
            say(f"{job.stem}: {len(session.lines(_result(job)))} runs")


def work(job: Path) -> None:
    """Do what a job says, in this process."""
    asked = json.loads(job.read_text(encoding="utf-8"))
    framework = asked["framework"]
    with _result(job).open("w", encoding="utf-8") as out:
        if asked["kind"] == "record":
            session.record(framework, asked["level"], out, asked["paths"])
            rows = {fault.name: {"what": fault.what, "place": fault.point} for fault in session.known(framework)}
            job.with_name(f"{framework}.faults.json").write_text(json.dumps(rows), encoding="utf-8")
        else:
            settings = (asked["candidates"], asked["enough"], out, asked["paths"])
            session.judge(framework, asked["level"], *settings)
    job.with_suffix(".done").touch()


if __name__ == "__main__":
    work(Path(sys.argv[1]))

"""Journals of runs that never took place, for tests: a suite of seven cases, two of them mandatory."""

from ipu_conformance import __version__
from ipu_conformance.report import mandatory
from ipu_conformance.report.journal import FILE, Journal
from ipu_conformance.report.results import Result

CASES = (
    "training/test_updates_ipu.py::test_weights[paddle-D2-G3-R5]",
    "training/test_updates_ipu.py::test_weights[poptorch-D2-G3-R5]",
    "training/test_updates_ipu.py::test_losses[poptorch-D2-G3-R5]",
    "poptorch/feeding/test_batching_ipu.py::test_order[D2-G3]",
    "paddle/ir/test_dumps_ipu.py::test_dump",
    "ops/test_ops_ipu.py::test_forward[poptorch-softmax-softmax-float32-drawn]",
    "ops/test_ops_ipu.py::test_forward[paddle-softmax-softmax-float32-drawn]",
)
MANDATORY = CASES[:2]


def framework(name, target="acme"):
    """What executes a framework."""
    return {
        "target": target,
        "kind": "hardware",
        "ipus": 8,
        "reason": "an Acme accelerator",
        "module": name,
        "version": "2.1",
        "sdk": None,
        "identity": {"serial": "A-17"},
    }


def run(**changes):
    """The facts of a run."""
    facts = {
        "ipu_conformance": __version__,
        "target": "acme",
        "level": "premerge",
        "frameworks": {"poptorch": framework("torch"), "paddle": framework("paddle")},
        "count": None,
        "shard": "",
        "suite": "5" * 64,
        "mandatory": {"digest": mandatory.digest_of(MANDATORY), "cases": list(MANDATORY)},
        "advisory": {},
        "waivers": [],
    }
    return {**facts, **changes}


ENVIRONMENT = {
    "ipu_conformance": __version__,
    "python": "3.11.7",
    "packages": {"torch": "2.1"},
    "machine": {"platform": "Linux", "processor": "x86_64", "cores": 3, "memory_bytes": 2**34},
    "device": {},
    "variables": {},
    "fault": "",
    "executable": "/usr/bin/python",
}


def passed(case, seconds=0.5, **facts):
    """A case that passed."""
    return Result(case, "passed", seconds, **facts)


def failed(case, sentence="the loss of step 0, replica 2 differs: actual 1.5, expected 1.25.", **facts):
    """A case whose check failed."""
    return Result(case, "failed", 0.25, sentence=sentence, cause="check", details="E   CheckFailure", **facts)


def entries(results, *, planned=CASES, environment=ENVIRONMENT, why="", left_out=None, ended=True, **changes):
    """The entries of a journal, without their chains."""
    lines = [
        {"kind": "begin", "at": "2026-11-17T10:00:00+00:00", "run": run(**changes), "environment": environment},
        {"kind": "plan", "at": "2026-11-17T10:00:01+00:00", "cases": sorted(planned)},
        *(result.entry() for result in results),
    ]
    if ended:
        cases = CASES if changes.get("shard") else planned
        whole = {"count": len(cases), "digest": mandatory.digest_of(cases)}
        end = {"why": why, "whole": whole, "left_out": left_out or {}}
        lines.append({"kind": "end", "at": "2026-11-17T10:00:09+00:00", **end})
    return lines


def write(folder, lines):
    """Write a journal and return its chained entries."""
    journal = Journal(folder / FILE)
    for line in lines:
        journal.append(line)
    journal.close()
    return journal.entries

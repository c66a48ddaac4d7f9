"""Failed cases that were repeated on each device: a bad device, or a bad case?"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Sequence

from ipu_conformance.report.results import CRASH, FAILED, PASSED, Result
from ipu_conformance.workers.leases import JOINED

Repeats = Mapping[str, Mapping[str, Sequence[str]]]
"""Outcomes by case, then by the devices that it was repeated on."""


def repeats_of(entries: Sequence[Mapping[str, Any]]) -> Dict[str, Dict[str, List[str]]]:
    """The repetitions that a journal holds."""
    rows: Dict[str, Dict[str, List[str]]] = {}
    for entry in entries:
        if entry["kind"] == "repeats":
            rows.setdefault(entry["case"], {}).update({group: list(each) for group, each in entry["devices"].items()})
    return {case: dict(sorted(rows[case].items())) for case in sorted(rows)}


def by_device(repeats: Repeats) -> List[Dict[str, Any]]:
    """How many repetitions failed in which each device took part, of how many."""
    counts: Dict[str, List[int]] = {}
    for outcomes in repeats.values():
        for group, each in outcomes.items():
            for device in group.split(JOINED):
                row = counts.setdefault(device, [0, 0])
                row[0] += _failed(each)
                row[1] += _executed(each)
    return [{"device": device, "failed": failed, "of": of} for device, (failed, of) in sorted(counts.items())]


def suspects(repeats: Repeats) -> List[str]:
    """The fewest devices that explain all failures: each time the one that takes part in most of those left."""
    left = [(group, _failed(each)) for rows in repeats.values() for group, each in rows.items() if _failed(each)]
    shares = {row["device"]: row["failed"] / max(1, row["of"]) for row in by_device(repeats)}
    named: List[str] = []
    while left:
        counts: Dict[str, int] = {}
        for group, failed in left:
            for device in group.split(JOINED):
                counts[device] = counts.get(device, 0) + failed
        named.append(max(sorted(counts), key=lambda device: (counts[device], shares[device])))
        left = [(group, failed) for group, failed in left if named[-1] not in group.split(JOINED)]
    return sorted(named)


def sentence(outcomes: Mapping[str, Sequence[str]], first: Sequence[str] = ()) -> str:
    """What the repetitions of a case tell, in words; ``first`` are the devices on which it failed before them."""
    outcomes = {group: each for group, each in outcomes.items() if _executed(each)}
    failing = [group for group, each in outcomes.items() if _failed(each)]
    often = ", ".join(f"{group} ({_failed(outcomes[group])} of {_executed(outcomes[group])})" for group in failing)
    if not outcomes:
        return "no device was free to repeat it"
    if len(outcomes) == 1:
        (group,) = outcomes
        return f"repeated on {often or group} alone{'' if often else ' it passed'}: no other device to compare with"
    if not failing:
        before = f"it failed on {JOINED.join(first)}, and " if first else ""
        return f"{before}repeated on each device it passed everywhere"
    if len(failing) == len(outcomes):
        return "repeated on each device it failed on all of them"
    return f"repeated on each device it failed on {often} only"


def told(result: Result, repeats: Repeats) -> str:
    """What the repetitions of a failed case tell; empty if it was not repeated."""
    return sentence(repeats[result.case], result.devices) if result.case in repeats else ""


def remarks(repeats: Repeats, results: Mapping[str, Result] = MappingProxyType({})) -> List[str]:
    """A sentence for each device that explains failures which others do not have, and for a case that blames none."""
    shared = {case: each for case, each in repeats.items() if _tells_devices_apart(each)}
    rows = {row["device"]: row for row in by_device(shared)}
    counts = {device: f"{row['failed']} of {row['of']}" for device, row in rows.items()}
    sentences = [
        f"Device {device} failed {counts[device]} repetitions of cases that pass on others."
        for device in suspects(shared)
    ]
    others = [case for case in repeats if case not in shared]
    first = {case: result.devices for case, result in results.items()}
    return sentences + [f"{case}: {sentence(repeats[case], first.get(case, ()))}." for case in others]


def _tells_devices_apart(outcomes: Mapping[str, Sequence[str]]) -> bool:
    return len({bool(_failed(each)) for each in outcomes.values() if _executed(each)}) > 1


def remarks_of_lost(results: Mapping[str, Result]) -> List[str]:
    """A sentence for each device on which cases were lost: they took their process with them and are not repeated."""
    lost = [result for result in results.values() if result.cause == CRASH and result.devices]
    counts = Counter(device for result in lost for device in result.devices)
    return [
        f"Device {device} was in use by {count} of {len(lost)} cases that crashed or hung in native code."
        for device, count in sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    ]


def _failed(outcomes: Sequence[str]) -> int:
    return sum(outcome == FAILED for outcome in outcomes)


def _executed(outcomes: Sequence[str]) -> int:
    return sum(outcome in (PASSED, FAILED) for outcome in outcomes)

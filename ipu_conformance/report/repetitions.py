"""Failed cases that were repeated on each device: a bad device, or a bad case?"""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, List, Mapping, Sequence

from ipu_conformance.report.results import CRASH, Result
from ipu_conformance.workers.leases import JOINED

Repeats = Mapping[str, Mapping[str, Sequence[str]]]
"""Outcomes by case, then by the devices that it was repeated on."""


def repeats_of(entries: Sequence[Mapping[str, Any]]) -> Dict[str, Dict[str, List[str]]]:
    """The repetitions that a journal holds."""
    rows: Dict[str, Dict[str, List[str]]] = {}
    for entry in entries:
        if entry["kind"] == "repeats":
            rows[entry["case"]] = {group: list(each) for group, each in sorted(entry["devices"].items())}
    return dict(sorted(rows.items()))


def by_device(repeats: Repeats) -> List[Dict[str, Any]]:
    """How many repetitions failed in which each device took part, of how many."""
    counts: Dict[str, List[int]] = {}
    for outcomes in repeats.values():
        for group, each in outcomes.items():
            for device in group.split(JOINED):
                row = counts.setdefault(device, [0, 0])
                row[0] += _failed(each)
                row[1] += len(each)
    return [{"device": device, "failed": failed, "of": of} for device, (failed, of) in sorted(counts.items())]


def suspects(repeats: Repeats) -> List[str]:
    """The fewest devices that explain all failures: each time the one that takes part in most of those left."""
    left = [(group, _failed(each)) for rows in repeats.values() for group, each in rows.items() if _failed(each)]
    shares = {row["device"]: row["failed"] / row["of"] for row in by_device(repeats)}
    named: List[str] = []
    while left:
        counts: Dict[str, int] = {}
        for group, failed in left:
            for device in group.split(JOINED):
                counts[device] = counts.get(device, 0) + failed
        named.append(max(sorted(counts), key=lambda device: (counts[device], shares[device])))
        left = [(group, failed) for group, failed in left if named[-1] not in group.split(JOINED)]
    return sorted(named)


def sentence(outcomes: Mapping[str, Sequence[str]]) -> str:
    """What the repetitions of a case tell, in words."""
    failing = [group for group, each in outcomes.items() if _failed(each)]
    if not failing:
        return "repeated on each device it passed everywhere"
    if len(failing) == len(outcomes):
        return "repeated on each device it failed on all of them"
    often = ", ".join(f"{group} ({_failed(outcomes[group])} of {len(outcomes[group])})" for group in failing)
    return f"repeated on each device it failed on {often} only"


def remarks(repeats: Repeats) -> List[str]:
    """A sentence for each device that explains failures which others do not have, and for a case that fails on all."""
    shared = {case: each for case, each in repeats.items() if not all(map(_failed, each.values()))}
    rows = {row["device"]: row for row in by_device(shared)}
    counts = {device: f"{row['failed']} of {row['of']}" for device, row in rows.items()}
    sentences = [
        f"Device {device} failed {counts[device]} repetitions of cases that pass on others."
        for device in suspects(shared)
    ]
    everywhere = [case for case in repeats if case not in shared]
    return sentences + [f"{case}: {sentence(repeats[case])}." for case in everywhere]


def remarks_of_lost(results: Mapping[str, Result]) -> List[str]:
    """A sentence for each device on which cases were lost: they took their process with them and are not repeated."""
    lost = [result for result in results.values() if result.cause == CRASH and result.devices]
    counts = Counter(device for result in lost for device in result.devices)
    return [
        f"Device {device} was in use by {count} of {len(lost)} cases that crashed or hung in native code."
        for device, count in sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    ]


def _failed(outcomes: Sequence[str]) -> int:
    return sum(outcome == "failed" for outcome in outcomes)

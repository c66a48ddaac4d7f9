"""Shards: parts of a run for several machines, the same on each of them, about equally long."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Set

from ipu_conformance.errors import ConformanceError
from ipu_conformance.workers.scheduling import chunks, cost

MOST = 10_000
"""Shards of a run; more than there are cases are of no use."""


class ShardError(ConformanceError):
    """What was given is no shard."""


class Shard(NamedTuple):
    """Part ``number`` of ``of``, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse(text: Optional[str]) -> Optional[Shard]:
    """The shard of a text such as 2/5, None where none is given."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found.group(1)) <= int(found.group(2)) <= MOST:
        raise ShardError(f"The shard is {text!r}; write 2/5 for the second of five.")
    return Shard(int(found.group(1)), int(found.group(2)))


def part(cases: Sequence[str], shard: Shard) -> Set[str]:
    """The cases of a shard: chunks, which share a compiled program, stay whole, and the longest are dealt out first."""
    chunk_of = chunks([f"ipu/{case}" for case in sorted(cases)])
    members: Dict[str, List[str]] = {}
    costs: Dict[str, float] = {}
    for case in sorted(cases):
        chunk = chunk_of[f"ipu/{case}"]
        members.setdefault(chunk, []).append(case)
        costs[chunk] = costs.get(chunk, 0.0) + cost(f"ipu/{case}")
    loads = [0.0] * shard.of
    mine: Set[str] = set()
    for chunk in sorted(members, key=lambda each: (-costs[each], each)):
        least = loads.index(min(loads))
        loads[least] += costs[chunk]
        if least == shard.number - 1:
            mine.update(members[chunk])
    return mine

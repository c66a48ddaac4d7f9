"""The table of ops with the witnesses that agreed and the worst error in units of the derived tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import Op
from ipu_conformance.oracle.sample import Sample, SeededChooser
from ipu_conformance.oracle.tolerance import ops as tolerance
from ipu_conformance.text_table import text_table
from tests.unit.oracle.witnesses.agreement import agreement, cotangents
from tests.unit.oracle.witnesses.witness import Witness

DTYPES = ("float64", "float32")
PARTS = ("forward", "gradient")
NARROW = 1e-3
"""A bound whose worst error in float32 stays below this is a thousand times too wide."""


@dataclass(frozen=True)
class Line:
    """One op's result: for each witness its worst ratios, keyed by (part, dtype); absent where nothing was compared."""

    op: str
    family: str
    worst: Mapping[str, Mapping[Tuple[str, str], float]]
    rounds: Mapping[str, bool]
    """Whether the outputs ("forward") and the gradients ("gradient") may differ by rounding at all."""
    has_gradient: bool

    def ratio(self, part: str, dtype: str) -> Optional[float]:
        """The worst ratio over all witnesses, None if none was compared."""
        return max((found[part, dtype] for found in self.worst.values() if (part, dtype) in found), default=None)

    def agreed(self) -> List[str]:
        """The witnesses that were asked and stayed within the tolerance everywhere."""
        return [name for name, found in self.worst.items() if found and max(found.values()) < 1.0]

    def failed(self) -> List[str]:
        """The witnesses that left the tolerance somewhere."""
        return [name for name, found in self.worst.items() if found and max(found.values()) >= 1.0]

    def too_wide(self) -> List[str]:
        """The parts whose bound is a thousand times wider than the worst error seen in float32, if there was one."""
        seen = {part: self.ratio(part, "float32") for part in PARTS if self.rounds[part]}
        return [part for part, ratio in seen.items() if ratio is not None and 0.0 < ratio < NARROW]


def examine(op: Op, witnesses: Iterable[Witness], samples: int, seed: int) -> Line:
    """Compare ``op`` with every witness that has a row for it, on ``samples`` seeded samples."""
    drawn = [op.draw(SeededChooser(seed + number)) for number in range(samples)]
    worst: Dict[str, Dict[Tuple[str, str], float]] = {}
    for witness in witnesses:
        if op.name not in witness.rows:
            continue
        found = worst.setdefault(witness.name, {})
        for dtype in DTYPES:
            for sample in drawn:
                result = agreement(op, witness, sample, dtype)
                for part in PARTS:
                    ratio = getattr(result, part)
                    if ratio is not None:
                        found[part, dtype] = max(found.get((part, dtype), 0.0), ratio)
    return Line(op.name, op.family, worst, _rounds(op, drawn), op.vjp is not None)


def _rounds(op: Op, drawn: Sequence[Sample]) -> Dict[str, bool]:
    limits: Dict[str, List[Any]] = {part: [] for part in PARTS}
    for sample in drawn:
        limits["forward"] += tolerance.for_outputs(op, sample)
        if op.vjp is not None:
            weights = cotangents(op.forward(*sample.inputs, **sample.attributes))
            limits["gradient"] += tolerance.for_gradients(op, sample, weights)
    return {part: any(limit is not None and np.any(limit.allowed) for limit in found) for part, found in limits.items()}


def build(
    ops: Sequence[Op],
    witnesses: Sequence[Witness],
    *,
    samples: int,
    seed: int,
    progress: Callable[[str], None],
) -> List[Line]:
    """A line for every op; ``progress`` is told each op before it is examined."""
    lines = []
    for number, op in enumerate(ops, 1):
        progress(f"{number}/{len(ops)} {op.name}")
        lines.append(examine(op, witnesses, samples, seed))
    return lines


def _cell(line: Line, part: str, dtype: str) -> str:
    if part == "gradient" and not line.has_gradient:
        return "none"
    ratio = line.ratio(part, dtype)
    if ratio is None:
        return "-"
    if ratio == 0.0:
        return "0" if line.rounds[part] else "exact"
    return f"{ratio:.3g}"


def _columns(line: Line) -> Tuple[str, ...]:
    cells = tuple(_cell(line, part, dtype) for dtype in DTYPES for part in PARTS)
    wrong = [f"!{name}" for name in line.failed()]
    return (line.op, line.family, " ".join(line.agreed() + wrong) or "no witness", *cells)


HEADINGS = ("op", "family", "witnesses that agreed", *(f"{dtype} {part}" for dtype in DTYPES for part in PARTS))


def table(lines: Sequence[Line]) -> str:
    """The lines as text in aligned columns; a witness that disagreed has an exclamation mark."""
    return "\n".join(text_table([HEADINGS, *map(_columns, lines)]))


def distribution(lines: Sequence[Line]) -> str:
    """Smallest, median and largest of the worst ratios of what rounds, and how many have none."""
    sentences = []
    for dtype in DTYPES:
        for part in PARTS:
            found = [line.ratio(part, dtype) for line in lines if line.rounds[part]]
            ratios = [ratio for ratio in found if ratio]
            if ratios:
                sentences.append(
                    f"{dtype} {part}: {len(ratios)} ops err, worst ratio min {min(ratios):.3g}, "
                    f"median {median(ratios):.3g}, max {max(ratios):.3g}; {found.count(0.0)} agree to the last bit"
                )
    exact = sum(not line.rounds["forward"] for line in lines)
    return "\n".join([*sentences, f"{exact} of {len(lines)} ops are bit-exact by specification"])


def as_json(lines: Sequence[Line], *, samples: int, seed: int, missing: Sequence[str]) -> Dict[str, Any]:
    """The lines as data for ``--json``."""
    return {
        "samples": samples,
        "seed": seed,
        "missing": list(missing),
        "ops": [
            {
                "op": line.op,
                "family": line.family,
                "agreed": line.agreed(),
                "failed": line.failed(),
                "rounds": dict(line.rounds),
                "worst": {
                    name: {f"{part} {dtype}": ratio for (part, dtype), ratio in found.items()}
                    for name, found in line.worst.items()
                },
            }
            for line in lines
        ],
    }

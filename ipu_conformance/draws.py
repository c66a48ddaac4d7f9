"""Chooses the samples of every op: the fewest that show its geometry and every attribute, on each framework.

    python -m ipu_conformance.draws [OP …]     # needs all three frameworks; a few minutes

A sample is a number. What it shows are words: its features, and each attribute, operand and index that another one in
its place would give another result. The choice is shipped as ``draws.json``.
"""

from __future__ import annotations

import json
import sys
from typing import Dict, FrozenSet, List, Mapping, Sequence

import numpy as np

from ipu_conformance import frameworks, targets
from ipu_conformance.atomic_write import replacing
from ipu_conformance.frameworks import Driver, OpCall
from ipu_conformance.ops import TABLE
from ipu_conformance.ops.dtypes import FORMATS, held
from ipu_conformance.ops.features import features
from ipu_conformance.ops.row import LIBRARIES, Row
from ipu_conformance.ops.sampling import DRAWS, Call, covering, drawn, seed_of
from ipu_conformance.ops.variants import CAST_TO
from ipu_conformance.ops.wrong import WrongOp, fixed_attributes, mistaken
from ipu_conformance.oracle.op import as_tuple

NUMBERS = 240
"""Samples among which those of an op are chosen."""

BESIDE: Mapping[str, Sequence[int]] = {
    "lstm": (7, 0),
    "einsum": (26, 41),
    "take_along_axis": (0,),
    "slice_update": (17, 9),
    "topk": (24, 16),
}
"""Samples that are chosen as well: wrong gradients and indices, which words do not tell of, show in these."""


def words(row: Row, wrong: Sequence[WrongOp], call: Call) -> FrozenSet[str]:
    """What a call shows: its features, and the wrong ops that would give another result."""
    sample = call.samples[0]
    with np.errstate(all="ignore"):
        right = as_tuple(row.op.forward(*sample.inputs, **sample.attributes))
        shown = [str(each) for each in wrong if _differs(each, call, right)]
    return frozenset([*features(row.op, sample), *shown])


def _differs(wrong: WrongOp, call: Call, right: Sequence[np.ndarray]) -> bool:
    assert wrong.forward is not None
    other = as_tuple(wrong.forward(*call.samples[0].inputs, **call.samples[0].attributes))
    if [np.shape(value) for value in right] != [np.shape(value) for value in other]:
        return True
    return not all(np.allclose(value, each, equal_nan=True) for value, each in zip(right, other))


def is_expressible(row: Row, framework: str, driver: Driver, call: Call, dtype: str = "float32") -> bool:
    """Whether a framework can express a call in a type of number; no device has numbers of 64 bits."""
    if call.attributes.get("dtype") == "float64":
        return False
    inputs = held(call.samples[0], dtype).inputs
    if any(x.dtype == np.int64 and x.size and np.abs(x).max() > np.iinfo(np.int32).max for x in inputs):
        return False
    asked = OpCall(row.call(LIBRARIES[framework]), (inputs,), call.attributes)
    return driver.why_inexpressible(asked, dtype if dtype in FORMATS else "float32") is None


def chosen(row: Row, drivers: Dict[str, Driver]) -> Dict[str, List[int]]:
    """The numbers of an op's samples by framework."""
    wrong = [*fixed_attributes(row), *(each for each in mistaken(row) if each.forward is not None)]
    calls = [drawn(row, seed_of(row, number)) for number in range(NUMBERS)]
    shown = {number: words(row, wrong, call) for number, call in enumerate(calls)}
    by_framework: Dict[str, Dict[int, FrozenSet[str]]] = {}
    for name, driver in drivers.items():
        if row.missing(LIBRARIES[name]) is None:
            able = [number for number, call in enumerate(calls) if is_expressible(row, name, driver, call)]
            by_framework[name] = {number: shown[number] for number in able}
    # Those that all can express come first: frameworks are compared with each other on the first call.
    every = set(shown).intersection(*by_framework.values())
    common = covering(row, {number: shown[number] for number in sorted(every)})
    more = BESIDE.get(row.name, ())
    return {
        name: list(dict.fromkeys([*covering(row, able, common), *(number for number in more if number in able)]))
        for name, able in by_framework.items()
    }


def main(names: Sequence[str]) -> None:
    """Choose for the named ops, or for all, and write the choice."""
    drivers: Dict[str, Driver] = {}
    for name in LIBRARIES:
        targets.activate(targets.discover()["emulator"], targets.FRAMEWORKS[name])
        drivers[name] = frameworks.load(name)
    table = json.loads(DRAWS.read_text(encoding="utf-8")) if DRAWS.exists() else {}
    table = {name: numbers for name, numbers in table.items() if name in TABLE}
    for name in names or [name for name in TABLE if name not in CAST_TO]:
        table[name] = chosen(TABLE[name], drivers)
        print(name, table[name], flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
    with replacing(DRAWS) as beside:
        beside.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

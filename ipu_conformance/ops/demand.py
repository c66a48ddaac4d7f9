"""One check of what a call of an op has given, which a program without the suite can repeat: it holds the numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Mapping, Tuple

import numpy as np

from ipu_conformance import check, notes
from ipu_conformance.ops.row import LIBRARIES, Row
from ipu_conformance.oracle.op import Array

MOST_NUMBERS = 5000
"""Numbers of a call and of what is expected of it; one with more has no program."""


@dataclass(frozen=True)
class Made:
    """A call as it was made on a framework, in a type of number: what a program needs to make it again."""

    row: Row
    framework: str
    dtype: str
    inputs: Tuple[Tuple[Array, ...], ...]
    attributes: Mapping[str, Any]
    factors: Tuple[Tuple[Array, ...], ...]
    wanted: Tuple[int, ...]

    def tell(self, part: str, comparison: str) -> None:
        """Let who listens know of a call that has failed; ``comparison`` is a line about ``actual``."""
        held = {name: literal(getattr(self, name)) for name in ("inputs", "attributes", "factors", "wanted")}
        named = {"op": self.row.name, "library": LIBRARIES[self.framework], "dtype": self.dtype}
        notes.tell("call", {**named, **held, "part": part, "comparison": comparison})


@dataclass(frozen=True)
class Demand:
    """A check of ``ipu_conformance.check`` by name, and all that it is given besides the device's result."""

    check: str
    settings: Mapping[str, Any]

    def meet(self, actual: Any, made: Made, part: str) -> None:
        """Check a result; ``part`` says where it stands in the ``result`` of a call."""
        __tracebackhide__ = True
        try:
            getattr(check, self.check)(actual=actual, **self.settings)
        except check.CheckFailure:
            if notes.wanted() and numbers([made.inputs, made.factors, self.settings]) <= MOST_NUMBERS:
                made.tell(part, self.line())
            raise

    def line(self) -> str:
        """The check as a line of a program."""
        given = ",\n".join(f"    {name}={literal(value)}" for name, value in self.settings.items())
        return f"check.{self.check}(\n    actual=actual,\n{given},\n)"


def numbers(value: Any) -> int:
    """How many numbers of arrays there are."""
    if isinstance(value, np.ndarray):
        return int(value.size)
    if is_dataclass(value):
        return numbers([getattr(value, each.name) for each in fields(value)])
    if isinstance(value, Mapping):
        return numbers(list(value.values()))
    return sum(map(numbers, value)) if isinstance(value, (list, tuple)) else 0


def literal(value: Any) -> str:
    """A value as Python writes it, with ``array``, ``inf`` and ``nan`` of NumPy and the names of our classes."""
    if isinstance(value, np.generic):
        return literal(np.asarray(value))
    if isinstance(value, np.ndarray):
        text = f"array({value.tolist()!r}, {str(value.dtype)!r})"
        return text if value.size else f"{text}.reshape({value.shape!r})"
    if is_dataclass(value):
        return f"{type(value).__name__}({', '.join(literal(getattr(value, each.name)) for each in fields(value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {literal(each)}' for name, each in value.items())}}}"
    if isinstance(value, tuple):
        return f"({''.join(f'{literal(each)}, ' for each in value).rstrip()})"
    return f"[{', '.join(map(literal, value))}]" if isinstance(value, list) else repr(value)

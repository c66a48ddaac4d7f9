"""Named, injectable ways for the emulated device to be wrong.

A hook site costs one truth test while nothing is injected::

    if faults.active:
        value = faults.apply("streams.split", value, replicas=replicas)

A fault is a row of the table: at one named point it turns the right value into a wrong one. Faults are off unless a
test injects them or the environment variable ``IPU_CONFORMANCE_FAULT`` names them.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

from ipu_conformance.errors import ConformanceError

ENVIRONMENT = "IPU_CONFORMANCE_FAULT"
CORE = f"{__name__}.core"
AREAS = ("plan", "streams", "reduce", "update", "numerics", "weights", "ir")

Wrong = Callable[..., Any]
"""``wrong(value, *, memory, **context)`` gives the wrong value; ``memory`` is a dict, kept while the fault is on."""


class FaultError(ConformanceError):
    """A fault or a hook point has a name that is unknown or taken."""


@dataclass(frozen=True)
class Fault:
    """A row of the table: at ``point``, the device gives ``wrong(value)`` instead of the value."""

    name: str
    area: str
    point: str
    what: str
    wrong: Wrong
    module: str = ""
    """The name of the module whose table has the row."""


@dataclass(frozen=True)
class Active:
    """A fault that is on, and what it remembers from one call to the next."""

    fault: Fault
    memory: Dict[Any, Any]


POINTS: Dict[str, str] = {
    "plan.slots": "value: structured array of one replica's slots (tick, ipu, stage, micro_batch, kind)",
    "streams.split": "value: array (device iterations, accumulation, replicas, …) of what each slot is fed: positions "
    "in the combined batch, or samples",
    "streams.join": "value: array (device iterations, accumulation, replicas, …) of what each slot gives back: numbers "
    "of slots, or samples",
    "reduce.gradients": "value: list with one gradient (array, or dict of arrays) per replica, about to be summed; "
    "divisor: what the sum is then divided by (accumulation × replicas for a mean, 1 for a sum)",
    "update.step": "value: the weights after the step (array, or dict of arrays); before: the same before the step; "
    "step: index of the step, from 0; replica: index of the replica; replicas: how many there are",
    "execute.boundary": "value: what one stage hands to the next (array, or dict or tuple of arrays); replica, stage "
    "(of the sender), micro_batch, kind (of the sender's slot)",
    "numerics.round": "value: float16 array; exact: the array that was rounded; stochastic: whether at random",
    "numerics.partials": "value: name of the dtype in which partial sums are held",
    "numerics.narrow": "value: 32-bit array; exact: the array that was narrowed",
    "weights.to_host": "value: dict of arrays on the device; host: the dict of arrays that the host holds",
    "weights.to_device": "value: dict of arrays on the host; device: the dict that the device holds, None at first",
    "ir.graph": "value: ipu_conformance.ir.graph.Graph of the compiled program",
}
"""Every hook point with what ``value`` and the context are there."""

active: Dict[str, Active] = {}
"""The faults that are on, by name; empty, hence false, when the device is right."""

_TABLE: Dict[str, Fault] = {}


def table() -> Tuple[Fault, ...]:
    """Every registered fault, by area in the order of ``AREAS`` and then as registered."""
    importlib.import_module(CORE)
    return tuple(sorted(_TABLE.values(), key=lambda fault: AREAS.index(fault.area)))


def register(fault: Fault, module: str = "") -> Fault:
    """Add a row of a module's table to the table of all, and return it."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.name):
        raise FaultError(f"fault name {fault.name!r} is not in kebab-case; use lower-case words joined by hyphens")
    if fault.name in _TABLE:
        raise FaultError(f"fault {fault.name!r} is registered already; choose another name")
    if fault.area not in AREAS:
        raise FaultError(f"fault {fault.name!r} has the area {fault.area!r}; the areas are {', '.join(AREAS)}")
    _require_point(fault.point)
    _TABLE[fault.name] = replace(fault, module=module)
    return _TABLE[fault.name]


def register_point(name: str, what: str) -> None:
    """Add a hook point that a front end offers beyond those of the core."""
    if name in POINTS:
        raise FaultError(f"hook point {name!r} is registered already; choose another name")
    POINTS[name] = what


def get(name: str) -> Fault:
    """The fault of that name; an unknown one is an error that offers the nearest names."""
    importlib.import_module(CORE)
    if name not in _TABLE:
        near = difflib.get_close_matches(name, _TABLE, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise FaultError(f"no fault is named {name!r}; {hint}the faults are {', '.join(sorted(_TABLE))}")
    return _TABLE[name]


def apply(point: str, value: Any, **context: Any) -> Any:
    """The value that the device gives at ``point``: the same object unless a fault of that point is on."""
    _require_point(point)
    for entry in tuple(active.values()):
        if entry.fault.point == point:
            value = entry.fault.wrong(value, memory=entry.memory, **context)
    return value


@contextlib.contextmanager
def inject(*names: str) -> Iterator[Tuple[Fault, ...]]:
    """The named faults are on inside the block; each starts with an empty memory."""
    found = tuple(get(name) for name in names)
    before = dict(active)
    active.update({fault.name: Active(fault, {}) for fault in found})
    try:
        yield found
    finally:
        active.clear()
        active.update(before)


def load(front_end: str) -> None:
    """Register the faults of the core and of one front end."""
    for module in (CORE, *modules(front_end)):
        importlib.import_module(module)


def modules(front_end: str) -> Tuple[str, ...]:
    """The names of the modules whose rows are a front end's faults."""
    folder = Path(__file__).parent / front_end
    return tuple(sorted(f"{__name__}.{front_end}.{file.stem}" for file in folder.glob("[a-z]*.py")))


def activate_from_environment(environment: Optional[Mapping[str, str]] = None) -> Tuple[str, ...]:
    """Turn on, until the process ends, the faults that ``IPU_CONFORMANCE_FAULT`` names, and return their names."""
    text = (os.environ if environment is None else environment).get(ENVIRONMENT, "")
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    found = tuple(get(name) for name in names)
    for fault in found:
        active.setdefault(fault.name, Active(fault, {}))
    return names


def _require_point(point: str) -> None:
    if point not in POINTS:
        raise FaultError(f"no hook point is named {point!r}; the points are {', '.join(sorted(POINTS))}")


def at(rule: str, change: Callable[[Any], Any], *, key: str = "rule") -> Wrong:
    """``change(value)`` at the decision that the context names ``rule``, and the right value at all others."""
    return lambda value, **context: change(value) if context[key] == rule else value


def where(wanted: str, change: Callable[..., Any]) -> Wrong:
    """Like ``at``, for a change that needs more than the value: ``change(value, **context)``."""
    return lambda value, rule, **context: change(value, **context) if rule == wanted else value


def always(answer: Any) -> Callable[..., Any]:
    """The same answer whatever the right value is."""
    return lambda value, **context: answer


never = always(False)
"""No, whatever the right value is."""


def map_arrays(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """``function`` applied to every array of a nest of dicts, lists and tuples (several nests of one shape in step)."""
    if isinstance(value, Mapping):
        return {key: map_arrays(function, item, *(other[key] for other in others)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        mapped = [map_arrays(function, *items) for items in zip(value, *others)]
        return type(value)(mapped) if type(value) in (list, tuple) else type(value)(*mapped)
    return function(value, *others)

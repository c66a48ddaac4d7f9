"""The catalogue: every named way for the emulated device to be wrong.

A fault has one place. It changes the value at a point of the seam, replaces a function of the emulator, lets a name
stand for something else, or leaves out a refusal::

    Fault("boundary-halved", "streams", "execute.boundary", "what a stage hands on arrives halved", halved)

    @patch("update-halved", "update", "core.engine:Engine._update", "every step moves the weights half as far")
    def _halved(original, engine, replica, row): ...

    Fault("stage-has-no-name", "plan", "name:poptorch.api:Stage", "the class Stage is missing", always(GONE))

    off:paddle.uneven-replicas      # generated from the row of the refusal
    slip:core.streams:Selection.arrange # generated from the function: see ``slips``; and from what is ``declared``

Faults are off unless a test injects them or the environment variable ``IPU_CONFORMANCE_FAULT`` names them; a process
that is started under an injected fault has it, too. ``inert`` goes through all the motions and changes nothing: it is
the control.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import inspect
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import refusals
from ipu_conformance.emulator.faults.catalogue import declared, replacing, slips

EMULATOR = replacing.EMULATOR
FaultError = replacing.FaultError
Wrong = replacing.Wrong
ENVIRONMENT = faults.ENVIRONMENT
CORE = f"{__name__}.core"
FRONT_ENDS = ("poptorch", "paddle", "tensorflow")
AREAS = ("plan", "streams", "reduce", "update", "numerics", "weights", "ir", "refusal")
OFF = "off:"
NAME = "name:"
INERT = "inert"
GONE = object()
"""What a name stands for that is missing."""


@dataclass(frozen=True)
class Fault:
    """A row of the catalogue: at its place the device does something else."""

    name: str
    area: str
    point: str
    """A point of the seam; ``module:function`` below ipu_conformance.emulator, or ``stock.<module>:function`` of the
    vendor's own Python; ``name:module:name`` for anything else that a name stands for; or ``off:`` and a refusal's
    rule."""
    what: str
    wrong: Wrong
    module: str = ""
    """The name of the module whose table has the row."""
    remembers: bool = False
    """Whether a replaced function is given ``memory`` too."""

    @property
    def front_end(self) -> str:
        """The front end whose fault this is, or ``core``."""
        parts = self.module[len(__name__) + 1 :].split(".")
        return parts[0] if parts[0] in FRONT_ENDS else "core"


_TABLE: Dict[str, Fault] = {}
active: Dict[str, Fault] = {}
"""The faults that are on, by name."""


def register(fault: Fault, module: str = "") -> Fault:
    """Add a row of a module's table to the table of all, and return it."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.name):
        raise FaultError(f"fault name {fault.name!r} is not in kebab-case; use lower-case words joined by hyphens")
    if fault.name in _TABLE or fault.name == INERT:
        raise FaultError(f"fault {fault.name!r} is registered already; choose another name")
    if fault.area not in AREAS:
        raise FaultError(f"fault {fault.name!r} has the area {fault.area!r}; the areas are {', '.join(AREAS)}")
    if ":" not in fault.point and fault.point not in faults.POINTS:
        points = ", ".join(sorted(faults.POINTS))
        raise FaultError(f"no point of the seam is named {fault.point!r}; the points are {points}")
    _TABLE[fault.name] = replace(fault, module=module or fault.module)
    return _TABLE[fault.name]


def patch(name: str, area: str, function: str, what: str, *, remembers: bool = False) -> Callable[[Wrong], Wrong]:
    """Register what replaces ``module:function`` of the emulator; the decorated function may carry several."""

    def add(wrong: Wrong) -> Wrong:
        register(Fault(name, area, function, what, wrong, remembers=remembers), wrong.__module__)
        return wrong

    return add


def load(front_end: str) -> None:
    """Register the faults of the core and of one front end, those of its refusals among them."""
    for module in (CORE, *modules(front_end), *_refusals(front_end)):
        importlib.import_module(module)


def modules(front_end: str) -> Tuple[str, ...]:
    """The names of the modules whose rows are a front end's faults."""
    folder = Path(__file__).parent / front_end
    return tuple(sorted(f"{__name__}.{front_end}.{file.stem}" for file in folder.glob("[a-z]*.py")))


def _refusals(front_end: str) -> Tuple[str, ...]:
    """The names of the modules whose rows are what a front end refuses; they import no framework."""
    name = f"{EMULATOR}.{front_end}.refusals"
    folder = Path(__file__).parents[2] / front_end / "refusals"
    if folder.is_dir():
        return (name, *sorted(f"{name}.{file.stem}" for file in folder.glob("[a-z]*.py")))
    return (name,) if folder.with_suffix(".py").exists() else ()


def table() -> Tuple[Fault, ...]:
    """Every registered fault, by area in the order of ``AREAS`` and then as registered; refusals come last."""
    importlib.import_module(CORE)
    rows = [*_TABLE.values(), *(_left_out(rule) for end in FRONT_ENDS for rule in refusals.rows(end))]
    return tuple(sorted(rows, key=lambda fault: AREAS.index(fault.area)))


def _left_out(rule: str) -> Fault:
    """The fault of a device that does not follow the rule of a refusal."""
    module = f"{__name__}.{rule.partition('.')[0]}"
    return Fault(OFF + rule, "refusal", OFF + rule, f"what {rule} refuses is accepted", lambda value: value, module)


def get(name: str) -> Fault:
    """The fault of that name, ``inert`` among them; an unknown one is an error that offers the nearest names."""
    if name == INERT:
        return Fault(
            INERT, "control", "everywhere", "nothing: all the motions of a fault, and no change", lambda value: value
        )
    if name.startswith(slips.SLIP):
        place = name[len(slips.SLIP) :]
        return Fault(name, declared.AREA, place, declared.what(place), slips.wrong)
    rows = {fault.name: fault for fault in table()}
    if name not in rows:
        near = difflib.get_close_matches(name, rows, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise FaultError(f"no fault is named {name!r}; {hint}`ipu-conformance faults list FRAMEWORK` lists them")
    return rows[name]


@contextlib.contextmanager
def inject(*names: str) -> Iterator[Tuple[Fault, ...]]:
    """The named faults are on inside the block; each starts with an empty memory."""
    chosen = tuple(get(name) for name in names if name != INERT)
    before = dict(active)

    def restore() -> None:
        active.clear()
        active.update(before)

    with contextlib.ExitStack() as undo:
        undo.callback(restore)
        if INERT in names:
            undo.enter_context(motions(lambda place: None))
        for fault in chosen:
            if fault.name not in active:
                undo.callback(_turn_on(fault))
                active[fault.name] = fault
        undo.enter_context(_inherited(active))
        yield chosen


@contextlib.contextmanager
def _inherited(names: Iterable[str]) -> Iterator[None]:
    """A process that is started inside the block has the named faults."""
    before = os.environ.get(ENVIRONMENT)
    os.environ[ENVIRONMENT] = ",".join(names)
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENVIRONMENT]
        else:
            os.environ[ENVIRONMENT] = before


def activate_from_environment(front_end: str, environment: Optional[Mapping[str, str]] = None) -> Tuple[str, ...]:
    """Turn on, until the process ends, the faults that ``IPU_CONFORMANCE_FAULT`` names, and return their names.

    One of another front end is none of this one's. The control goes through the motions of this front end alone: to
    go through those of another would import its framework.
    """
    text = (os.environ if environment is None else environment).get(ENVIRONMENT, "")
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    load(front_end)
    if any(name not in _TABLE and name != INERT for name in names):
        for other in FRONT_ENDS:
            load(other)
    chosen = [fault for fault in map(get, names) if fault.front_end in ("core", front_end) and fault.name != INERT]
    if INERT in names:
        motions(lambda place: None).__enter__()
    for fault in chosen:
        if fault.name not in active:
            active[fault.name] = fault
            _turn_on(fault)
    return names


def _turn_on(fault: Fault) -> Callable[[], None]:
    """Make the device wrong; what is returned makes it right again."""
    memory: Dict[Any, Any] = {}
    if fault.area == declared.AREA:
        return declared.turn_on(fault.point)
    if fault.point.startswith(OFF):
        rule = fault.point[len(OFF) :]
        refusals.off.add(rule)
        return lambda: refusals.off.discard(rule)
    if fault.point.startswith(NAME):
        return _rename(fault.point[len(NAME) :], fault.wrong)
    if ":" in fault.point:
        wrong = functools.partial(fault.wrong, memory) if fault.remembers else fault.wrong
        return replacing.replace_function(fault.point, wrong)
    return _change(fault.point, functools.partial(fault.wrong, memory=memory))


def _rename(place: str, wrong: Wrong) -> Callable[[], None]:
    """Let a name of one module or class, and of no other that imported it, stand for something else or for nothing."""
    owner, name = replacing.owner_of(place)
    raw = inspect.getattr_static(owner, name)
    instead = wrong(raw)
    if instead is GONE:
        delattr(owner, name)
    else:
        setattr(owner, name, instead)
    return lambda: setattr(owner, name, raw)


def _change(point: str, change: Callable[..., Any]) -> Callable[[], None]:
    faults.changes.setdefault(point, []).append(change)

    def undo() -> None:
        faults.changes[point].remove(change)
        if not faults.changes[point]:
            del faults.changes[point]

    return undo


def places() -> List[str]:
    """Every place that a registered fault has."""
    return sorted({fault.point for fault in table()})


@contextlib.contextmanager
def motions(note: Callable[[str], None]) -> Iterator[None]:
    """Everything that faults do is done with the right result, and ``note`` is told each place that is passed."""

    def noted(place: str) -> Wrong:
        def same(original: Any, *arguments: Any, **settings: Any) -> Any:
            note(place)
            return original(*arguments, **settings)

        return same

    def unchanged(point: str) -> Callable[..., Any]:
        def same(value: Any, **context: Any) -> Any:
            note(point)
            return value

        return same

    with contextlib.ExitStack() as undo:
        for place in places():
            if place.startswith((OFF, NAME)):
                continue
            undo.callback(
                replacing.replace_function(place, noted(place)) if ":" in place else _change(place, unchanged(place))
            )
        refusals.watch = lambda rule: note(OFF + rule)
        undo.callback(setattr, refusals, "watch", None)
        yield


def rule(name: str, change: Callable[[Any], Any], *, key: str = "rule") -> Wrong:
    """``change(value)`` at the decision that the context names, and the right value at all others."""
    return lambda value, **context: change(value) if context[key] == name else value


def where(wanted: str, change: Callable[..., Any]) -> Wrong:
    """Like ``rule``, for a change that needs more than the value: ``change(value, **context)``."""
    return lambda value, rule, **context: change(value, **context) if rule == wanted else value


def always(answer: Any) -> Callable[..., Any]:
    """The same answer whatever the right value is."""
    return lambda value, *arguments, **context: answer


never = always(False)
"""No, whatever the right value is."""


def result(change: Callable[[Any], Any]) -> Wrong:
    """A function whose result is ``change`` of the right one."""
    return lambda original, *arguments, **settings: change(original(*arguments, **settings))


def argument(name: str, change: Callable[[Any], Any]) -> Wrong:
    """A function that gets ``change`` of the argument of that name, whether it was given or left out."""

    def wrong(original: Any, *arguments: Any, **settings: Any) -> Any:
        bound = inspect.signature(original).bind(*arguments, **settings)
        bound.apply_defaults()
        bound.arguments[name] = change(bound.arguments[name])
        return original(*bound.args, **bound.kwargs)

    return wrong


def map_arrays(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """``function`` applied to every array of a nest of dicts, lists and tuples (several nests of one shape in step).

    A tensor that has no arithmetic of its own, as those of Paddle's scopes, is copied into an array of NumPy's.
    """
    if isinstance(value, Mapping):
        return {key: map_arrays(function, item, *(other[key] for other in others)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        mapped = [map_arrays(function, *items) for items in zip(value, *others)]
        return type(value)(mapped) if type(value) in (list, tuple) else type(value)(*mapped)
    return function(*(each if hasattr(each, "__mul__") else np.array(each) for each in (value, *others)))

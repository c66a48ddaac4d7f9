"""Faults by construction: one function of the emulator gives a wrong result, is left out, or accepts what it refuses.

Nobody writes them. ``slip:core.streams:Selection.arrange`` follows from the function: a number that it returns is off
by a quarter, a truth value is the opposite, a list is reversed, a field of a record is wrong, the first of what is
yielded is missing, a scope ends at once, a call that returns nothing is left out, and an error does not come.
They show that a case can fail where no fault of the catalogue touches what it checks.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import dis
import enum
import importlib
import inspect
import pkgutil
import sys
import textwrap
import threading
import warnings
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Sequence, Tuple

from ipu_conformance.emulator import faults

SLIP = "slip:"
FACTOR, SHIFT = 1.25, 0.125
"""A wrong number is the right one times FACTOR plus SHIFT: never the right one but at -0.5."""
UNTOUCHED = {
    "__init__",
    "__post_init__",
    "__new__",
    "__init_subclass__",
    "__getattr__",
    "__setattr__",
    "__getattribute__",
}
"""Methods without which there is no object: a device that has none of them is broken, not wrong."""
_EMULATOR = faults.__name__.rpartition(".")[0]


def slipped(value: Any) -> Any:
    """A wrong value of the same kind; the same one where there is no such."""
    if isinstance(value, enum.Enum):
        members = list(type(value))
        return members[(members.index(value) + 1) % len(members)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * FACTOR + SHIFT
    if isinstance(value, str):
        return f"{value}-"
    if isinstance(value, Mapping):
        return _slipped_mapping(value)
    if type(value) in (list, tuple):
        return _slipped_sequence(value)
    if type(value) in (set, frozenset):
        return type(value)(sorted(value, key=repr)[1:])
    if isinstance(value, ModuleType):
        return _copied_module(value)
    fields = _fields(value)
    if fields:
        return _slipped_record(value, fields)
    if inspect.isgenerator(value):
        return _without_the_first(value)
    if isinstance(value, contextlib._GeneratorContextManager):
        return _ended(value)
    return _slipped_array(value)


def can_slip(value: Any) -> bool:
    """Whether there is a wrong value of the same kind; nothing is computed, so that a graph gets no nodes."""
    always = (bool, int, float, str, ModuleType, contextlib._GeneratorContextManager)
    if isinstance(value, always) or inspect.isgenerator(value):
        return True
    if isinstance(value, enum.Enum):
        return len(type(value)) > 1
    if type(value) is dict:
        return bool(value) and can_slip(next(reversed(value.values())))
    if type(value) in (list, tuple):
        return len(value) > 1 or (len(value) == 1 and can_slip(value[0]))
    if type(value) in (set, frozenset):
        return bool(value)
    if _fields(value):
        return any(can_slip(getattr(value, name)) for name in _fields(value))
    return bool(_number_type(value))


def _fields(value: Any) -> List[str]:
    """The names of the fields of a record: a named tuple, or a data class."""
    if isinstance(value, type):
        return []
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(value._fields)
    return [field.name for field in dataclasses.fields(value) if field.init] if dataclasses.is_dataclass(value) else []


def _slipped_record(record: Any, fields: Sequence[str]) -> Any:
    """The record with its last field wrong that can be."""
    for name in reversed(fields):
        if can_slip(getattr(record, name)):
            changed = {name: slipped(getattr(record, name))}
            return record._replace(**changed) if hasattr(record, "_replace") else dataclasses.replace(record, **changed)
    return record


def _copied_module(module: ModuleType) -> ModuleType:
    """Another module with the same names, as if it had been imported twice."""
    copied = ModuleType(module.__name__)
    vars(copied).update(vars(module))
    return copied


def _without_the_first(values: Iterator[Any]) -> Iterator[Any]:
    next(values, None)
    yield from values


@contextlib.contextmanager
def _ended(scope: ContextManager[Any]) -> Iterator[Any]:
    """What the scope gives, after the scope."""
    with scope as value:
        pass
    yield value


def _slipped_mapping(value: Mapping[Any, Any]) -> Any:
    if type(value) is not dict or not value:
        return value
    last = next(reversed(value))
    return {**value, last: slipped(value[last])}


def _slipped_sequence(value: Any) -> Any:
    if len(value) == 1:
        return type(value)([slipped(value[0])])
    backwards = type(value)(reversed(value))
    with contextlib.suppress(Exception):  # arrays have no truth value, and are no palindrome
        if backwards == value:
            return type(value)([*value[:-1], slipped(value[-1])])
    return backwards


def _slipped_array(value: Any) -> Any:
    kind = _number_type(value)
    if kind == "int":
        return value + 1
    return value * FACTOR + SHIFT if kind else value


def _number_type(value: Any) -> str:
    """``float`` or ``int``, or nothing if a value is no array of numbers."""
    dtype = "" if isinstance(value, type) else str(getattr(value, "dtype", "")).lower()
    if "float" in dtype or "fp" in dtype:
        return "float"
    return "int" if "int" in dtype else ""


def wrong(original: Any, *arguments: Any, **settings: Any) -> Any:
    """What a function that slips does in the place of the original."""
    if is_procedure(original):
        return None
    try:
        result = original(*arguments, **settings)
    except Exception:
        return None
    return slipped(result)


def is_procedure(function: Any) -> bool:
    """Whether a function returns nothing: a call of it can be left out."""
    function = inspect.unwrap(function)
    if function not in _PROCEDURES:
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            return False
        _PROCEDURES[function] = isinstance(tree, ast.FunctionDef) and not any(_gives(node) for node in _body(tree))
    return _PROCEDURES[function]


_PROCEDURES: Dict[Any, bool] = {}


def _body(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside of it."""
    waiting: List[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))


def _gives(node: ast.AST) -> bool:
    return isinstance(node, (ast.Yield, ast.YieldFrom)) or (isinstance(node, ast.Return) and node.value is not None)


def load(front_end: str) -> None:
    """Import every module of the core and of a front end: a function is known once its module is there."""
    for name in ("core", front_end):
        package = importlib.import_module(f"{_EMULATOR}.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def functions() -> Dict[CodeType, Tuple[str, ...]]:
    """The places of every function and method of the emulator's modules that are there by now, by its code."""
    return _by_code(lambda name: name not in UNTOUCHED)


def constructors() -> Dict[CodeType, Tuple[str, ...]]:
    """The places of every constructor, by its code; one that a function makes for several classes has several."""
    return _by_code(lambda name: name in ("__init__", "__new__"))


def _by_code(wanted: Callable[[str], bool]) -> Dict[CodeType, Tuple[str, ...]]:
    result: Dict[CodeType, Tuple[str, ...]] = {}
    for code, place in _all_functions():
        if wanted(place.rpartition(".")[2]):
            result[code] = (*result.get(code, ()), place)
    return result


def _all_functions() -> Iterator[Tuple[CodeType, str]]:
    for name, module in list(sys.modules.items()):
        if name.startswith(_EMULATOR + ".") and not name.startswith(faults.__name__) and module is not None:
            yield from _functions_of(module, name)


def is_written_in(function: FunctionType, module: ModuleType) -> bool:
    """Whether a module's own file has the function; a module that is made while the program runs has no file."""
    return function.__code__.co_filename == vars(module).get("__file__")


def _functions_of(module: ModuleType, name: str) -> Iterator[Tuple[CodeType, str]]:
    """The functions that a module's own file defines; a vendor's class may say that it belongs elsewhere."""
    short = name[len(_EMULATOR) + 1 :]
    for key, value in list(vars(module).items()):
        rows = vars(value).items() if isinstance(value, type) else [("", value)]
        for attribute, raw in list(rows):
            function = getattr(raw, "__func__", None) or getattr(raw, "fget", None) or raw
            function = inspect.unwrap(function) if isinstance(function, FunctionType) else None
            if not isinstance(function, FunctionType):
                continue
            made = attribute == "__init__" and dataclasses.is_dataclass(value) and value.__module__ == name
            here = is_written_in(function, module) or made
            if here and function.__name__ == (attribute or key):
                yield function.__code__, f"{short}:{key}.{attribute}" if attribute else f"{short}:{key}"


def _raises(frame: FrameType) -> bool:
    """Whether a function that is about to be left is left by an error: its last instruction returns nothing."""
    return not dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(("RETURN", "YIELD", "SEND"))


@contextlib.contextmanager
def called(note: Callable[[str], None]) -> Iterator[None]:
    """``note`` is told the place of every slip that would change something inside the block, in any thread.

    That is a function of the emulator which returns something that can be wrong, or returns nothing; the same with
    ``#2`` if it does so twice; with a question mark one that raises, and with an exclamation mark one that gives a
    warning; and a constructor with each argument that can be wrong.
    """
    results, making = functions(), constructors()
    speaking, again, raising = dict(results), dict(results), {**results, **making}

    def tell(places: Sequence[str], form: str = "") -> None:
        for place in places:
            note(place + form)

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "c_call" and argument is warnings.warn and code in speaking:
            tell(speaking[code], "!")
        elif event == "call" and code in making:
            places = making.pop(code, ())  # once is enough
            given = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
            for name in given:
                if can_slip(frame.f_locals.get(name)):
                    tell(places, f"({name}=)")
        elif event == "return" and code in raising and _raises(frame):
            tell(raising.pop(code, ()), "?")
        elif event == "return" and code in results:
            can_fail = argument is None or code.co_flags & inspect.CO_GENERATOR or can_slip(argument)
            places = results.get(code, ()) if can_fail else ()
            if places and again.pop(code, ()):
                tell(places)
            elif places:
                results.pop(code, ())
                tell(places, "#2")

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

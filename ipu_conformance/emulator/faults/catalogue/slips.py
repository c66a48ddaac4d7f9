"""Faults by construction: one function of the emulator gives a wrong result, is left out, or accepts what it refuses.

Nobody writes them. ``slip:core.streams:Streams.split`` follows from the function: a number that it returns is off by
a quarter, a truth value is the opposite, a list is reversed, a call that returns nothing is left out, and an error that
it raises does not come. They show that a case can fail where no fault of the catalogue touches what it checks.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
import textwrap
import threading
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

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
    return _slipped_array(value)


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
    dtype = str(getattr(value, "dtype", ""))
    if "float" in dtype.lower() or "fp" in dtype.lower():
        return value * FACTOR + SHIFT
    if "int" in dtype.lower():
        return value + 1
    return value


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


def functions() -> Dict[CodeType, str]:
    """The place of every function and method of the emulator's modules that are there by now, by its code."""
    result: Dict[CodeType, str] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(_EMULATOR + ".") and not name.startswith(faults.__name__) and module is not None:
            result.update(_functions_of(module, name))
    return result


def _functions_of(module: ModuleType, name: str) -> Iterator[Tuple[CodeType, str]]:
    """The functions that a module's own file defines; a vendor's class may say that it belongs elsewhere."""
    short = name[len(_EMULATOR) + 1 :]
    for key, value in list(vars(module).items()):
        rows = vars(value).items() if isinstance(value, type) else [("", value)]
        for attribute, raw in list(rows):
            function = getattr(raw, "__func__", None) or getattr(raw, "fget", None) or raw
            if not isinstance(function, FunctionType) or attribute in UNTOUCHED:
                continue
            if function.__code__.co_filename == module.__file__ and function.__name__ == (attribute or key):
                yield function.__code__, f"{short}:{key}.{attribute}" if attribute else f"{short}:{key}"


@contextlib.contextmanager
def called(note: Callable[[str], None]) -> Iterator[None]:
    """``note`` is told the place of every function of the emulator that is called inside the block, in any thread."""
    places: Dict[CodeType, str] = functions()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in places:
            note(places[frame.f_code])

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

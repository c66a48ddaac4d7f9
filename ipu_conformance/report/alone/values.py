"""The values of a case's parameters as Python writes them, with names that the program has."""

from __future__ import annotations

import builtins
import enum
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, Iterator, Mapping, Optional, Tuple

import numpy as np

from ipu_conformance.report.alone import sources
from ipu_conformance.report.alone.slices import Slice, UnslicedError, submodule, suite_file
from ipu_conformance.report.alone.sources import Imported, Source
from ipu_conformance.suite_files import in_suite

PLAIN = (type(None), bool, int, str, bytes)
NUMPY = "numpy"
DEEPEST = 3
"""How deep a value is looked for in the constants of the suite: a row of a table has parts."""


def written(value: Any, cut: Slice, module: ModuleType) -> str:
    """A value as an expression; what it names is taken along. ``module`` is that of the case."""
    if isinstance(value, enum.Enum):
        return f"{_class(value, cut)}.{value.name}"
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return _array(value, cut, module)
    if isinstance(value, PLAIN) or value is ...:
        return repr(value)
    if isinstance(value, (float, complex)):
        return repr(value) if np.isfinite(value) else f"{_class(value, cut)}({str(value)!r})"
    name = _named(value, cut)
    if name is not None:
        return name
    if isinstance(value, (list, tuple, set, frozenset, dict)) and not hasattr(value, "_fields"):
        return _collection(value, cut, module)
    place = _place(value, cut, module)
    if place is not None:
        return place
    if isinstance(value, PurePath):
        return f"{cut.imported(Imported('pathlib', 'Path'), 'Path')}({str(value)!r})"
    if isinstance(value, slice):
        return f"slice({value.start!r}, {value.stop!r}, {value.step!r})"
    if isinstance(value, Mapping):
        return _collection(dict(value), cut, module)
    return _instance(value, cut, module)


def _collection(value: Any, cut: Slice, module: ModuleType) -> str:
    if isinstance(value, dict):
        rows = (f"{written(key, cut, module)}: {written(each, cut, module)}" for key, each in value.items())
        return f"{{{', '.join(rows)}}}"
    parts = [written(each, cut, module) for each in value]
    if isinstance(value, tuple):
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(value, list):
        return f"[{', '.join(parts)}]"
    return f"{type(value).__name__}([{', '.join(sorted(parts))}])"


def _array(value: Any, cut: Slice, module: ModuleType) -> str:
    text = f"{cut.imported(Imported(NUMPY, 'array'), 'array')}({written(value.tolist(), cut, module)}, '{value.dtype}')"
    if isinstance(value, np.generic):
        return f"{text}[()]"
    return text if value.size else f"{text}.reshape({value.shape!r})"


def _named(value: Any, cut: Slice) -> Optional[str]:
    """The name of a function or a class that a module defines."""
    name, home = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    module = sys.modules.get(home) if isinstance(home, str) else None
    if not isinstance(name, str) or module is None or getattr(module, name, None) is not value:
        return None
    if module is builtins:
        return name
    file = getattr(module, "__file__", None)
    if file is not None and in_suite(Path(file)):
        return cut.name(sources.read(Path(file).resolve()), name)
    return cut.imported(Imported(module.__name__, name), name)


def _place(value: Any, cut: Slice, module: ModuleType) -> Optional[str]:
    """Where the suite holds a value: in a constant of the case's file, or of one that this imports."""
    for each, source in _modules(module):
        for name in source.bound:
            held = getattr(each, name, None)
            for keys in _inside(held, value, DEEPEST):
                return cut.name(source, name) + "".join(f"[{key!r}]" for key in keys)
    return None


def _modules(module: ModuleType) -> Iterator[Tuple[ModuleType, Source]]:
    """The module of a case, and those of the suite that it imports."""
    waiting, seen = [module], set()
    while waiting:
        each = waiting.pop(0)
        path = Path(str(each.__file__)).resolve()
        if path in seen:
            continue
        seen.add(path)
        source = sources.read(path)
        yield each, source
        for imported in source.imported.values():
            file = suite_file(source, imported.module)
            if file is not None and not file.suffix:
                file = submodule(file, imported.name)
            if file is not None and file.suffix:
                waiting += _loaded(file)


def _loaded(file: Path) -> Iterator[ModuleType]:
    return (each for each in list(sys.modules.values()) if getattr(each, "__file__", None) == str(file))


def _inside(held: Any, value: Any, depth: int) -> Iterator[Tuple[Any, ...]]:
    """The keys by which a value is reached inside of another one."""
    if held is value:
        yield ()
    elif depth and isinstance(held, (Mapping, list, tuple)):
        rows = held.items() if isinstance(held, Mapping) else enumerate(held)
        for key, each in list(rows):
            if isinstance(key, PLAIN):
                for keys in _inside(each, value, depth - 1):
                    yield (key, *keys)


def _class(value: Any, cut: Slice) -> str:
    """The name of a value's class."""
    name = _named(type(value), cut)
    if name is None:
        raise UnslicedError(f"{type(value).__name__} is a class without a name.")
    return name


def _instance(value: Any, cut: Slice, module: ModuleType) -> str:
    """A call of the class of a value."""
    if is_dataclass(value):
        words = []
        for each in fields(value):
            held = getattr(value, each.name)
            default = each.default if each.default_factory is MISSING else each.default_factory()
            if each.init and not _same(held, default):
                words.append(f"{each.name}={written(held, cut, module)}")
        return f"{_class(value, cut)}({', '.join(words)})"
    if hasattr(value, "_fields"):
        words = [f"{name}={written(each, cut, module)}" for name, each in value._asdict().items()]
        return f"{_class(value, cut)}({', '.join(words)})"
    if isinstance(value, np.dtype):
        return f"{cut.imported(Imported(NUMPY, 'dtype'), 'dtype')}({str(value)!r})"
    raise UnslicedError(f"{type(value).__name__} is nothing that a program can write.")


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and isinstance(one, (*PLAIN, float, tuple)) and one == other

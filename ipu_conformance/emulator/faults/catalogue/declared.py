"""Slips of what is declared: a value is another, a name is missing, a default is another, a warning does not come.

Like those of functions they follow from the emulator, and the form of the place says which it is::

    slip:core.streams:Selection.arrange             a function gives a wrong result
    slip:core.streams:Selection.arrange?            an error that it raises does not come, and all else is right
    slip:core.streams:Selection.arrange#2           the same from its second call on, so that two runs differ
    slip:tensorflow.config.tree:LIMIT               a constant, an attribute of a class or a member has a wrong value
    slip:tensorflow.api.scopes:-ipu_shard           a public name, or a member of an enumeration, is missing
    slip:tensorflow.compile.loops:repeat(inputs)    an argument that is left out counts as another
    slip:tensorflow.run.infeed:Queue.__init__(size=) an argument that is given arrives as another
    slip:tensorflow.compile.loops:repeat!           no warning and no line of the log comes from it
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import logging
import re
import sys
import warnings
from types import FunctionType, ModuleType
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Tuple

from ipu_conformance.emulator.faults.catalogue import replacing, slips

AREA = "slip"
Undo = Callable[[], None]
_FORMS: Dict[str, str] = {
    r"(?P<place>.+)\((?P<name>\w+)\)": "default",
    r"(?P<place>.+)\((?P<name>\w+)=\)": "argument",
    r"(?P<place>.+)!": "warning",
    r"(?P<place>.+)#2": "again",
    r"(?P<place>.+)\?": "error",
    r"(?P<place>.+:)-(?P<name>[\w.]+)": "missing",
    r"(?P<place>.+)": "value",
}
_WORDS = {
    "default": "{name} of {place} counts as another value where it is left out",
    "argument": "{name} arrives at {place} as another value",
    "again": "{place} gives a wrong result, or is left out, from the second call on",
    "error": "{place} raises no error",
    "warning": "{place} gives no warning",
    "missing": "{place}{name} is missing",
    "value": "{place} gives a wrong result, is left out or is another value",
}


def _read(place: str) -> Tuple[str, Dict[str, str]]:
    """The form of a place, and its parts."""
    for pattern, form in _FORMS.items():
        found = re.fullmatch(pattern, place)
        if found:
            return form, found.groupdict()
    raise replacing.FaultError(f"{place!r} is no place of a slip")


def what(place: str) -> str:
    """What the device does."""
    form, parts = _read(place)
    return _WORDS[form].format(**parts)


def turn_on(place: str) -> Undo:
    """Make the device wrong; what is returned makes it right again."""
    form, parts = _read(place)
    if form == "default":
        return _redefault(parts["place"], parts["name"])
    if form == "argument":
        return replacing.replace_function(parts["place"], functools.partial(_misheard, parts["name"]))
    if form == "again":
        return replacing.replace_function(parts["place"], functools.partial(_later, []))
    if form == "error":
        return replacing.replace_function(parts["place"], _lenient)
    if form == "warning":
        return replacing.replace_function(parts["place"], _silent)
    owner, name = replacing.owner_of(parts["place"] + parts.get("name", ""))
    if form == "missing":
        return _forget(owner, name)
    value = inspect.getattr_static(owner, name)
    if isinstance(value, enum.Enum):
        return _revalue(value)
    if isinstance(value, (FunctionType, staticmethod, classmethod, property)) or not slips.can_slip(value):
        return replacing.replace_function(place, slips.wrong)
    return replacing.replace(owner, name, slips.slipped(value))


def _lenient(original: Any, *arguments: Any, **settings: Any) -> Any:
    """The result of a function, or nothing where it raises an error; a scope that cannot be entered is none."""
    with contextlib.suppress(Exception):
        result = original(*arguments, **settings)
        return _open(result) if isinstance(result, contextlib._GeneratorContextManager) else result
    return None


@contextlib.contextmanager
def _open(scope: ContextManager[Any]) -> Iterator[Any]:
    with contextlib.ExitStack() as inside:
        value = None
        with contextlib.suppress(Exception):
            value = inside.enter_context(scope)
        yield value


def _later(calls: List[None], original: Any, *arguments: Any, **settings: Any) -> Any:
    """The right result of the first call, and wrong ones of those that follow."""
    calls.append(None)
    return (original if len(calls) == 1 else functools.partial(slips.wrong, original))(*arguments, **settings)


def _silent(original: Any, *arguments: Any, **settings: Any) -> Any:
    """The result of a function, without a word."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return original(*arguments, **settings)
    finally:
        logging.disable(before)


def _redefault(place: str, parameter: str) -> Undo:
    """A function with another default of a parameter, in its signature too."""
    owner, name = replacing.owner_of(place)
    raw = inspect.getattr_static(owner, name)
    new = replacing.wrapped(raw, functools.partial(_otherwise, parameter), place)
    signature = inspect.signature(getattr(raw, "__func__", raw))
    changed = [
        each.replace(default=slips.slipped(each.default)) if each.name == parameter else each
        for each in signature.parameters.values()
    ]
    getattr(new, "__func__", new).__signature__ = signature.replace(parameters=changed)
    return replacing.replace(owner, name, new)


def _otherwise(name: str, original: Any, *arguments: Any, **settings: Any) -> Any:
    """The result of a function whose argument of that name counts as another value unless it is given."""
    bound = inspect.signature(original).bind(*arguments, **settings)
    if name not in bound.arguments:
        bound.apply_defaults()
        bound.arguments[name] = slips.slipped(bound.arguments[name])
    return original(*bound.args, **bound.kwargs)


def _misheard(name: str, original: Any, *arguments: Any, **settings: Any) -> Any:
    """The result of a function that takes an argument for another value."""
    bound = inspect.signature(original).bind(*arguments, **settings)
    bound.apply_defaults()
    bound.arguments[name] = slips.slipped(bound.arguments[name])
    return original(*bound.args, **bound.kwargs)


def _forget(owner: Any, name: str) -> Undo:
    """A module or an enumeration without one of its names."""
    if isinstance(owner, type) and issubclass(owner, enum.Enum):
        members, names = owner._member_map_, owner._member_names_
        order, member = list(names), members.pop(name)
        names.remove(name)

        def remember() -> None:
            members[name] = member
            again = {each: members[each] for each in [*order, *members]}
            members.clear()
            members.update(again)
            names[:] = order

        return remember
    value = vars(owner)[name]
    listed = list(getattr(owner, "__all__", ()))
    delattr(owner, name)
    if name in listed:
        owner.__all__ = [each for each in listed if each != name]

    def undo() -> None:
        setattr(owner, name, value)
        if listed:
            owner.__all__ = listed

    return undo


def _revalue(member: enum.Enum) -> Undo:
    right = member._value_
    member._value_ = slips.slipped(right)

    def undo() -> None:
        member._value_ = right

    return undo


def places(front_end: str) -> List[str]:
    """Every slip of the modules of the core and a front end that are there by now, but for results and warnings."""
    found: List[str] = []
    for module_name, module in list(sys.modules.items()):
        short = module_name[len(replacing.EMULATOR) + 1 :]
        ours = module_name.startswith(f"{replacing.EMULATOR}.") and short.split(".")[0] in ("core", front_end)
        if ours and module is not None:
            with contextlib.suppress(ImportError):
                found.extend(f"{short}:{path}" for path in _of_module(module))
    return found


def _of_module(module: ModuleType) -> Iterator[str]:
    public = getattr(module, "__all__", ())
    if isinstance(vars(module).get("__getattr__"), FunctionType):  # it finds names, and refuses unknown ones
        yield from ("__getattr__", "__getattr__?")
    for name, value in list(vars(module).items()):
        if name in public:
            yield f"-{name}"
        if name.startswith("__") or isinstance(value, ModuleType):
            continue
        if isinstance(value, type):
            if _belongs(value, module):
                yield from _of_class(value, name)
        elif isinstance(value, FunctionType):
            if slips.is_written_in(value, module):
                yield from (f"{name}({parameter})" for parameter in _defaults(value))
        elif slips.can_slip(value):
            yield name


def _belongs(kind: type, module: ModuleType) -> bool:
    """Whether a class is defined in a module; a vendor's class may say that it belongs elsewhere."""
    return kind.__module__ == module.__name__ or any(
        isinstance(value, FunctionType) and slips.is_written_in(value, module) for value in vars(kind).values()
    )


def _of_class(kind: type, known_as: str) -> Iterator[str]:
    if issubclass(kind, enum.Enum):
        for member in kind.__members__:
            yield f"-{known_as}.{member}"
            yield f"{known_as}.{member}"
        return
    for name, raw in list(vars(kind).items()):
        function = getattr(raw, "__func__", raw)
        if isinstance(function, FunctionType):
            yield from (f"{known_as}.{name}({parameter})" for parameter in _defaults(function))
        elif not name.startswith("__") and slips.can_slip(raw):
            yield f"{known_as}.{name}"
    yield from (f"{known_as}.{name}" for name in _inherited(kind))


def _inherited(kind: type) -> Iterator[str]:
    """The public methods and properties that a class has from its framework; a slip gives it a wrong one of its own."""
    for base in kind.__mro__[1:]:
        if base.__module__.startswith((replacing.EMULATOR, "builtins", "abc", "typing")):
            continue
        for name, raw in vars(base).items():
            usable = isinstance(raw, (FunctionType, property)) and not name.startswith("_")
            if usable and inspect.getattr_static(kind, name) is raw:
                yield name


def _defaults(function: FunctionType) -> List[str]:
    """The parameters that have a default which can be another."""
    with contextlib.suppress(ValueError, TypeError):
        parameters = inspect.signature(function).parameters.values()
        return [each.name for each in parameters if each.default is not each.empty and slips.can_slip(each.default)]
    return []

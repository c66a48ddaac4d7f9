"""Options from files of calls and from JSON.

A file holds one call a line, as it would be written behind the options: ``deviceIterations(4)``,
``Training.gradientAccumulation(8)``, ``outputMode(poptorch.OutputMode.All)``. Lines are read as literals, names of
the framework and calls of those; nothing else is evaluated.
"""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Tuple, Union

import torch

from ipu_conformance.emulator.poptorch.options import enums
from ipu_conformance.emulator.poptorch.options.diagnostics import ConfigFileError

if TYPE_CHECKING:
    from ipu_conformance.emulator.poptorch.options.options import Options

DEFAULT_EXCLUDES = ["site-packages/torch/", "dist-packages/torch/", "ipu_conformance/emulator/poptorch"]
"""Files that are never where the user wrote an operation; the user's own may well be in an installed package."""

_ROOTS = ("poptorch", "torch")


def load(options: Options, filepath: Union[str, Path]) -> None:
    """Apply the calls of a file in order; the first that fails is an error that names its line."""
    try:
        text = Path(filepath).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigFileError(f"Error parsing options: {filepath} is not UTF-8 text: {error}") from error
    for number, line in _numbered_calls(text):
        try:
            _call_line(options, line)
        except Exception as error:
            raise ConfigFileError(
                f"Error parsing options: {filepath}, line {number}: {line!r}: {type(error).__name__}: {error}"
            ) from error


def _numbered_calls(text: str) -> List[Tuple[int, str]]:
    """The lines that hold a call, with their numbers; the others are empty or comments."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def _call_line(options: Options, line: str) -> None:
    expression = ast.parse(line[len("options.") :] if line.startswith("options.") else line, mode="eval").body
    if not isinstance(expression, ast.Call):
        raise SyntaxError("a line is one call of an option, such as deviceIterations(4)")
    method = _method(options, _dotted(expression.func))
    args = [_evaluate(argument) for argument in expression.args]
    kwargs = {str(keyword.arg): _evaluate(keyword.value) for keyword in expression.keywords}
    method(*args, **kwargs)


def _dotted(node: ast.AST) -> List[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_dotted(node.value), node.attr]
    raise SyntaxError("only names joined by dots can be called")


def _method(options: Options, path: List[str]) -> Callable[..., Any]:
    """The method of the options, or of one of its sections, that ``path`` names."""
    target: Any = options
    for name in path:
        public = not name.startswith("_") or name == "_Popart"
        if not public or not hasattr(type(target), name):
            raise AttributeError(f"no option is named {'.'.join(path)}")
        target = getattr(target, name)
    if not callable(target):
        raise AttributeError(f"{'.'.join(path)} is not a method of the options")
    return target


def _evaluate(node: ast.AST) -> Any:
    """A literal, a name of poptorch or torch, or a chain of calls that begins with one."""
    if isinstance(node, ast.Call):
        called = _evaluate(node.func)
        if not _is_of_options(getattr(called, "__self__", called)):
            raise NameError(f"{ast.dump(node.func)[:80]} is not a part of the options")
        return called(
            *(_evaluate(argument) for argument in node.args),
            **{str(keyword.arg): _evaluate(keyword.value) for keyword in node.keywords},
        )
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
        return getattr(_evaluate(node.value), _public(node.attr))
    if isinstance(node, (ast.Attribute, ast.Name)):
        return _named(_dotted(node))
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_evaluate(item) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict):
        pairs: List[Tuple[Any, Any]] = [
            (_evaluate(key), _evaluate(value)) for key, value in zip(node.keys, node.values) if key is not None
        ]
        return dict(pairs)
    return ast.literal_eval(node)


def _named(path: List[str]) -> Any:
    if path[0] not in _ROOTS:
        raise NameError(f"{'.'.join(path)} is unknown; values are literals or begin with {' or '.join(_ROOTS)}")
    root = "ipu_conformance.emulator.poptorch.api" if path[0] == "poptorch" else "torch"
    value: Any = importlib.import_module(root)
    for name in path[1:]:
        value = getattr(value, _public(name))
    # A module would lead on to any function there is: torch.os.system.
    if not isinstance(value, torch.dtype) and not _is_of_options(value):
        raise NameError(f"{'.'.join(path)} is neither a dtype nor a part of the options")
    return value


def _is_of_options(value: Any) -> bool:
    """Whether a value, or its class, is one of those that options are given as."""
    described = value if isinstance(value, type) else type(value)
    return described.__module__.startswith(f"{__name__.rpartition('.')[0]}.")


def _public(name: str) -> str:
    if name.startswith("_"):
        raise NameError(f"{name} is private")
    return name


def apply_json(options: Options, string: str, source: str = "the JSON string") -> None:
    """Call the methods that a JSON object names: a list gives arguments, an object gives them by name."""
    try:
        methods = json.loads(string)
    except json.JSONDecodeError as error:
        raise ConfigFileError(
            f"Error parsing options: {source}, line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error
    if not isinstance(methods, dict):
        raise ConfigFileError(f"Error parsing options: {source} is not a JSON object of methods and their arguments")
    _apply_methods(options, methods, source)


def _apply_methods(options: Any, methods: Mapping[str, Any], source: str) -> None:
    for name, value in methods.items():
        if isinstance(value, dict) and not callable(getattr(options, name, _apply_methods)):
            # A section of the options, with methods of its own.
            _apply_methods(getattr(options, name), value, source)
            continue
        method = _json_method(options, name, source)
        value = _with_members(value)
        if isinstance(value, list):
            method(*value)
        elif isinstance(value, dict):
            method(**value)
        else:
            method(value)


def _with_members(value: Any) -> Any:
    """A value of JSON with members of enumerations in the place of their dotted names, such as OutputMode.All."""
    if isinstance(value, list):
        return [_with_members(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_members(item) for name, item in value.items()}
    path = value.split(".") if isinstance(value, str) else []
    path = path[1:] if path[:1] == ["poptorch"] else path
    kind = getattr(enums, path[0], None) if len(path) == 2 else None
    return getattr(kind, path[1], value) if isinstance(kind, type) else value


def _json_method(options: Options, name: str, source: str) -> Callable[..., Any]:
    try:
        return _method(options, name.split("."))
    except AttributeError as error:
        raise ConfigFileError(f"Error parsing options: {source}: {error}") from error

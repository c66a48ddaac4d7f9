"""Names of the old API as rows: parameters and defaults of then, and what of Paddle 2 does the work now."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, Mapping, NoReturn, Tuple, Union

import paddle

Work = Callable[..., Any]

ACT = "act"
"""The parameter that names an activation which follows."""


@dataclass(frozen=True)
class Old:
    """One name of the old API."""

    name: str
    parameters: str
    """As they stood in the definition, with their defaults."""
    work: Union[str, Work]
    """A path below ``paddle``, or a function of this room."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What a parameter is called now."""
    dropped: Tuple[str, ...] = ()
    """Parameters that choose how something is computed and not what."""


def signature(parameters: str) -> inspect.Signature:
    """The signature that a text of parameters stands for; defaults are literals."""
    (function,) = ast.parse(f"def old({parameters}): pass").body
    assert isinstance(function, ast.FunctionDef)
    names = [argument.arg for argument in function.args.args]
    defaults = [ast.literal_eval(value) for value in function.args.defaults]
    required = len(names) - len(defaults)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [inspect.Parameter(name, kind) for name in names[:required]]
        + [inspect.Parameter(name, kind, default=value) for name, value in zip(names[required:], defaults)]
    )


def function(row: Old) -> Work:
    """The function that a row stands for."""
    form = signature(row.parameters)

    def old(*arguments: Any, **words: Any) -> Any:
        bound = form.bind(*arguments, **words)
        bound.apply_defaults()
        values = {name: value for name, value in bound.arguments.items() if name not in row.dropped}
        if not isinstance(row.work, str):
            return row.work(**values)
        act = values.pop(ACT, None) if ACT not in row.renamed else None
        made = found(row.work)(**{row.renamed.get(name, name): value for name, value in values.items()})
        return activated(made, act)

    old.__name__ = old.__qualname__ = row.name
    old.__doc__ = f"``{row.name}`` of the old API, which is ``{_told(row.work)}`` now."
    old.__signature__ = form  # type: ignore[attr-defined]
    return old


def _told(work: Union[str, Work]) -> str:
    return f"paddle.{work}" if isinstance(work, str) else work.__name__.lstrip("_")


@functools.lru_cache(maxsize=None)
def found(path: str) -> Any:
    """What stands at a path below ``paddle``."""
    value: Any = paddle
    for name in path.split("."):
        value = getattr(value, name)
    return value


def activated(value: Any, act: Any) -> Any:
    """A value behind the activation of a name, if there is one."""
    return value if act is None else getattr(paddle.nn.functional, act)(value)


def functions(rows: Iterable[Old]) -> Dict[str, Work]:
    """The function of every row by its name."""
    return {row.name: function(row) for row in rows}


def missing(module: str, name: str) -> NoReturn:
    """Refuse a name that has no equivalent, in one sentence."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"{module}.{name} is a name of Paddle's old API that the legacy layer does not have: Paddle "
        f"{paddle.__version__} has no equivalent, or another way to say it; write it with Paddle 2's own names"
    )


def forwarded(module: str, stock: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module that gives the names of a stock module too."""

    def get(name: str) -> Any:
        where = importlib.import_module(stock)
        return getattr(where, name) if hasattr(where, name) else missing(module, name)

    return get

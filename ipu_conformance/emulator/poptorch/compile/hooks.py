"""Functions of the user that run before and after every compilation."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Dict

from torch.utils.hooks import RemovableHandle

Hook = Callable[[], Any]

_before: Dict[int, Hook] = OrderedDict()
_after: Dict[int, Hook] = OrderedDict()


def registerPreCompileHook(hook: Hook) -> RemovableHandle:
    """Call ``hook()`` before each model is compiled, until the handle's ``remove`` is called."""
    return _register(_before, hook)


def registerPostCompileHook(hook: Hook) -> RemovableHandle:
    """Call ``hook()`` after each model has been compiled, until the handle's ``remove`` is called."""
    return _register(_after, hook)


def before_compile() -> None:
    """Run the hooks of before, in the order in which they were registered."""
    for hook in tuple(_before.values()):
        hook()


def after_compile() -> None:
    """Run the hooks of after, in the order in which they were registered."""
    for hook in tuple(_after.values()):
        hook()


def _register(hooks: Dict[int, Hook], hook: Hook) -> RemovableHandle:
    if not callable(hook):
        raise TypeError(f"{hook!r} was given: a hook is a function without arguments")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle

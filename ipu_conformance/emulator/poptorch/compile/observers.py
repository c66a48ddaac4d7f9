"""Who follows a compilation: the user's functions before and after it, and the progress bar."""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterator

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


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """Run the hooks of before and, even if compiling fails, those of after, in the order of their registration."""
    for hook in tuple(_before.values()):
        hook()
    try:
        yield
    finally:
        for hook in tuple(_after.values()):
            hook()


def _register(hooks: Dict[int, Hook], hook: Hook) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(f"{hook!r} was given: a hook must be callable")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


STEPS = ("capture", "placement", "stages", "plan", "memory")
"""What compiling does, in order; each is one step of the bar."""


@contextlib.contextmanager
def progress_bar(options: Any) -> Iterator[Callable[[str], None]]:
    """A function to call after each step; it draws on stderr if that is a terminal."""
    if not (options.show_compilation_progress_bar and sys.stderr.isatty()):
        yield lambda step: None
        return
    from tqdm import tqdm

    with tqdm(total=len(STEPS), desc="Graph compilation", file=sys.stderr) as bar:

        def done(step: str) -> None:
            bar.set_postfix_str(step, refresh=False)
            bar.update()

        yield done

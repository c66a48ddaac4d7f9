"""Where in the user's code an operation was called."""

from __future__ import annotations

import re
from typing import Iterable

from torch.fx import Node

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def is_excluded(path: str, excludes: Iterable[str]) -> bool:
    """Whether a file is never named: one of the excluded parts is in its path."""
    return any(part in path for part in excludes)


def location(node: Node, excludes: Iterable[str]) -> str:
    """The innermost line that led to an operation, as ``file:line``; empty if every file on the way is excluded."""
    parts = tuple(excludes)
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return next((f"{file}:{line}" for file, line in reversed(frames) if not is_excluded(file, parts)), "")


def called(node: Node, excludes: Iterable[str]) -> str:
    """The name of an operation, with its location if there is one."""
    place = location(node, excludes)
    return f"{node.name} ({place})" if place else node.name

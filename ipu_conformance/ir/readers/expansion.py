"""How large a program is once what it calls stands in place of the calls, told without putting it there."""

from __future__ import annotations

from typing import Dict, Mapping, Sequence

from ipu_conformance.ir.tensor import IRError

MAX_FRAMES = 100
"""How deep functions may call each other."""


def expanded(calls: Sequence[str], functions: Mapping[str, Sequence[str]]) -> int:
    """How many steps a program has, counting those of the functions that it calls.

    ``calls`` has the name of a function, or an empty one, for each step; ``functions`` has the same for each function.
    One that calls itself, and calls that go too deep, are errors.
    """
    sizes: Dict[str, int] = {}
    return _size(calls, functions, sizes, ())


def _size(
    calls: Sequence[str], functions: Mapping[str, Sequence[str]], sizes: Dict[str, int], stack: Sequence[str]
) -> int:
    total = len(calls)
    for name in calls:
        if name not in functions:
            continue
        if name not in sizes:
            if name in stack or len(stack) >= MAX_FRAMES:
                raise IRError(f"{name[:80]!r} calls itself, or calls go more than {MAX_FRAMES} deep")
            sizes[name] = _size(functions[name], functions, sizes, (*stack, name))
        total += sizes[name]
    return total

"""Python functions that ops of a Program call, by the number under which Paddle's ``py_func`` op knows them."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

import numpy as np
from paddle.base import core

CALL = "py_func"
"""The type of Paddle's own op that calls a Python function."""

NONE = -1
"""The number of no function."""


def register(function: Callable[..., Any]) -> int:
    """Paddle keeps the function for as long as the process lives and calls it by this number.

    Paddle lets go of it when the interpreter is gone already, where freeing it would abort the process: it is owned
    once more, for ever.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
    number: int = core._append_python_callable_object_and_return_id(function)
    return number


def tensor(array: Any) -> Any:
    """A tensor of Paddle's with the values of an array, as a called function returns it."""
    held = core.LoDTensor()
    held.set(np.ascontiguousarray(array), core.CPUPlace())
    return held

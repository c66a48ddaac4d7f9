"""Lets the operations of TensorFlow's graphs share one note of where they were made while cases run.

TensorFlow notes all frames of the stack for every operation that it builds, so that an error of the operation can say
where it came from. Below pytest that is a twelfth of the time of an estimator. A case that fails has a traceback of
its own.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

MODULE = "tensorflow.python.util.tf_stack"


def not_noted_while_cases_run(extract_stack: Callable[[], Any]) -> Any:
    """The note: what an error of an operation shows ends in the name of this function."""
    return extract_stack()


def share() -> None:
    """Give every operation from now on the same short note, once TensorFlow is there; a second call changes nothing."""
    module: Any = sys.modules.get(MODULE)
    if module is None or not hasattr(module, "extract_stack") or hasattr(module.extract_stack, "__wrapped__"):
        return
    own = module.extract_stack
    note = not_noted_while_cases_run(own)

    def extract_stack(stacklevel: int = 1) -> Any:
        return note

    extract_stack.__wrapped__ = own  # type: ignore[attr-defined]
    module.extract_stack = extract_stack

"""What happens around the first execution of a Keras model's program: its memory is checked, its report written.

Whoever makes the function that runs a phase of a model passes it through ``watched``.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Optional, Set

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.compile import capacity
from ipu_conformance.emulator.tensorflow.reports import keras

WATCHED = "_ipu_watched"


def watched(model: Any, phase: str, plan_of: Callable[[], Plan], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs a phase (train, evaluate or predict), watched once for each kind of data.

    A program that no IPU can hold is refused before it runs. Its report is written after it has run: then it is
    compiled. A function that is watched already stays as it is.
    """
    if hasattr(function, WATCHED):
        return function
    seen: Set[Any] = set()
    last: Callable[[], Optional[Any]] = lambda: None  # noqa: E731 (a reference that is dead, until there is one)

    @functools.wraps(function)
    def run(iterator: Any) -> Any:
        nonlocal last
        if last() is iterator:
            return function(iterator)
        import tensorflow as tf

        kind = tuple(tf.nest.flatten(iterator.element_spec))
        new = kind not in seen
        if new:
            capacity.require(model, phase, plan_of(), iterator.element_spec)
        results = function(iterator)
        if new:
            seen.add(kind)
            keras.write(model, phase, plan_of(), iterator.element_spec)
        last = weakref.ref(iterator)
        return results

    setattr(run, WATCHED, True)
    return run

"""What stock TensorFlow's graphs inside graphs become while replicas are built: a place where replicas can still meet.

A ``tf.function`` that a replica calls is built into the graph of all replicas. So is a loop in whose body replicas
meet: they share one loop. One in whose body they do not is left to each replica, and so keeps its gradient.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Sequence, Tuple

from ipu_conformance.emulator.tensorflow.run import replicas
from ipu_conformance.emulator.tensorflow.run.replicas import ReplicaError


def inlining(own: Callable[..., Any]) -> Callable[..., Any]:
    """``Function.__call__`` that calls the Python function itself inside a replica."""

    @functools.wraps(own)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not replicas.inside():
            return own(self, *args, **kwargs)
        return inlined(self)(*args, **kwargs)

    return call


def inlined(function: Any) -> Callable[..., Any]:
    """The Python function of a ``tf.function``, converted as the function itself would be."""
    from tensorflow.python.autograph.core import ag_ctx
    from tensorflow.python.eager.polymorphic_function import autograph_util

    inner: Callable[..., Any] = function.python_function
    status = ag_ctx.Status.DISABLED
    if getattr(function, "_autograph", True):
        status = ag_ctx.Status.ENABLED
        inner = autograph_util.py_func_from_autograph(inner, getattr(function, "_experimental_autograph_options", None))

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        # The caller's status may forbid the conversion that the function itself asks for.
        with ag_ctx.ControlStatusCtx(status=status, options=None):
            return inner(*args, **kwargs)

    return call


def sharing(own: Callable[..., Any]) -> Callable[..., Any]:
    """``while_loop`` that is one loop of all replicas if they meet in its body."""

    @functools.wraps(own)
    def loop(
        cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, shape_invariants: Any = None, *rest: Any,
        **settings: Any,
    ) -> Any:  # fmt: skip
        def alone() -> Any:
            return own(cond, body, loop_vars, shape_invariants, *rest, **settings)

        if not replicas.inside():
            return alone()
        try:
            return alone()
        except ReplicaError:
            _refuse_recording()
        variables = replicas.exchange(
            (cond, body, tuple(loop_vars), shape_invariants),
            lambda all_: _shared(own, all_, rest, settings),
            "a loop",
        )
        same_structure = settings.get("return_same_structure", False)
        return variables[0] if len(variables) == 1 and not same_structure else variables

    return loop


def _refuse_recording() -> None:
    from tensorflow.python.eager import record

    if record.could_possibly_record():
        raise ReplicaError(
            "replicas meet inside a loop that a GradientTape around it records: open the tape inside the loop, or meet "
            "outside of it"
        )


def _shared(own: Callable[..., Any], loops: List[Any], rest: Sequence[Any], settings: Any) -> List[Tuple[Any, ...]]:
    """One loop over the variables of all replicas; what each replica's become."""
    lengths = [len(loop_vars) for _, _, loop_vars, _ in loops]

    def cond(*values: Any) -> Any:
        # Replicas run one program in step: the first one's condition is that of all.
        return loops[0][0](*replicas.by_replica(values, lengths)[0])

    def body(*values: Any) -> List[Any]:
        results = replicas.run(
            lambda function, own_values: _listed(function(*own_values)),
            [
                (function, own_values)
                for (_, function, _, _), own_values in zip(loops, replicas.by_replica(values, lengths))
            ],
        )
        return [value for result in results for value in result]

    invariants = None
    if loops[0][3] is not None:
        invariants = [item for _, _, _, own_invariants in loops for item in own_invariants]
    values = [value for _, _, loop_vars, _ in loops for value in loop_vars]
    finished = own(cond, body, values, invariants, *rest, **{**settings, "return_same_structure": True})
    return [tuple(own) for own in replicas.by_replica(finished, lengths)]


def _listed(result: Any) -> List[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]

"""Loops that the device runs by itself, fed from an infeed."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.compile import device_loop, functions


def repeat(
    n: Any,
    body: Callable[..., Any],
    inputs: Optional[Sequence[Any]] = None,
    infeed_queue: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """The values that ``n`` iterations of ``body`` make of the inputs; an operation if there are none."""
    values = functions.listed(inputs)
    finished = device_loop.counted(n, _fed(body, len(values), infeed_queue), values or [tf.constant(0)])
    return _returned(finished, values)


def for_loop(
    start: Any,
    end: Any,
    step: Any,
    body: Callable[..., Any],
    inputs: Optional[Sequence[Any]] = None,
    infeed_queue: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """Like ``repeat``, with a first argument of ``body`` that goes from start to before end in steps."""
    start, end, step = (tf.convert_to_tensor(value, tf.int32) for value in (start, end, step))
    times = tf.maximum(0, -((start - end) // step))
    values, body = functions.listed(inputs), functions.converted(body)

    def numbered(*arguments: Any, **named: Any) -> Any:
        iteration = device_loop.current()
        assert iteration is not None
        return body(start + step * iteration.number, *arguments, **named)

    finished = device_loop.counted(times, _fed(numbered, len(values), infeed_queue), values or [tf.constant(0)])
    return _returned(finished, values)


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Optional[Sequence[Any]] = None,
    infeed_queue: Any = None,
    maximum_iterations: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """The values that ``body`` makes of the inputs while ``condition`` of them is true."""
    holds = functions.converted(condition)
    values = functions.listed(inputs)
    finished = device_loop.conditional(
        holds if values else (lambda *_: holds()),
        _fed(body, len(values), infeed_queue),
        values or [tf.constant(0)],
        maximum_iterations,
    )
    return _returned(finished, values)


def _fed(body: Callable[..., Any], number: int, infeed_queue: Any) -> Callable[..., List[Any]]:
    """The body with what it takes from the infeed; it returns as many tensors as it is given."""
    body = functions.converted(body)

    def iteration(*held: Any) -> List[Any]:
        arguments = list(held[:number])
        outputs = body(*arguments) if infeed_queue is None else functions.fed(body, arguments, infeed_queue._dequeue())
        tensors, operations = functions.split(outputs, "The body of a loop")
        if len(tensors) != number:
            raise ValueError(
                f"The body of a loop returned {len(tensors)} tensors for {number} inputs: it must return a new value "
                "for each of them."
            )
        if not number:
            tensors = [held[0]]
        with tf.control_dependencies(operations):
            return [tf.identity(tensor) for tensor in tensors]

    return iteration


def _returned(finished: List[Any], values: List[Any]) -> Any:
    """The value of a loop of one, the list of several, an operation where there are none."""
    if values:
        return finished[0] if len(finished) == 1 else finished
    with tf.control_dependencies(finished):
        return tf.no_op()

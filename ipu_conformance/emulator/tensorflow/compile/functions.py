"""Functions that a program hands to loops, pipelines and the compiler: arguments, results, and failures at run time."""

from __future__ import annotations

import itertools
from typing import Any, Callable, List, Tuple

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx, config
from tensorflow.python.autograph.impl import api

_OURS = config.DoNotConvert("ipu_conformance.emulator")
if str(_OURS) not in map(str, config.CONVERSION_RULES):
    # A converted program calls our functions: they are finished as they are, like TensorFlow's own.
    config.CONVERSION_RULES = (_OURS, *config.CONVERSION_RULES)


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the user with Python's control flow turned into a graph's, if the function around it is."""
    made: Callable[..., Any] = api.tf_convert(function, ag_ctx.control_status_ctx(), convert_by_default=False)
    return made


def listed(value: Any) -> List[Any]:
    """A list of what was given: nothing, one thing, or several."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def fed(function: Callable[..., Any], values: List[Any], element: Any) -> Any:
    """``function`` of values and of an element of a data set: a dictionary is passed by name, all else in order."""
    if isinstance(element, dict):
        return function(*values, **element)
    return function(*values, *listed(element))


def split(outputs: Any, what: str) -> Tuple[List[Any], List[Any]]:
    """The tensors and then the operations among what a function returns; tensors must come first."""
    results = listed(outputs)
    tensors = [tf.convert_to_tensor(item) for item in results if not isinstance(item, tf.Operation)]
    operations = [item for item in results if isinstance(item, tf.Operation)]
    if any(isinstance(item, tf.Operation) for item in results[: len(tensors)]):
        raise ValueError(f"{what} must return zero or more Tensor values followed by zero or more Operations.")
    return tensors, operations


def split_structures(outputs: Any, what: str) -> Tuple[Any, List[Any]]:
    """Like ``split`` for tensors and dictionaries of them: one alone stays what it is, all else becomes a list."""
    results = listed(outputs)
    operations = [item for item in results if isinstance(item, tf.Operation)]
    kept = results[: len(results) - len(operations)]
    if any(isinstance(item, tf.Operation) for item in kept):
        raise ValueError(f"{what} must return zero or more Tensor values followed by zero or more Operations.")
    alone = kept and not isinstance(outputs, (list, tuple))
    return tf.nest.map_structure(tf.convert_to_tensor, kept[0] if alone else kept), operations


_NUMBERS = itertools.count()


def fail(sentence: str) -> Any:
    """A truth value whose computation raises FailedPreconditionError with that sentence when it is executed.

    No kernel of the host fails with a sentence of ours, but reading a missing variable reports its name.
    """
    handle = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=f"[{next(_NUMBERS)}] {sentence}")
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.bool)
    # An assertion is never optimized away; this one is never reached.
    with tf.control_dependencies([tf.raw_ops.Assert(condition=value, data=[sentence])]):
        return tf.identity(value)


def fail_if(broken: Any, sentence: str) -> None:
    """Make the program fail with that sentence where ``broken``, a truth value or a tensor, is true."""
    known = tf.get_static_value(broken)
    if known is None:
        tf.cond(broken, lambda: fail(sentence), lambda: True)
    elif known:
        fail(sentence)

"""Preconditions that a program breaks when it runs, not when it is built."""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf

_NUMBERS = itertools.count()


def fail(sentence: str) -> Any:
    """A truth value whose computation raises FailedPreconditionError with that sentence when it is executed.

    No kernel of the host fails with words of ours; but reading a variable that never was says its name.
    """
    handle = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=f"[{next(_NUMBERS)}] {sentence}")
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.bool)
    # An assertion is never optimized away; this one is never reached.
    with tf.control_dependencies([tf.raw_ops.Assert(condition=value, data=[sentence])]):
        return tf.identity(value)


def fail_if(broken: Any, sentence: str) -> None:
    """Let the program fail with that sentence where ``broken``, a truth value or a tensor, is true."""
    known = tf.get_static_value(broken)
    if known is None:
        tf.cond(broken, lambda: fail(sentence), lambda: True)
    elif known:
        fail(sentence)

"""Where a replica stands while it builds: it is taken along into loops and pipelines that all replicas share.

Those are built by one thread for all, which knows nothing of the scopes that a replica has entered.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List, Sequence

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import variable_scope

from ipu_conformance.emulator.tensorflow.run import replicas


class Standing:
    """The scopes for variables that a replica has entered."""

    def __init__(self) -> None:
        self._scope = variable_scope.get_variable_scope()
        self._creators = list(ops.get_default_graph()._variable_creator_stack)
        with tf.init_scope():
            self._outer_creators = list(ops.get_default_graph()._variable_creator_stack)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside, variables are made as they were where this was made."""
        graph = ops.get_default_graph()
        with tf.init_scope():
            outer = ops.get_default_graph()
        scope = variable_scope.variable_scope(self._scope, auxiliary_name_scope=False)
        with _creators(outer, self._outer_creators), _creators(graph, self._creators), scope:
            yield


@contextlib.contextmanager
def _creators(graph: Any, stack: List[Any]) -> Iterator[None]:
    before = graph._variable_creator_stack
    graph._variable_creator_stack = list(stack)
    try:
        yield
    finally:
        graph._variable_creator_stack = before


def run(function: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> List[Any]:
    """``function`` of every replica's arguments; one replica alone needs nobody to meet."""
    if len(arguments) == 1:
        return [function(*arguments[0])]
    return replicas.run(function, arguments)

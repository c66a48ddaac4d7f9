"""First values of variables that a program for the device computes, moved to the graph that initializes variables.

A program of TensorFlow 1 is part of its graph on a device, and so are the tensors that its variables begin with. Here
it is a function, whose tensors nobody outside can read.
"""

from __future__ import annotations

from typing import Any, Dict

import tensorflow as tf
from tensorflow.python.framework import func_graph, ops


def outside(value: Any) -> Any:
    """The same value in the graph of the session; ``value`` itself where it is there or depends on an argument."""
    if not tf.is_tensor(value) or not isinstance(getattr(value, "graph", None), func_graph.FuncGraph):
        return value
    with tf.init_scope():
        if tf.executing_eagerly():
            return value
        moved = _moved(value, ops.get_default_graph())
    return value if moved is None else moved


def _moved(value: Any, graph: Any) -> Any:
    """A copy of what computes the value; None if an argument of a function is among it."""
    if value.graph is graph:
        return value
    needed = tf.compat.v1.graph_util.extract_sub_graph(value.graph.as_graph_def(), [value.op.name])
    captured: Dict[str, Any] = {inner.op.name: outer for outer, inner in value.graph.captures}
    known = {}
    for node in needed.node:
        if node.op == "Placeholder":
            source = _moved(captured[node.name], graph) if node.name in captured else None
            if source is None:
                return None
            known[f"{node.name}:0"] = source
    (copy,) = tf.import_graph_def(needed, input_map=known, return_elements=[value.name], name=f"{value.op.name}/first")
    return copy

"""Metrics that are updated on the device, iteration by iteration."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Set, Tuple

import tensorflow as tf
from tensorflow.python.framework import ops

from ipu_conformance.emulator.tensorflow.run import replicas


class DeviceMetrics:
    """The ``eval_metric_ops`` of a loop, of every replica."""

    def __init__(self) -> None:
        self._of_replica: Dict[int, Dict[str, Any]] = {}

    def updates(self, metric_ops: Dict[str, Tuple[Any, Any]]) -> List[Any]:
        """The operations that an iteration of this replica runs."""
        self._of_replica[replicas.current()] = {name: value for name, (value, _) in metric_ops.items()}
        return [update.op if isinstance(update, tf.Tensor) else update for _, update in metric_ops.values()]

    def values(self) -> List[Any]:
        """What the metrics of this replica are after the loop; call it in the graph around the loop.

        A value reads what the updates write, and the loop reads it before it writes: it is computed again.
        """
        own = list(self._of_replica[replicas.current()].values())
        return _computed_again(own) if own else []

    def kept(self, values: Sequence[Any]) -> Dict[str, Tuple[Any, Any]]:
        """The metrics for the host: each is what it was after the last loop."""
        kept = {}
        for name, value in zip(self._of_replica[0], values):
            store = tf.compat.v1.get_variable(
                f"device_metrics/{name}",
                initializer=tf.zeros(value.shape, value.dtype),
                trainable=False,
                use_resource=True,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            )
            kept[name] = (store.read_value(), store.assign(value))
        return kept


def _computed_again(values: Sequence[Any]) -> List[Any]:
    """Copies of what values of a finished graph are computed from, in the current graph, with the same variables."""
    outer, inner = ops.get_default_graph(), values[0].graph
    needed = _needed(values)
    if any(op.type == "IteratorGetNext" for op in needed):
        raise ValueError(
            "The value of a metric in eval_metric_ops depends on features or labels: its update must write to "
            "variables, and its value read them."
        )
    names = {op.name for op in needed}
    part = inner.as_graph_def()
    kept = [_alone(node) for node in part.node if node.name in names]
    del part.node[:]
    part.node.extend(kept)
    variables = {own.name: outer.capture(around) for around, own in inner.captures if own.op.name in names}
    wanted = [value.name for value in values]
    return list(tf.graph_util.import_graph_def(part, variables, wanted, name="metrics_after_loop"))


def _needed(values: Sequence[Any]) -> Set[Any]:
    """The operations that values are computed from; what only has to come before does not count."""
    found: Set[Any] = set()
    pending = [value.op for value in values]
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending += [tensor.op for tensor in op.inputs]
    return found


def _alone(node: Any) -> Any:
    """A node that neither waits for others nor stands next to them."""
    alone = type(node)()
    alone.CopyFrom(node)
    del alone.input[:]
    alone.input.extend(name for name in node.input if not name.startswith("^"))
    alone.attr.pop("_class", None)
    return alone

"""Tables on the host: replicas look rows up in one table, and their gradients update it.

The rules are those of graphcore/tensorflow ``tensorflow/python/ipu/ops/embedding_ops.py``. It does not say what
replicas do to one table, so the emulator alone is asked for that. All numbers are exact.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device

RATE = 0.125
TABLE = np.arange(12, dtype=np.float32).reshape(6, 2)
FED = np.array([[1, 4], [1, 0], [9, 4], [1, 1], [0, 1], [3, -2], [5, 0], [1, 4]], np.int32)
"""Indices, some of which are beyond the table on either side."""
WEIGHTS = np.array([1.0, 2.0], np.float32)


def expected(replicas: int, rate: float, accumulated: int) -> Tuple[np.ndarray, np.ndarray]:
    """The rows of every step and replica, and the table after the steps, for a loss of rows times weights."""
    table, seen = TABLE.astype(np.float64), []
    change = np.zeros_like(table)
    steps = FED.clip(0, len(table) - 1).reshape(-1, replicas, 2)
    for number, step in enumerate(steps, 1):
        seen.append(table[step])
        for own in step:
            np.add.at(change, own, np.broadcast_to(WEIGHTS, (2, 2)))
        if number % accumulated == 0:
            table = table - rate * change
            change = np.zeros_like(table)
    return np.array(seen).reshape((-1, replicas, 2, 2) if replicas > 1 else (-1, 2, 2)), table


def trained(graph: Device, spec: Any, replicas: int = 1) -> Tuple[np.ndarray, np.ndarray]:
    """The rows that were looked up in a table that is trained in a session, and the table afterwards."""
    v1, ipu = graph.open(replicas).tf.compat.v1, graph.ipu
    queue, out, start = graph.infeed(FED), graph.outfeed(), v1.constant_initializer(TABLE)
    host = ipu.embedding_ops.create_host_embedding(
        "table", TABLE.shape, graph.tf.float32, optimizer_spec=spec, initializer=start
    )

    def body(indices: Any) -> Any:
        weight = v1.get_variable("weight", initializer=1.0, use_resource=True)
        rows = host.lookup(indices)
        optimizer = ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))
        # The loss has no gradient for the weight; whatever is trainable is trained.
        return out.enqueue(rows), optimizer.minimize(graph.tf.reduce_sum(rows * WEIGHTS) + 0.0 * weight)

    go = graph.compile(lambda: ipu.loops.repeat(len(FED) // replicas, body, [], queue))
    with host.register(graph.session) as registered:
        check.equal(actual=registered is host, expected=True, what="whether the context is the table's own")
        go()
    return graph.dequeue(out), graph.session.run(host.get_embedding_tensor())


SPECS: Dict[str, Tuple[Callable[[Any], Optional[Any]], float, int]] = {
    "not trained": (lambda ops: None, 0.0, 1),
    "no rate": (lambda ops: ops.HostEmbeddingOptimizerSpec(0), 0.0, 1),
    "SGD": (lambda ops: ops.HostEmbeddingOptimizerSpec(RATE), RATE, 1),
    "of one": (lambda ops: ops.HostEmbeddingSGDGAOptimizerSpec(RATE, 1), RATE, 1),
    "accumulated": (lambda ops: ops.HostEmbeddingSGDGAOptimizerSpec(RATE, 3), RATE, 3),
    "of four": (lambda ops: ops.HostEmbeddingSGDGAOptimizerSpec(RATE, 4), RATE, 4),
}
"""A specification, the rate of its updates, and after how many mini-batches one comes."""


@pytest.mark.parametrize("replicas", [1, *(pytest.param(count, marks=pytest.mark.emulator) for count in (2, 4))])
@pytest.mark.parametrize("name", SPECS)
def test_a_table_is_looked_up_and_updated(graph: Device, name: str, replicas: int) -> None:
    """Replicas see one table; it loses the rate times the gradients of them all, clipped indices count as the last."""
    make, rate, accumulated = SPECS[name]
    rows, table = trained(graph, make(graph.ipu.embedding_ops), replicas)

    looked_up, updated = expected(replicas, rate, accumulated)
    check.identical(actual=rows, expected=looked_up.astype(np.float32), what="the rows that were looked up")
    check.identical(actual=table, expected=updated.astype(np.float32), what="the table afterwards")


def test_a_table_is_looked_up_in_a_function(tf: Any, ipu: Any, strategy: Any) -> None:
    """In eager mode no session is needed; indices of any shape give rows of that shape."""
    with strategy.scope():
        table = tf.Variable(TABLE)
        host = ipu.embedding_ops.HostEmbedding("table", table, "ENCODING")
        look = tf.function(lambda indices: host.lookup(indices, clip_indices=False))
        with host.register():
            rows = strategy.run(look, [tf.constant([[[1], [4]], [[0], [5]], [[2], [1]]])])

    check.identical(actual=rows, expected=TABLE[[[[1], [4]], [[0], [5]], [[2], [1]]]], what="the rows")
    check.holds(host.get_embedding_tensor() is table, "get_embedding_tensor does not give the variable of the table.")

"""Training loops as users write them: their own functions inside a strategy, with feeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_conformance import check


def test_a_step_that_makes_its_variables_enqueues(tf: Any, ipu: Any, configure: Any) -> None:
    """A function whose first call makes variables is traced twice, and yet enqueues once an iteration."""
    configure(1)
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with strategy.scope():
        variables: Any = []
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function
        def step(x: Any) -> None:
            if not variables:
                variables.append(tf.Variable([1.0, 2.0]))
            variables[0].assign_add(x)
            outfeed.enqueue(variables[0].read_value())

        @tf.function
        def loop(count: Any, iterator: Any) -> None:
            for _ in tf.range(count):
                step(next(iterator))

        rows = np.arange(6, dtype=np.float32).reshape(3, 2)
        strategy.run(loop, args=(3, iter(tf.data.Dataset.from_tensor_slices(rows))))

    expected = np.cumsum(rows, axis=0) + np.asarray([1, 2], np.float32)
    check.identical(actual=outfeed.dequeue().numpy(), expected=expected, what="the variable, by iteration")

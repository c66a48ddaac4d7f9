"""Training loops as users write them: their own functions inside a strategy, with feeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_conformance import check

from ..device_programs import Device


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


def test_statistics_move_on_every_replica(tf: Any, eager: Device) -> None:
    """The running mean and variance of each replica move with its own batches, those of all but the first too."""
    replicas, steps = 4, 3
    middle = np.arange(1, steps * replicas + 1, dtype=np.float32)[:, None, None]
    spread = np.square(np.arange(steps * replicas, dtype=np.float32))[:, None, None] % 5 + 1
    with eager.open(replicas).strategy.scope():
        layer = tf.keras.layers.BatchNormalization(momentum=0.5)
        layer.build((2, 1))

    def body(x: Any) -> Any:
        layer(x, training=True)
        return [layer.moving_mean.read_value(), layer.moving_variance.read_value()]

    outfed = eager.outfed(steps, body, np.concatenate([middle - spread, middle + spread], axis=1))

    for what, start, values, actual in zip(("mean", "variance"), (0, 1), (middle, spread**2), outfed):
        held, expected = np.full(replicas, start, np.float32), []
        for now in values.reshape(steps, replicas):
            held = (held + now) / 2
            expected.append(held)
        check.identical(actual=actual[..., 0], expected=np.stack(expected), what=f"the running {what}, by replica")

"""Regularizers: L2 decay as an object is L2 decay as a number, L1 decay is refused, and Lamb spares what it is told."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

from ipu_conformance import check

from .. import exact
from ..device import compiled, started

RATE = 0.125


def trained(paddle: Any, decay: Any, batches: int = 3) -> np.ndarray:
    """The weight of a small net after one run of a few batches."""
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.scope_guard(static.Scope()), static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [2, 3], "float32")
        start = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
        weight = paddle.create_parameter(
            [3, 4], "float32", attr=paddle.ParamAttr("w", initializer=paddle.nn.initializer.Assign(start))
        )
        loss = paddle.mean(paddle.square(paddle.tanh(paddle.matmul(x, weight))))
        paddle.optimizer.Momentum(RATE, 0.5, weight_decay=decay(paddle)).minimize(loss)
        started(paddle)
        device = compiled(paddle, [loss], size=2, training=True, batches_per_step=batches)
        device.run(np.sin(np.arange(batches * 2 * 3, dtype=np.float32)).reshape(batches * 2, 3))
        device.sync()
        return device.value("w")


def test_l2_decay_is_decay_by_a_number(paddle: Any) -> None:
    """``weight_decay=L2Decay(c)`` and ``weight_decay=c`` leave the same bits, and none leaves others."""
    paddle.enable_static()
    number = trained(paddle, lambda paddle: 0.25)
    regularizer = trained(paddle, lambda paddle: paddle.regularizer.L2Decay(0.25))
    none = trained(paddle, lambda paddle: None)

    check.identical(actual=regularizer, expected=number, what="the weight")
    check.differs(actual=none, other=number, what="the weight without decay")


def test_decay_reaches_vectors(paddle: Any, static: Any) -> None:
    """Momentum's decay moves vectors like matrices: after three updates each weight is another than without decay."""

    def moved(decay: float) -> Dict[str, np.ndarray]:
        main, startup = static.Program(), static.Program()
        guards = static.scope_guard(static.Scope()), static.program_guard(main, startup)
        with guards[0], guards[1], paddle.utils.unique_name.guard():
            x = static.data("x", [2, 3], "float32")
            shapes = {"matrix": [3, 4], "vector": [4], "scale": [1]}
            ones = paddle.nn.initializer.Constant(0.5)
            weights = {
                name: paddle.create_parameter(shape, "float32", attr=paddle.ParamAttr(name, initializer=ones))
                for name, shape in shapes.items()
            }
            # A linear loss: no weight has a part in the gradient of another.
            loss = paddle.mean(paddle.matmul(x, weights["matrix"]) + weights["vector"] + weights["scale"])
            paddle.optimizer.Momentum(RATE, 0.5, weight_decay=decay or None).minimize(loss)
            started(paddle)
            device = compiled(paddle, [loss], size=2, training=True, batches_per_step=3)
            device.run(np.sin(np.arange(3 * 2 * 3, dtype=np.float32)).reshape(3 * 2, 3))
            device.sync()
            return {name: device.value(name) for name in shapes}

    decayed, free = moved(0.25), moved(0.0)

    for name, value in decayed.items():
        check.differs(actual=value, other=free[name], what=f"the {name} with decay")


def test_l1_decay_is_refused(paddle: Any) -> None:
    """L1 decay is not implemented, and compilation says so."""
    paddle.enable_static()

    with check.raises(Exception, match=r"(?i)unimplemented", what="L1 decay"):
        trained(paddle, lambda paddle: paddle.regularizer.L1Decay(0.25))


def test_l1_decay_of_the_third_weight_is_refused(paddle: Any, static: Any) -> None:
    """L1 decay is refused wherever it stands, behind weights with L2 decay too."""
    regularizers = (paddle.regularizer.L2Decay, paddle.regularizer.L2Decay, paddle.regularizer.L1Decay)
    value = static.data("x", [None, 2], "float32")
    for number, regularizer in enumerate(regularizers):
        attribute = paddle.ParamAttr(f"w{number}", regularizer=regularizer(0.25))
        value = value * static.create_parameter([2], "float32", attr=attribute)
    loss = paddle.sum(value)
    paddle.optimizer.SGD(RATE).minimize(loss)
    started(paddle)

    with check.raises(Exception, match=r"(?i)unimplemented", what="L1 decay of the third weight"):
        compiled(paddle, [loss], size=1, training=True)


def test_lamb_spares_the_weights_that_are_excluded(paddle: Any, static: Any) -> None:
    """A weight that is excluded from Lamb's decay moves as without decay, and its neighbour as with it."""

    def moved(decay: float, *spared: str) -> Dict[str, np.ndarray]:
        main, startup = static.Program(), static.Program()
        guards = static.scope_guard(static.Scope()), static.program_guard(main, startup)
        with guards[0], guards[1], paddle.utils.unique_name.guard():
            lamb = paddle.optimizer.Lamb(
                exact.RATE,
                lamb_weight_decay=decay,
                exclude_from_weight_decay_fn=lambda weight: weight.name in spared,
            )
            device = exact.Device(paddle, exact.chain(paddle, stages=3, optimizer=lamb), exact.strategy(paddle))
            device.run(exact.samples(1))
            return device.synced_weights()

    without, everywhere, partly = moved(0.0), moved(0.5), moved(0.5, "w1")

    for name, expected in (("w0", everywhere), ("w1", without), ("w2", everywhere)):
        check.differs(actual=without[name], other=everywhere[name], what=f"{name} without decay")
        check.identical(actual=partly[name], expected=expected[name], what=name)

"""Regularizers: L2 decay as an object is L2 decay as a number, L1 decay is refused, and Lamb spares what it is told."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

from ipu_conformance import check

from .. import exact
from ..device import compiled, fresh, started

RATE = 0.125


def trained(paddle: Any, decay: Any) -> Dict[str, np.ndarray]:
    """The weights of a small net after one run of three batches."""
    with fresh(paddle):
        half = paddle.nn.initializer.Constant(0.5)
        weights = {
            name: paddle.create_parameter(shape, "float32", attr=paddle.ParamAttr(name, initializer=half))
            for name, shape in {"matrix": [3, 4], "vector": [4], "scale": [1]}.items()
        }
        # A linear loss: no weight has a part in the gradient of another.
        product = paddle.matmul(paddle.static.data("x", [2, 3], "float32"), weights["matrix"])
        loss = paddle.mean(product + weights["vector"] + weights["scale"])
        paddle.optimizer.Momentum(RATE, 0.5, weight_decay=decay).minimize(loss)
        started(paddle)
        device = compiled(paddle, [loss], size=2, training=True, batches_per_step=3)
        device.run(np.sin(np.arange(18, dtype=np.float32)).reshape(6, 3))
        device.sync()
        return {name: device.value(name) for name in weights}


def test_decay_reaches_vectors(paddle: Any, static: Any) -> None:
    """Decay by a number or by ``L2Decay`` leaves the same bits, and moves vectors like matrices."""
    number, regularizer, free = (trained(paddle, decay) for decay in (0.25, paddle.regularizer.L2Decay(0.25), None))

    for name, value in number.items():
        check.identical(actual=regularizer[name], expected=value, what=f"the {name} with L2Decay")
        check.differs(actual=value, other=free[name], what=f"the {name} with decay")


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
        with fresh(paddle):
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

"""The print op: it shows a tensor, and hands it on unchanged."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device import compiled, started

X = np.array([[0.5, -1.25, 2.0], [4.0, -0.75, 0.125]], dtype=np.float32)
START = np.full((3, 1), 0.5, np.float32)
MESSAGE = "seen on the device"


def run_printing(
    paddle: Any, *, training: bool = False, batches: int = 1, **options: Any
) -> Tuple[np.ndarray, np.ndarray]:
    """The mean square of a printed tensor, and the weight after the run."""
    static = paddle.static
    x = static.data("x", [2, 3], "float32")
    attribute = paddle.ParamAttr("w", initializer=paddle.nn.initializer.Constant(0.5))
    weight = paddle.create_parameter([3, 1], "float32", attr=attribute)
    printed = static.Print(paddle.matmul(x, weight), message=MESSAGE, **options)
    loss = paddle.mean(paddle.square(printed))
    if training:
        paddle.optimizer.SGD(0.125).minimize(loss)
    started(paddle)
    device = compiled(paddle, [loss], size=2, training=training, batches_per_step=batches)
    (fetched,) = device.run(np.concatenate([X * (number + 1) for number in range(batches)]))
    device.sync()
    return fetched, device.value("w")


PRINTS: Dict[str, Tuple[Dict[str, Any], int]] = {
    "a tensor": ({}, 1),
    "every micro-batch": ({"batches": 3, "print_phase": "forward"}, 3),
    "the gradient too": ({"training": True, "print_phase": "both"}, 2),
}


@pytest.mark.parametrize("what", PRINTS)
def test_tensors_are_printed(paddle: Any, static: Any, capfd: pytest.CaptureFixture[str], what: str) -> None:
    """The message and the values are printed when a tensor is computed; the phase "both" prints its gradient too.

    What follows a print computes what it would without one, and gradients pass it.
    """
    options, count = PRINTS[what]
    losses, weight = run_printing(paddle, **options)
    captured = capfd.readouterr()
    text = captured.out + captured.err
    values = X @ START

    check.equal(actual=text.count(MESSAGE), expected=count, what="the number of messages that are printed")
    for value in values.ravel().tolist():
        check.contains(actual=text, expected=f"{value:g}", what="what is printed")
    # All products and sums of these values are exact in float32; a mean over two rows of 2 p x is the sum of p x.
    expected = [np.mean(np.square(values * (number + 1))) for number in range(options.get("batches", 1))]
    check.identical(actual=np.ravel(losses), expected=np.array(expected, np.float32), what="the losses")
    moved = np.float32(0.125) * (X.T @ values) if "training" in options else np.float32(0)
    check.identical(actual=weight, expected=START - moved, what="the weight")

"""The print op: it shows a tensor, and hands it on unchanged."""

from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check

X = np.array([[0.5, -1.25, 2.0], [4.0, -0.75, 0.125]], dtype=np.float32)


def ran(paddle: Any, static: Any, training: bool = False, batches: int = 1, **options: Any) -> List[np.ndarray]:
    """The sum of squares of a printed tensor, and the weight after training."""
    x = static.data("x", [2, 3], "float32")
    attribute = paddle.ParamAttr("w", initializer=paddle.nn.initializer.Constant(0.5))
    weight = paddle.create_parameter([3, 1], "float32", attr=attribute)
    shown = static.Print(paddle.matmul(x, weight), message="seen on the device", **options)
    loss = paddle.mean(paddle.square(shown))
    if training:
        paddle.optimizer.SGD(0.125).minimize(loss)
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())
    strategy = static.IpuStrategy()
    strategy.set_graph_config(num_ipus=1, is_training=training, micro_batch_size=2)
    strategy.set_pipelining_config(batches_per_step=batches)
    compiled = static.IpuCompiledProgram(static.default_main_program(), ipu_strategy=strategy)
    program = compiled.compile([x.name], [loss.name])
    samples = np.concatenate([X * (number + 1) for number in range(batches)])
    fetched = static.Executor(paddle.IPUPlace()).run(program, feed={"x": samples}, fetch_list=[loss])
    compiled._backend.weights_to_host()
    return [np.array(fetched[0]), np.array(static.global_scope().find_var("w").get_tensor())]


def test_a_tensor_is_printed(paddle: Any, static: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The message and the values of the tensor are printed when it is computed."""
    ran(paddle, static)
    printed = capfd.readouterr()
    shown = printed.out + printed.err

    assert "seen on the device" in shown
    for value in (X @ np.full((3, 1), 0.5, np.float32)).ravel().tolist():
        assert f"{value:g}" in shown


def test_every_micro_batch_is_printed(paddle: Any, static: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """A step of three batches prints three tensors."""
    ran(paddle, static, batches=3, print_phase="forward")
    printed = capfd.readouterr()

    assert (printed.out + printed.err).count("seen on the device") == 3


def test_a_printed_tensor_goes_on_unchanged(paddle: Any, static: Any) -> None:
    """What follows a print computes what it would without one."""
    fetched, _ = ran(paddle, static)
    expected = np.mean(np.square(X @ np.full((3, 1), 0.5, np.float32)), dtype=np.float32)

    # All products and sums of these values are exact in float32.
    check.identical(actual=np.ravel(fetched), expected=np.ravel(expected), what="the loss")


def test_gradients_pass_a_print(paddle: Any, static: Any) -> None:
    """Training through a print updates the weight by the gradient that comes through it."""
    _, weight = ran(paddle, static, training=True)
    product = X @ np.full((3, 1), 0.5, np.float32)
    expected = np.full((3, 1), 0.5, np.float32) - np.float32(0.125) * (X.T @ product)

    # The mean over two rows of 2 p x is the sum of p x; all of it is exact in float32.
    check.identical(actual=weight, expected=expected, what="the weight")


def test_the_gradient_can_be_printed(paddle: Any, static: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The phase "both" prints the gradient too."""
    ran(paddle, static, training=True, print_phase="both")
    printed = capfd.readouterr()

    assert (printed.out + printed.err).count("seen on the device") == 2

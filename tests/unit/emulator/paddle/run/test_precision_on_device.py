"""float16 on the emulated device, seen from inside: what every replica holds."""

from __future__ import annotations

import warnings
from typing import Any, Dict, List

import numpy as np
import paddle
import pytest

from ipu_conformance.emulator.paddle.run.device import DEVICE

from ..programs import static

pytestmark = pytest.mark.usefixtures("ipu_build")


def trained(runs: int, **options: Any) -> List[Dict[str, np.ndarray]]:
    """A float16 weight after some runs on two replicas with unlike samples, as each replica holds it."""
    x = paddle.static.data("x", [1, 64], "float32")
    weight = paddle.create_parameter([64], "float32", name="w", default_initializer=paddle.nn.initializer.Constant(1.0))
    loss = paddle.sum(paddle.square(x * weight))
    lists = paddle.static.amp.CustomOpLists()
    lists.unsupported_list = set()
    main = paddle.static.default_main_program()
    names = paddle.static.amp.cast_model_to_fp16(main, lists, use_fp16_guard=False)
    with warnings.catch_warnings():
        # Paddle's advice against optimizers of float16 weights.
        warnings.filterwarnings("ignore", message="Accumulating with FP16")
        paddle.optimizer.SGD(2.0**-12).minimize(loss)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    paddle.static.amp.cast_parameters_to_fp16(paddle.CPUPlace(), main, to_fp16_var_names=names)
    strategy = paddle.static.IpuStrategy()
    replicated = {"enable_replicated_graphs": True, "replicated_graph_count": 2, "num_ipus": 2}
    strategy.set_options({**replicated, **options})
    program = paddle.static.IpuCompiledProgram(main, ipu_strategy=strategy).compile(["x"], [loss.name])
    batch = np.stack([np.full(64, 0.5, np.float32), np.full(64, 0.75, np.float32)])
    for _ in range(runs):
        executor.run(program, feed={"x": batch}, fetch_list=[loss])
    machine = DEVICE.executable.machine
    return [machine.read(["w"], replica) for replica in range(2)]


@pytest.mark.parametrize("stochastic", [True, False])
def test_replicas_hold_the_same_float16_weights(stochastic: bool) -> None:
    """Replicas round an update alike, at random too, and small steps are lost only where rounding is to nearest.

    A step is about 2^-12 against a spacing of 2^-11 below one; at random, some of 64 weights move in three runs with
    a probability of all but 2^-64.
    """
    with static():
        first, second = trained(3, enable_stochastic_rounding=stochastic, random_seed=3)

    assert np.array_equal(first["w"], second["w"])
    assert np.array_equal(first["w"], first["w"].astype(np.float16))
    assert bool((first["w"] != 1).any()) is stochastic


def test_replicas_that_call_python_run_in_turn() -> None:
    """Rounding is a Python function, which threads must not call at once."""
    with static():
        trained(1)
        engine = DEVICE.executable.engine

    assert engine._pool is None

"""Custom ops that are registered from Python, compiled and run on the emulated device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import paddle
import pytest

from ipu_conformance.emulator.paddle.api import custom_ops
from ipu_conformance.emulator.paddle.compile.custom_ops import CustomOp, CustomOpError

from ..programs import static

X = np.array([[1.0, -2.0, 3.0], [-0.5, 0.25, -8.0]], np.float32)
RATE = 0.5
ALPHA = 0.25


@pytest.fixture(autouse=True)
def op(ipu_build: None, monkeypatch: pytest.MonkeyPatch) -> CustomOp:
    """A leaky unit, the only custom op that is registered."""
    monkeypatch.setattr("ipu_conformance.emulator.paddle.compile.custom_ops.REGISTERED", {})
    return custom_ops.register(
        "custom_leaky",
        lambda x, *, alpha: np.where(x > 0, x, alpha * x),
        lambda x, y, grad, *, alpha: np.where(x > 0, grad, alpha * grad),
    )


def model(op: CustomOp, size: int, *, train: bool, stages: bool = False) -> Dict[str, Any]:
    """A weight, the custom op in a stage of its own if asked for, and a square."""
    guard = paddle.static.ipu_shard_guard
    x = paddle.static.data("x", [size, 3], "float32")
    with guard(index=0 if stages else -1, stage=0 if stages else -1):
        weight = paddle.create_parameter(
            [3], "float32", name="w", default_initializer=paddle.nn.initializer.Constant(1.0)
        )
        scaled = x * weight
    with guard(index=1 if stages else -1, stage=1 if stages else -1):
        out = op(scaled, alpha=ALPHA)
        loss = paddle.mean(paddle.square(out))
    if train:
        paddle.optimizer.SGD(RATE).minimize(loss)
    return {"x": x, "out": out, "loss": loss}


def compiled(made: Dict[str, Any], *, mapped: bool = True, **options: Any) -> Any:
    """The model on the device, with the custom op mapped."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    strategy = paddle.static.IpuStrategy()
    strategy.set_options(options)
    if mapped:
        strategy.add_custom_op("custom_leaky", "LeakyRelu")
    main = paddle.static.default_main_program()
    return paddle.static.IpuCompiledProgram(main, ipu_strategy=strategy).compile(
        ["x"], [made["out"].name, made["loss"].name]
    )


def run(program: Any, made: Dict[str, Any], x: np.ndarray) -> List[np.ndarray]:
    """One run; the output and the loss."""
    results: List[np.ndarray] = paddle.static.Executor(paddle.CPUPlace()).run(
        program, feed={"x": x}, fetch_list=[made["out"], made["loss"]]
    )
    return results


def weight(scope: Any) -> List[float]:
    """The weight at home."""
    paddle.base.core.IpuBackend.get_instance().weights_to_host()
    held: List[float] = np.array(scope.find_var("w").get_tensor()).tolist()
    return held


def stepped(x: np.ndarray, parts: int = 1) -> np.ndarray:
    """The weight after a step on the mean gradient of the parts of a batch, in float64."""
    slope = np.where(x > 0, 1.0, ALPHA)
    gradients = [part.sum(axis=0) * 2 / part.size for part in np.split(slope * slope * x.astype(np.float64) * x, parts)]
    return 1 - RATE * np.mean(gradients, axis=0)


def test_a_step_uses_forward_and_gradient(op: CustomOp) -> None:
    """The device trains through the op."""
    with static() as (_, _, scope):
        made = model(op, 2, train=True)
        program = compiled(made, micro_batch_size=2)
        out, _ = run(program, made, X)

        assert out.tolist() == np.where(X > 0, X, ALPHA * X).tolist()
        # Six squares: the gradient is a third of a sum, which float32 rounds once, and the step once more.
        bound = np.finfo(np.float32).eps * np.maximum(np.abs(stepped(X)), 1)
        assert (np.abs(np.array(weight(scope)) - stepped(X)) <= 2 * bound).all()


@pytest.mark.parametrize("pipelined", [False, True])
def test_an_op_has_its_stage(op: CustomOp, pipelined: bool) -> None:
    """In a stage of its own, with accumulated gradients, the step is that of the whole batch."""
    x = np.concatenate([X * 0.5, X, X * 0.25, X * 2])
    with static() as (_, _, scope):
        made = model(op, 2, train=True, stages=True)
        program = compiled(
            made, micro_batch_size=2, num_ipus=2, enable_manual_shard=True, enable_pipelining=pipelined,
            enable_gradient_accumulation=True, accumulation_factor=4,
        )  # fmt: skip
        out, _ = run(program, made, x)
        wanted = stepped(x, 4)

        assert out.reshape(-1, 3).tolist() == np.where(x > 0, x, ALPHA * x).tolist()
        # As above, with four more additions.
        bound = np.finfo(np.float32).eps * np.maximum(np.abs(wanted), 1)
        assert (np.abs(np.array(weight(scope)) - wanted) <= 6 * bound).all()


def test_float16_is_rounded_around_the_op(op: CustomOp) -> None:
    """In a float16 program the op's result is rounded like any other's."""
    x = np.full((1, 3), -(1 + 2.0**-10), np.float32)
    with static() as (program, _, _):
        variable = paddle.static.data("x", [1, 3], "float32")
        out = op(paddle.cast(variable, "float16"), alpha=1 + 2.0**-9)
        strategy = paddle.static.IpuStrategy()
        strategy.set_graph_config(is_training=False)
        strategy.add_custom_op("custom_leaky", "LeakyRelu")
        made = paddle.static.IpuCompiledProgram(program, ipu_strategy=strategy).compile(["x"], [out.name])
        (got,) = paddle.static.Executor(paddle.CPUPlace()).run(made, feed={"x": x}, fetch_list=[out])

    assert got.dtype == np.float16
    assert got.tolist() == (x.astype(np.float64) * (1 + 2.0**-9)).astype(np.float16).tolist()


def test_an_op_that_is_not_mapped_is_refused(op: CustomOp) -> None:
    """Without add_custom_op the device does not know the op, and the sentence has its name."""
    with static():
        made = model(op, 2, train=False)

        with pytest.raises(NotImplementedError, match=r"Found unimplemented op_handler.*custom_leaky"):
            compiled(made, mapped=False, is_training=False, micro_batch_size=2)


def saved(op: CustomOp, folder: Path) -> str:
    """A saved inference model that has the op."""
    made = model(op, 2, train=False)
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    prefix = str(folder / "model")
    paddle.static.save_inference_model(prefix, [made["x"]], [made["out"]], executor)
    return prefix


def configured(prefix: str) -> Any:
    """A configuration of a predictor that maps the op."""
    config = paddle.inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
    config.enable_ipu(1, 2)
    config.set_ipu_custom_info([["custom_leaky", "LeakyRelu", "custom.ops", "1"]], {})
    return config


def test_a_predictor_calls_the_registered_op(op: CustomOp, tmp_path: Path) -> None:
    """A saved program keeps the op's name and attributes; the predictor calls what is registered under the name."""
    with static():
        prefix = saved(op, tmp_path)
        custom_ops.register("custom_leaky", lambda x, *, alpha: x * alpha + 1)
        predictor = paddle.inference.create_predictor(configured(prefix))
        predictor.get_input_handle("x").copy_from_cpu(X)
        predictor.run()
        got = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()

    assert got.tolist() == (X * ALPHA + 1).tolist()


def test_a_predictor_without_the_op_says_so(op: CustomOp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody registered the op, one sentence says which and how."""
    with static():
        prefix = saved(op, tmp_path)
        monkeypatch.setattr("ipu_conformance.emulator.paddle.compile.custom_ops.REGISTERED", {})

        with pytest.raises(CustomOpError, match=r"nobody registered the custom op 'custom_leaky'.*register before"):
            paddle.inference.create_predictor(configured(prefix))

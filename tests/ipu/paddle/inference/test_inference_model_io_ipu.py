"""Inference models: saved after training on the device, loaded, and run on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Tuple

import numpy as np
import pytest

from ..ops import dyadic

SIZE = 4


def trained(paddle: Any, *, synced: bool = True, half: Any = None) -> Tuple[Any, np.ndarray]:
    """The model after one step on the device, and the weight that the host should hold."""
    built = dyadic.build(paddle, optimizer=paddle.optimizer.SGD(dyadic.RATE), half=half)
    dyadic.start(paddle, built)
    device = dyadic.compiled(paddle, built.main, built.feeds, [built.loss], is_training=True)
    x, y = dyadic.samples(SIZE), dyadic.targets(SIZE)
    device.run(x=x, y=y)
    if synced:
        device.weights_to_host()
    return built, dyadic.step(dyadic.START, x, y).weight if synced else dyadic.START


def save(paddle: Any, built: Any, path: Path) -> str:
    """Save the part of the program that makes the output from x."""
    prefix = str(path / "model")
    x = built.main.global_block().var("x")
    paddle.static.save_inference_model(prefix, [x], [built.out], paddle.static.Executor(), program=built.main)
    return prefix


def loaded(paddle: Any, prefix: str, **options: Any) -> Any:
    """The saved model on the device, in a scope of its own as another process would have it."""
    program, feeds, fetches = paddle.static.load_inference_model(prefix, paddle.static.Executor())
    return dyadic.compiled(paddle, program, feeds, fetches, is_training=False, **options)


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
def test_a_saved_model_has_the_weights_of_the_host(paddle: Any, static: Any, tmp_path: Path, synced: bool) -> None:
    """Saved without syncing it computes with the weights from before training, else with the trained ones."""
    built, weight = trained(paddle, synced=synced)
    prefix = save(paddle, built, tmp_path)
    x = dyadic.samples(SIZE, 2 * SIZE)
    with static.scope_guard(static.Scope()):
        (got,) = loaded(paddle, prefix).run(x=x)

    assert got.tolist() == dyadic.float32(x.astype(np.float64) * weight).tolist()


@pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
def test_device_and_host_agree_on_a_saved_model(paddle: Any, static: Any, tmp_path: Path, on_device: bool) -> None:
    """A model saved after training on the device runs on the host too, with the same outputs."""
    built, weight = trained(paddle)
    prefix = save(paddle, built, tmp_path)
    x = dyadic.samples(SIZE, SIZE)
    with static.scope_guard(static.Scope()):
        if on_device:
            (got,) = loaded(paddle, prefix).run(x=x)
        else:
            executor = static.Executor(paddle.CPUPlace())
            program, feeds, fetches = static.load_inference_model(prefix, executor)
            (got,) = executor.run(program, feed={feeds[0]: x}, fetch_list=fetches)

    assert got.tolist() == dyadic.float32(x.astype(np.float64) * weight).tolist()


@pytest.mark.parametrize("batches", [1, 3, 5])
def test_a_loaded_model_takes_several_batches_a_step(paddle: Any, static: Any, tmp_path: Path, batches: int) -> None:
    """Batches per step are a matter of the strategy, not of the file."""
    built, weight = trained(paddle)
    prefix = save(paddle, built, tmp_path)
    x = dyadic.samples(SIZE * batches)
    with static.scope_guard(static.Scope()):
        (got,) = loaded(paddle, prefix, batches_per_step=batches).run(x=x)
    wanted = dyadic.float32(x.astype(np.float64) * weight)

    assert got.shape == ((batches, SIZE, 2) if batches > 1 else (SIZE, 2))
    assert got.reshape(-1, 2).tolist() == wanted.tolist()


@pytest.mark.parametrize("size", [1, 2, 6])
def test_a_model_saved_without_a_batch_size_takes_any(paddle: Any, static: Any, tmp_path: Path, size: int) -> None:
    """A leading -1 of the saved model becomes the micro-batch size of the strategy."""
    x = static.data("x", [-1, 2], "float32")
    weight = paddle.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.5))
    executor = static.Executor(paddle.CPUPlace())
    out = paddle.nn.functional.relu(x * weight)
    executor.run(static.default_startup_program())
    prefix = str(tmp_path / "model")
    static.save_inference_model(prefix, [x], [out], executor)
    fed = dyadic.samples(size)
    with static.scope_guard(static.Scope()):
        (got,) = loaded(paddle, prefix, size=size).run(x=fed)

    assert got.tolist() == np.maximum(fed * 1.5, 0).tolist()


@pytest.mark.parametrize("half", ["before", "after"])
def test_a_float16_model_stays_float16(paddle: Any, static: Any, tmp_path: Path, half: str) -> None:
    """A program in float16 is saved and loaded as such: outputs are float16."""
    built, weight = trained(paddle, half=half)
    prefix = save(paddle, built, tmp_path)
    x = dyadic.samples(SIZE) * np.float32(1 + 2.0**-12)
    with static.scope_guard(static.Scope()):
        (got,) = loaded(paddle, prefix).run(x=x)

    # One step of the exact model is exact in float16 too.
    assert got.dtype == np.float16
    assert got.tolist() == (x.astype(np.float16).astype(np.float64) * weight).astype(np.float16).tolist()


def test_a_saved_model_holds_no_training(paddle: Any, static: Any, tmp_path: Path) -> None:
    """Backward and optimizer ops, and what only they use, are not saved."""
    built, _ = trained(paddle)
    prefix = save(paddle, built, tmp_path)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(prefix, static.Executor())
        kinds = [op.type for op in program.global_block().ops if op.type not in ("feed", "fetch")]

        assert feeds == ["x"]
        assert len(fetches) == 1
        assert kinds[0] == "elementwise_mul"
        assert not [kind for kind in kinds if kind.endswith("_grad") or kind == "sgd"]


def test_a_saved_model_keeps_its_pipeline(paddle: Any, static: Any, tmp_path: Path) -> None:
    """The scales by one that saving adds have no stage, and none is asked of them."""
    constant = paddle.nn.initializer.Constant
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [SIZE, 3], "float32")
        with static.ipu_shard_guard(index=0, stage=0):
            tripled = x * static.create_parameter([3], "float32", default_initializer=constant(3.0))
        with static.ipu_shard_guard(index=1, stage=1):
            out = tripled - 0.5
    static.Executor().run(startup)
    prefix = str(tmp_path / "model")
    static.save_inference_model(prefix, [x], [out], static.Executor(), program=main)
    program, feeds, fetches = static.load_inference_model(prefix, static.Executor())
    assert [op.type for op in program.global_block().ops if not op.has_attr("ipu_stage")].count("scale") == 1
    strategy = static.IpuStrategy()
    strategy.set_graph_config(num_ipus=2, is_training=False, micro_batch_size=SIZE, enable_manual_shard=True)
    strategy.set_pipelining_config(enable_pipelining=True, batches_per_step=3)
    compiled = static.IpuCompiledProgram(program, ipu_strategy=strategy).compile(feeds, [out.name for out in fetches])
    given = np.arange(3 * SIZE * 3, dtype=np.float32).reshape(3 * SIZE, 3)

    (got,) = static.Executor(paddle.IPUPlace()).run(compiled, feed={"x": given}, fetch_list=fetches)

    assert got.shape == (3, SIZE, 3)
    assert got.reshape(given.shape).tolist() == (given * 3 - np.float32(0.5)).tolist()

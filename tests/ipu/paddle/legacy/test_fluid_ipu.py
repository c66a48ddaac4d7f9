"""``paddle.fluid``: programs of Paddle's first age on the device; builds of after 2.4 need not have it."""

from __future__ import annotations

import importlib
import operator
import re
from pathlib import Path
from typing import Any, Callable, Mapping, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device import compiled, started
from ..regression import RATE, START, float32, samples, step, targets

pytestmark = pytest.mark.emulator

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
Y = np.array([[2, 4, -8], [0.5, 1, 2]], np.float32)
IMAGE = np.arange(-8, 24, dtype=np.float32).reshape(2, 1, 4, 4)
WINDOWS = IMAGE.reshape(2, 1, 2, 2, 2, 2).swapaxes(3, 4).reshape(2, 1, 2, 2, 4)
"""The windows of 2 x 2, which do not overlap."""


@pytest.fixture
def fluid(static: Any) -> Any:
    """The old package, in static mode."""
    return importlib.import_module("paddle.fluid")


def _scaled(fluid: Any, x: Any) -> Any:
    """The product of a feed and the weight of the exact regression."""
    start = fluid.initializer.NumpyArrayInitializer(START.astype(np.float32))
    weight = fluid.layers.create_parameter([2], "float32", name="w", default_initializer=start)
    return fluid.layers.elementwise_mul(x, weight)


Layer = Callable[[Any, Any, Any], Any]
LAYERS: Mapping[str, Tuple[Layer, np.ndarray]] = {
    "elementwise_add": (lambda layers, x, y: layers.elementwise_add(x, y, act="relu"), np.maximum(X + Y, 0)),
    "elementwise_sub": (lambda layers, x, y: layers.elementwise_sub(x, y, -1), X - Y),
    "elementwise_div": (lambda layers, x, y: layers.elementwise_div(x=x, y=y), X / Y),
    "reshape": (lambda layers, x, y: layers.reshape(x, shape=[3, 2], inplace=True), X.reshape(3, 2)),
    "concat": (lambda layers, x, y: layers.concat([x, y], axis=1), np.concatenate([X, Y], 1)),
    "split": (lambda layers, x, y: layers.split(x, 3, dim=1)[2], X[:, 2:]),
    "transpose": (lambda layers, x, y: layers.transpose(x, perm=[1, 0]), X.T),
    "squeeze": (lambda layers, x, y: layers.squeeze(layers.unsqueeze(x, axes=[1]), axes=[1]), X),
    "expand": (lambda layers, x, y: layers.expand(x, expand_times=[2, 3]), np.tile(X, (2, 3))),
    "expand-by-tensor": (
        lambda layers, x, y: layers.expand(x, expand_times=layers.fill_constant([2], "int32", 3)),
        np.tile(X, (3, 3)),
    ),
    "scale": (lambda layers, x, y: layers.scale(x, scale=2.0, bias=1.0, bias_after_scale=False), (X + 1) * 2),
    "mul": (lambda layers, x, y: layers.mul(x, layers.transpose(y, [1, 0])), X @ Y.T),
    "matmul": (lambda layers, x, y: layers.matmul(x, y, transpose_y=True, alpha=4.0), X @ Y.T * 4),
    "reduce_sum": (lambda layers, x, y: layers.reduce_sum(x, dim=[0], keep_dim=True), X.sum(0, keepdims=True)),
    "reduce_max": (lambda layers, x, y: layers.reduce_max(input=x, dim=1), X.max(1)),
    "mean": (lambda layers, x, y: layers.reduce_sum(layers.mean(y), dim=0, keep_dim=True), Y.mean(keepdims=True)[0]),
    "square_error_cost": (lambda layers, x, y: layers.square_error_cost(input=x, label=y), (X - Y) ** 2),
    "relu6": (lambda layers, x, y: layers.relu6(x * 2.0), np.clip(X * 2, 0, 6)),
    "leaky_relu": (lambda layers, x, y: layers.leaky_relu(x, alpha=0.5), np.where(X > 0, X, X / 2)),
    "cast": (lambda layers, x, y: layers.cast(x, "int32"), X.astype(np.int32)),
    "fill_constant": (lambda layers, x, y: x + layers.fill_constant([2, 3], "float32", 3.0), X + 3),
    "sums": (lambda layers, x, y: layers.sums([x, y, x]), X + Y + X),
    "reverse": (lambda layers, x, y: layers.reverse(x, axis=[1]), X[:, ::-1]),
    "pad": (
        lambda layers, x, y: layers.pad(x, [1, 0, 0, 2], pad_value=4.0),
        np.pad(X, ((1, 0), (0, 2)), constant_values=4),
    ),
    "brelu": (lambda layers, x, y: layers.brelu(x, t_min=-1.5, t_max=3.5), np.clip(X, -1.5, 3.5)),
    "cumsum": (
        lambda layers, x, y: layers.cumsum(x, axis=1, exclusive=True, reverse=True),
        np.stack([X[:, 1] + X[:, 2], X[:, 2], np.zeros(2, np.float32)], 1),
    ),
    "less_than": (lambda layers, x, y: layers.cast(layers.less_than(x, y), "int32"), (X < Y).astype(np.int32)),
    "ones_like": (lambda layers, x, y: x + layers.ones_like(y), X + 1),
    "huber_loss": (
        lambda layers, x, y: layers.huber_loss(input=x, label=y, delta=4.0),
        np.where(abs(X - Y) < 4, (X - Y) ** 2 / 2, 4 * abs(X - Y) - 8),
    ),
    "argsort": (lambda layers, x, y: layers.argsort(x, axis=1)[0], np.sort(X, 1)),
    "label_smooth": (lambda layers, x, y: layers.label_smooth(label=x, epsilon=0.5) * 6.0, X * 3 + 1),
    "resize_nearest": (
        lambda layers, x, y: layers.resize_nearest(layers.unsqueeze(x, [0, 1]), scale=2.0, align_corners=False),
        X.repeat(2, 0).repeat(2, 1)[np.newaxis, np.newaxis],
    ),
    "pad2d": (
        lambda layers, x, y: layers.pad2d(layers.unsqueeze(x, [0, 1]), paddings=[1, 0, 0, 2], mode="reflect"),
        np.pad(X, ((1, 0), (0, 2)), mode="reflect")[np.newaxis, np.newaxis],
    ),
    "flatten": (lambda layers, x, y: layers.flatten(layers.unsqueeze(x, [0]), axis=2), X),
}


@pytest.mark.parametrize("name", LAYERS)
def test_an_old_layer_computes_what_it_says(paddle: Any, fluid: Any, name: str) -> None:
    """Layers take the parameters that they had, and compute what they computed."""
    ask, expected = LAYERS[name]
    variables = [fluid.data(feed, shape=[2, 3], dtype="float32") for feed in ("x", "y")]
    (fetched,) = compiled(paddle, [ask(fluid.layers, *variables)], feeds=("x", "y"), size=2).run(X, Y)

    check.identical(actual=fetched, expected=expected, what=f"fluid.layers.{name}")


Write = Callable[[Any, Any, Any, Any], Any]
WRITTEN: Mapping[str, Tuple[str, Write, np.ndarray]] = {
    "zeros_like": ("float32", lambda layers, x, y, into: layers.zeros_like(x, out=into), np.zeros_like(X)),
    "ones_like": ("float32", lambda layers, x, y, into: layers.ones_like(x, out=into), np.ones_like(X)),
    "sums": ("float32", lambda layers, x, y, into: layers.sums([x, y, x], out=into), X + Y + X),
    "fill_constant": (
        "float32",
        lambda layers, x, y, into: layers.fill_constant([2, 3], "float32", 3.0, out=into),
        np.full_like(X, 3),
    ),
    "less_than": ("bool", lambda layers, x, y, into: layers.less_than(x, y, cond=into), X < Y),
    "greater_equal": ("bool", lambda layers, x, y, into: layers.greater_equal(x, y, cond=into), X >= Y),
    "logical_or": (
        "bool",
        lambda layers, x, y, into: layers.logical_or(layers.less_than(x, y), layers.equal(x, x - 4.0), out=into),
        X < Y,
    ),
    "logical_not": ("bool", lambda layers, x, y, into: layers.logical_not(layers.less_than(x, y), out=into), X >= Y),
}
"""The type of a variable, a layer of old that is told to write into it, and what it holds afterwards."""


@pytest.mark.parametrize("name", WRITTEN)
def test_an_old_layer_writes_where_it_is_told(paddle: Any, fluid: Any, name: str) -> None:
    """The variable that ``out`` or ``cond`` names holds the result, whatever it held before."""
    dtype, ask, expected = WRITTEN[name]
    x, y = (fluid.data(feed, shape=[2, 3], dtype="float32") for feed in ("x", "y"))
    into = fluid.layers.fill_constant([2, 3], dtype, 1 if dtype == "bool" else 7.0)
    ask(fluid.layers, x, y, into)
    fetch = fluid.layers.cast(into, "int32") if dtype == "bool" else into
    (fetched,) = compiled(paddle, [fetch], feeds=("x", "y"), size=2).run(X, Y)

    wanted = expected.astype(np.int32 if dtype == "bool" else np.float32)
    check.identical(actual=fetched, expected=wanted, what=f"what fluid.layers.{name} wrote")


POOLS: Mapping[str, Tuple[Mapping[str, Any], np.ndarray]] = {
    "max": ({"pool_size": 2, "pool_stride": 2}, WINDOWS.max(-1)),
    "avg": ({"pool_size": [2, 2], "pool_type": "avg", "pool_stride": 2, "use_cudnn": False}, WINDOWS.mean(-1)),
    "global": ({"pool_type": "avg", "global_pooling": True}, IMAGE.mean((2, 3), keepdims=True)),
}


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_has_its_type_as_a_word(paddle: Any, fluid: Any, name: str) -> None:
    """pool2d takes the largest value or the mean of windows, or of the whole picture."""
    words, expected = POOLS[name]
    image = fluid.layers.data(name="x", shape=[1, 4, 4], dtype="float32")
    (fetched,) = compiled(paddle, [fluid.layers.pool2d(image, **words)], size=2).run(IMAGE)

    check.identical(actual=fetched, expected=expected.astype(np.float32), what="the pooled picture")


def test_a_feed_of_old_has_its_batch_in_front(fluid: Any) -> None:
    """layers.data puts the batch before a shape that has no open dimension, unless it is told not to."""
    shapes = [
        list(fluid.layers.data(name="a", shape=[3]).shape),
        list(fluid.layers.data("b", [3, 5], append_batch_size=False).shape),
        list(fluid.layers.data("c", [-1, 5]).shape),
        list(fluid.data("d", [None, 3]).shape),
    ]

    check.equal(actual=shapes, expected=[[-1, 3], [3, 5], [-1, 5], [-1, 3]], what="the list of shapes")


@pytest.mark.parametrize("name", ["SGD", "SGDOptimizer"])
def test_an_optimizer_of_old_makes_the_oracle_s_step(paddle: Any, fluid: Any, name: str) -> None:
    """A program that is written in old names trains like the exact regression."""
    x, y = (fluid.layers.data(feed, [2]) for feed in ("x", "y"))
    cost = fluid.layers.mean(fluid.layers.square_error_cost(_scaled(fluid, x), y))
    getattr(fluid.optimizer, name)(learning_rate=RATE).minimize(cost)
    started(paddle)
    device = compiled(paddle, [cost], feeds=("x", "y"), training=True)
    expected = step(START, samples(4), targets(4), rate=RATE, reduction="mean")
    (fetched,) = device.run(samples(4), targets(4))
    device.sync()

    check.identical(actual=fetched.reshape(-1), expected=float32(expected.loss).reshape(-1), what="the cost")
    check.identical(actual=device.value("w"), expected=float32(expected.weight), what="the weight")


DECAYS: Mapping[str, Tuple[Callable[[Any], Any], Tuple[float, ...]]] = {
    "exponential_decay": (lambda layers: layers.exponential_decay(8.0, 2, 0.25), (8, 4, 2, 1)),
    "exponential_decay-stairs": (
        lambda layers: layers.exponential_decay(8.0, decay_steps=2, decay_rate=0.25, staircase=True),
        (8, 8, 2, 2),
    ),
    "natural_exp_decay": (lambda layers: layers.natural_exp_decay(8.0, 1, float(np.log(2))), (8, 4, 2, 1)),
    "inverse_time_decay": (lambda layers: layers.inverse_time_decay(8.0, 2, 1.0, staircase=True), (8, 8, 4, 4)),
    "polynomial_decay": (lambda layers: layers.polynomial_decay(9.0, 3, end_learning_rate=3.0), (9, 7, 5, 3, 3)),
    "polynomial_decay-cycle": (
        lambda layers: layers.polynomial_decay(12.0, 2, 4.0, power=2.0, cycle=True),
        (12, 6, 4, 4.5, 4),
    ),
    "piecewise_decay": (lambda layers: layers.piecewise_decay([1, 3], values=[8.0, 4.0, 1.0]), (8, 4, 4, 1)),
    "noam_decay": (lambda layers: layers.noam_decay(4, 4, 32.0), (2, 4, 6, 8)),
    "cosine_decay": (lambda layers: layers.cosine_decay(8.0, step_each_epoch=2, epochs=2), (8, 8, 4, 4)),
    "linear_lr_warmup": (lambda layers: layers.linear_lr_warmup(8.0, 3, 1.0, 7.0), (1, 3, 5, 8)),
    "linear_lr_warmup-decay": (
        lambda layers: layers.linear_lr_warmup(layers.piecewise_decay([2, 4], [8.0, 4.0, 2.0]), 2, 1.0, 3.0),
        (1, 2, 4, 4, 2),
    ),
}
"""A learning rate of old, and what it is in the first runs by the formulas of its documentation."""


@pytest.mark.parametrize("name", DECAYS)
def test_a_decay_of_old_counts_runs(paddle: Any, fluid: Any, name: str) -> None:
    """Every run of the training program makes a step with the rate of its number; evaluations do not count."""
    ask, rates = DECAYS[name]
    x = fluid.data("x", [4, 2], "float32")
    weight = fluid.layers.create_parameter(
        [2], "float32", name="w", default_initializer=fluid.initializer.Constant(0.0)
    )
    cost = fluid.layers.mean(fluid.layers.elementwise_mul(x, weight))
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(learning_rate=ask(fluid.layers)).minimize(cost)
    executor = started(paddle)
    device = compiled(paddle, [cost], training=True)
    seen = []
    for _ in rates:
        device.run(np.full((4, 2), 2.0, np.float32))
        device.sync()
        seen.append(device.value("w").copy())
        executor.run(test, feed={"x": X[:, :2].repeat(2, 0)}, fetch_list=[cost.name])

    # The mean over two columns of samples of 2 has the gradient 1 for each weight.
    expected = -np.cumsum(rates)[:, np.newaxis].repeat(2, 1)
    check.identical(actual=np.stack(seen), expected=float32(expected), what="the weight after each run")


REFUSED: Mapping[str, Tuple[Callable[[Any], Any], Any, str]] = {
    # In dynamic mode a decay is refused.
    "decay": (lambda fluid: fluid.layers.noam_decay(4, 4), NotImplementedError, "a scheduler of paddle.optimizer.lr"),
    # Each interval needs a value.
    "pieces": (
        lambda fluid: fluid.layers.learning_rate_scheduler.piecewise_decay([1, 3], [8.0, 4.0]),
        ValueError, "2 values for 2 boundaries",
    ),
    **{
        name: (
            operator.attrgetter(f"layers.{name}"),
            AttributeError, f"paddle.fluid.layers.{name} is a name of Paddle's old API",
        )
        for name in ("dynamic_lstm", "StaticRNN")
    },
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_paddle_no_longer_has_is_one_sentence(paddle: Any, fluid: Any, what: str) -> None:
    """A name without an equivalent is refused by name, and so is a call that no longer works."""
    ask, error, sentence = REFUSED[what]
    if what == "decay":
        paddle.disable_static()
    with check.raises(error, match=re.escape(sentence), what=what):
        ask(fluid)


@pytest.mark.parametrize("files", [{}, {"model_filename": "model", "params_filename": "params"}], ids=["many", "two"])
def test_an_inference_model_of_old_comes_back(paddle: Any, fluid: Any, tmp_path: Path, files: Any) -> None:
    """A saved folder has the model, its feeds, its targets and its weights, which the device computes with."""
    out = _scaled(fluid, fluid.data("x", [3, 2], "float32"))
    executor = started(paddle)
    names = fluid.io.save_inference_model(str(tmp_path), ["x"], [out], executor, **files)
    with fluid.scope_guard(fluid.core.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), executor, **files)
        (fetched,) = compiled(paddle, fetches, feeds=feeds, program=program, size=3).run(samples(3))

    saved = sorted(path.name for path in tmp_path.iterdir())
    check.equal(actual=names, expected=[out.name], what="the list of targets")
    check.equal(actual=feeds, expected=["x"], what="the list of feeds")
    check.equal(actual=saved, expected=["model", "params"] if files else ["__model__", "w"], what="the list of files")
    check.identical(actual=fetched, expected=float32(samples(3) * START), what="the output")


def test_weights_are_saved_and_loaded_by_their_names(paddle: Any, fluid: Any, tmp_path: Path) -> None:
    """save_params writes a file for each weight, and load_params puts the values back."""
    start = fluid.initializer.Constant(3.0)
    for name in ("v", "w"):
        fluid.layers.create_parameter([2], "float32", name=name, default_initializer=start)
    executor = started(paddle)
    fluid.io.save_params(executor, str(tmp_path))
    tensor = fluid.global_scope().find_var("w").get_tensor()
    tensor.set(np.zeros(2, np.float32), fluid.CPUPlace())
    fluid.io.load_params(executor, str(tmp_path))

    check.equal(actual=sorted(path.name for path in tmp_path.iterdir()), expected=["v", "w"], what="the list of files")
    check.identical(actual=np.array(tensor), expected=np.full(2, 3, np.float32), what="the weight")


def test_the_classes_for_ipus_have_their_old_places(paddle: Any, fluid: Any) -> None:
    """Places, strategies and compiled programs are those of Paddle 2."""
    now = paddle.IPUPlace, paddle.static.IpuStrategy, paddle.static.IpuCompiledProgram, paddle.static.Executor
    old = fluid.IPUPlace, fluid.compiler.IpuStrategy, fluid.compiler.IpuCompiledProgram, fluid.Executor

    check.holds(all(one is other for one, other in zip(old, now)), f"{old} are other classes than {now}.")
    check.holds(paddle.fluid is fluid, "paddle.fluid is another module than the one that is imported.")


def test_a_dynamic_layer_of_old_is_activated(paddle: Any, fluid: Any) -> None:
    """A layer's constructor names the activation behind it."""
    paddle.disable_static()
    with fluid.dygraph.guard():
        start = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
        layer = fluid.dygraph.Linear(3, 2, param_attr=start, bias_attr=False, act="relu")
        out = layer(fluid.dygraph.to_variable(Y)).numpy()

    # The sum of one row is below zero, that of the other above.
    expected = np.maximum(Y.sum(1, keepdims=True) / 2, 0).repeat(2, 1)
    check.identical(actual=out, expected=expected, what="the output")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_an_array_of_old_becomes_a_tensor_of_the_type_that_is_asked_for(paddle: Any, fluid: Any, dtype: str) -> None:
    """dygraph.to_variable makes a tensor of an array, in its own type or another."""
    paddle.disable_static()
    with fluid.dygraph.guard():
        own, asked = (fluid.dygraph.to_variable(Y, dtype=each).numpy() for each in (None, dtype))

    check.identical(actual=own, expected=Y, what="the tensor")
    check.identical(actual=asked, expected=Y.astype(dtype), what=f"the tensor in {dtype}")

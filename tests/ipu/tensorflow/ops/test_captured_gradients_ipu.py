"""Gradients of activations that tapes and contexts capture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

X, W, V = np.asarray([[3, -2, 0.5], [2, 4, -1], [0.25, 8, 16]], np.float32)


@pytest.fixture
def on_device(tf: Any, ipu: Any, configure: Any) -> Any:
    """Runs a function on one IPU."""
    configure(1)
    strategy = ipu.ipu_strategy.IPUStrategyV1()

    def run(function: Any) -> Any:
        with strategy.scope():
            return strategy.run(tf.function(function))

    return run


def marks(tf: Any, ipu: Any, x: Any, w: Any) -> Any:
    """The sum of v·(x·w)² where x·w, and a structure of it and its square, are marked."""
    mark = ipu.grad_util_ops.capture_upstream_gradients
    product = mark(x * w, tag="product")
    pair = mark({"square": product**2, "product": (product,)}, tag="pair")
    return tf.reduce_sum(pair["square"] * V)


def check_captured(grads: Any, captured: Any) -> None:
    """Gradients of the weights and of both marks, in closed form."""
    __tracebackhide__ = True
    check.equal(actual=sorted(captured), expected=["pair", "product"], what="the tags")
    check.equal(actual=[len(captured[tag]) for tag in ("pair", "product")], expected=[2, 1], what="tensors by tag")
    check.identical(actual=np.asarray(grads), expected=2 * V * X * W * X, what="the gradient of the weights")
    check.identical(actual=np.asarray(captured["product"][0]), expected=2 * V * X * W, what="what reaches the product")
    check.identical(actual=np.asarray(captured["pair"][1]), expected=V, what="what reaches the square")


@pytest.mark.parametrize("behind", [False, True], ids=["inside", "behind"])
def test_a_tape_captures(tf: Any, ipu: Any, on_device: Any, behind: bool) -> None:
    """A tape keeps the gradients that reach what is marked, by tag and tensor, inside of its scope and behind it."""
    tapes = ipu.eager.backprop

    def step() -> Any:
        w = tf.constant(W)
        with tapes.GradientCaptureTape() as tape:
            tape.watch(w)
            loss = marks(tf, ipu, X, w)
            grads = None if behind else tape.gradient(loss, w)
        grads = tape.gradient(loss, w) if behind else grads
        return grads, tape.captured_gradients

    check_captured(*on_device(step))
    check.equal(actual=tapes.num_gradient_collection_tapes(), expected=0, what="tapes that are open at the end")


def test_the_innermost_context_captures(tf: Any, ipu: Any, on_device: Any) -> None:
    """Of two contexts the inner one keeps the gradients that are computed before it is asked for them."""
    tapes = ipu.eager.backprop

    def step() -> Any:
        w = tf.constant(W)
        with tapes.GradientCaptureContext() as outer, tapes.GradientCaptureContext() as inner:
            first = tf.gradients(marks(tf, ipu, X, w), w)[0]
            kept = inner.captured_gradients
            second = tf.gradients(marks(tf, ipu, X, 2 * w), w)[0]
        return first, kept, second, outer.captured_gradients

    first, kept, second, others = on_device(step)
    check_captured(first, kept)
    check.identical(actual=np.asarray(second), expected=8 * V * X * W * X, what="the gradient of doubled weights")
    check.identical(actual=np.asarray(others["product"][0]), expected=4 * V * X * W, what="what the outer one keeps")


def test_a_mark_is_the_same_tensor(tf: Any, ipu: Any, on_device: Any) -> None:
    """What is marked keeps its values and its structure, also where no gradient is computed."""
    mark = ipu.grad_util_ops.capture_upstream_gradients
    one, (two, three) = on_device(lambda: mark((tf.constant(X), [tf.constant(W), tf.constant(V)]), tag="all"))

    for actual, expected in ((one, X), (two, W), (three, V)):
        check.identical(actual=np.asarray(actual), expected=expected, what="a tensor that is marked")


def test_a_gradient_without_a_scope_is_refused(tf: Any, ipu: Any) -> None:
    """The gradient of what is marked is computed in the scope of a tape or a context that captures."""
    x = tf.Variable(X)
    with tf.GradientTape() as tape:
        loss = ipu.grad_util_ops.capture_upstream_gradients(x * 2, tag="double")
    with check.raises(RuntimeError, match="GradientCaptureTape", what="a gradient under a plain tape"):
        tape.gradient(loss, x)


def test_a_tag_is_captured_once(tf: Any, ipu: Any) -> None:
    """Two marks with one tag cannot be told apart."""
    x, mark = tf.Variable(X), ipu.grad_util_ops.capture_upstream_gradients
    tape = ipu.eager.backprop.GradientCaptureTape()
    with tape:
        loss = mark(mark(x * 2, tag="twice"), tag="twice")
        with check.raises(ValueError, match="captured", what="a second gradient of one tag"):
            tape.gradient(loss, x)
    check.equal(actual=sorted(tape.captured_gradients), expected=["twice"], what="the tags")

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


def test_a_tag_is_captured_once(tf: Any, ipu: Any) -> None:
    """Two marks with one tag cannot be told apart."""
    x, mark = tf.Variable(X), ipu.grad_util_ops.capture_upstream_gradients
    tape = ipu.eager.backprop.GradientCaptureTape()
    with tape:
        loss = mark(mark(x * 2, tag="twice"), tag="twice")
        with check.raises(ValueError, match="captured", what="a second gradient of one tag"):
            tape.gradient(loss, x)
    check.equal(actual=sorted(tape.captured_gradients), expected=["twice"], what="the tags")


@pytest.mark.ipus(4)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("method", ["SUM", "MEAN"])
def test_a_pipeline_accumulates_what_it_captures(tf: Any, ipu: Any, configure: Any, method: str, replicas: int) -> None:
    """Gradients of marks in two stages are reduced over the micro-batches as those of weights are.

    The optimizer and the queue that the optimizer function names get those of their own replica.
    """
    configure(2 * replicas)
    count, rows = 8, np.arange(1, 17, dtype=np.float32)[: 8 * replicas]
    mark, context = ipu.grad_util_ops.capture_upstream_gradients, ipu.eager.backprop.GradientCaptureContext()
    told, queues = [], {}

    class Told(tf.compat.v1.train.GradientDescentOptimizer):
        def apply_gradients(self, pairs: Any, captured_grads: Any = None, **settings: Any) -> Any:
            told.append({tag: len(gradients) for tag, gradients in captured_grads.items()})
            return super().apply_gradients(pairs, **settings)

    def first(x: Any) -> Any:
        with tf.compat.v1.variable_scope("own", use_resource=True):
            weight = tf.compat.v1.get_variable("w", initializer=2.0)
        return mark(x * weight, tag="first")

    def second(x: Any) -> Any:
        return tf.reduce_sum(4 * mark(x * x, tag="second"))

    def update(loss: Any) -> Any:
        return ipu.pipelining_ops.OptimizerFunctionOutput(
            Told(0.0), loss, gradient_capture_context=context, captured_gradient_outfeed=queues["captured"]
        )

    reduction = getattr(ipu.gradient_accumulation.GradientAccumulationReductionMethod, method)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(rows).batch(1, True))
        queues.update({name: ipu.ipu_outfeed_queue.IPUOutfeedQueue() for name in ("losses", "captured")})

        def program() -> Any:
            return ipu.pipelining_ops.pipeline(
                [first, second], count, inputs=[], infeed_queue=infeed, outfeed_queue=queues["losses"],
                optimizer_function=update, reduction_method=reduction,
            )  # fmt: skip

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(program)
        taken = queues["captured"].dequeue()
        session.run([infeed.initializer, tf.compat.v1.global_variables_initializer()])
        session.run(run)
        got = session.run(taken)

    check.equal(actual=told[-1], expected={"first": 1, "second": 1}, what="the tensors by tag that the optimizer gets")
    own = rows.reshape(count, replicas).astype(np.float64).sum(0) / (count if method == "MEAN" else 1)
    # The loss is 4 (2x)^2: 4 reaches its square, and 8 · 2x the product.
    constant = 4.0 if method == "MEAN" else 4.0 * count
    for tag, expected in (("first", 16 * own), ("second", np.full(replicas, constant))):
        actual = np.asarray(got[tag][0]).ravel()
        check.identical(actual=actual, expected=expected.astype(np.float32), what=f"what reaches the {tag} mark")

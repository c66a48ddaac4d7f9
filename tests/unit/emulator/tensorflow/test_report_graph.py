"""Functions of TensorFlow are read for the estimates with their ops, sizes, weights and stages."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance.emulator.core import cost, memory
from ipu_conformance.emulator.core.plan import plan
from ipu_conformance.emulator.tensorflow.reports import graph as report_graph


def kinds(graph: Any) -> Any:
    """The types of the ops that compute something."""
    return [op.type for op in graph.ops if op.type not in ("Constant", "Identity", "Reshape")]


def test_a_product_is_read(tf: Any) -> None:
    """A dense layer is a product and a sum; its variables are the graph's weights."""
    layer = tf.keras.layers.Dense(5, activation="relu")
    layer.build((3, 4))
    graph = report_graph.of_function(layer, [tf.TensorSpec([3, 4])])

    assert kinds(graph) == ["MatMul", "Add", "Relu"]
    assert sorted(graph.tensors[name].shape for name in graph.initializers) == [(4, 5), (5,)]
    assert [graph.tensors[name].shape for name in graph.inputs] == [(3, 4)]
    assert [graph.tensors[name].shape for name in graph.outputs] == [(3, 5)]


@pytest.mark.parametrize(
    ("make", "shape", "macs"),
    [
        (lambda tf: tf.keras.layers.Dense(5), (3, 4), 3 * 4 * 5),
        (lambda tf: tf.keras.layers.Conv2D(6, 3), (2, 8, 8, 4), 2 * 6 * 6 * 6 * 4 * 9),
        (lambda tf: tf.keras.layers.DepthwiseConv2D(3, depth_multiplier=2), (2, 8, 8, 4), 2 * 6 * 6 * 8 * 9),
        (lambda tf: tf.keras.layers.Conv2D(6, 3, strides=2, padding="same"), (1, 8, 8, 1), 4 * 4 * 6 * 9),
        (lambda tf: tf.keras.layers.MaxPool2D(2), (2, 8, 8, 4), 0),
    ],
    ids=["dense", "conv", "depthwise", "strided", "pool"],
)
def test_products_are_counted(tf: Any, make: Any, shape: Any, macs: int) -> None:
    """The multiply-accumulates of a layer are those of its definition."""
    layer = make(tf)
    layer.build(shape)
    graph = report_graph.of_function(layer, [tf.TensorSpec(shape)])

    assert cost.estimate(plan((0,), "sequential", 1, training=False), graph).macs == macs


def test_a_transposed_operand_is_counted(tf: Any) -> None:
    """The length of a product's sum is that of the transposed operand."""
    graph = report_graph.of_function(
        lambda a, b: tf.matmul(a, b, transpose_a=True), [tf.TensorSpec([7, 2]), tf.TensorSpec([7, 3])]
    )

    assert cost.estimate(plan((0,), "sequential", 1, training=False), graph).macs == 2 * 3 * 7


def test_functions_inside_are_read(tf: Any) -> None:
    """What a called function does belongs to its caller, weights included."""
    weight = tf.Variable(tf.ones([4, 4]))
    inner = tf.function(lambda value: tf.matmul(value, weight))
    outer = tf.function(lambda value: inner(value) + 1.0)
    graph = report_graph.of_function(lambda value: tf.nn.relu(outer(value)), [tf.TensorSpec([2, 4])])

    assert kinds(graph) == ["MatMul", "Add", "Relu"]
    assert list(graph.initializers) == [weight.name]


def test_stages_are_asked_for_by_name(tf: Any) -> None:
    """The stage of every op is what its name leads to, and memory is dealt out by it."""
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(64, name="first", input_shape=(32,)), tf.keras.layers.Dense(16, name="second")]
    )
    graph = report_graph.of_function(model, [tf.TensorSpec([8, 32])], lambda name: int("/second/" in name))
    estimate = memory.estimate(plan((0, 1), "grouped", 4), graph)

    assert [ipu.weights for ipu in estimate.ipus] == [4 * (32 * 64 + 64), 4 * (64 * 16 + 16)]


def test_an_unknown_op_keeps_its_name(tf: Any) -> None:
    """An op without a known cost is named by the estimate."""
    graph = report_graph.of_function(tf.linalg.inv, [tf.TensorSpec([3, 3])])

    assert "tensorflow::MatrixInverse" in cost.estimate(plan((0,), "sequential", 1, training=False), graph).assumed


def test_updates_are_read(tf: Any) -> None:
    """A function that trains is read as well: its assignments have no results."""
    weight = tf.Variable([1.0, 2.0])

    def train(value: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * value)
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    graph = report_graph.of_function(train, [tf.TensorSpec([2])])

    assert [op.outputs for op in graph.ops if "AssignSub" in op.type] == [()]
    assert memory.estimate(plan((0,), "sequential", 1, training=False), graph).total("weights") == 8


def test_what_results_do_not_need_is_left_out(tf: Any) -> None:
    """Only the ops and weights that lead to a result are kept when that is asked for."""
    weight, counter = tf.Variable(tf.ones([4, 4])), tf.Variable(0.0)

    def counted(value: Any) -> Any:
        counter.assign_add(tf.reduce_sum(value))
        return tf.matmul(value, weight)

    graph = report_graph.of_function(counted, [tf.TensorSpec([2, 4])], results_only=True)

    assert kinds(graph) == ["MatMul"]
    assert list(graph.initializers) == [weight.name]

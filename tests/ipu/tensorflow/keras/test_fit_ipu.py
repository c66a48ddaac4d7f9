"""Keras models on one IPU: the methods they have, what fit takes and how it counts steps."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.run import RunConfig

from .nets import KINDS, MLP, PLAIN, Fit, Keras, adam, check_losses, check_outputs, each_fit, momentum, scalars, still

METHODS = (
    "set_pipelining_options", "set_gradient_accumulation_options", "set_replication_options",
    "set_asynchronous_callbacks", "set_infeed_queue_options", "set_outfeed_queue_options",
    "get_pipeline_stage_assignment", "set_pipeline_stage_assignment", "reset_pipeline_stage_assignment",
    "print_pipeline_stage_assignment_summary", "export_for_ipu_serving",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_a_scope_have_the_methods(keras: Keras, kind: str) -> None:
    """The IPU's methods exist on a model that is built in a strategy's scope, whose class keeps its name."""
    outside = keras.build(kind)
    with keras.scope(PLAIN):
        inside = keras.build(kind)

    missing = [method for method in METHODS if not callable(getattr(inside, method, None))]
    check.equal(actual=missing, expected=[], what="the IPU's methods that a model of the scope lacks")
    extra = [method for method in METHODS if hasattr(outside, method)]
    check.equal(actual=extra, expected=[], what="the IPU's methods on a model outside the scope")
    check.equal(actual=type(inside).__name__, expected=type(outside).__name__, what="the name of the model's class")
    check.instance(actual=inside, expected=keras.tf.keras.Model, what="the model")
    chain = isinstance(inside, keras.tf.keras.Sequential)
    check.equal(actual=chain, expected=kind == "sequential", what="whether the model is a Sequential")


def test_extensions_can_be_left_out(keras: Keras, ipu: Any, configure: Any) -> None:
    """A strategy with enable_keras_extensions=False leaves models as they are."""
    configure(1)
    with ipu.ipu_strategy.IPUStrategy(enable_keras_extensions=False).scope():
        model = keras.build("sequential")

    check.lacks(actual=dir(model), unexpected="set_pipelining_options", what="the model")


@each_fit({
    "linear": Fit(PLAIN, name="linear"),
    "mlp": Fit(PLAIN),
    "convnet": Fit(PLAIN, name="convnet"),
    "bn_convnet": Fit(PLAIN, name="bn_convnet"),
    "residual": Fit(PLAIN, name="residual"),
    "sequential": Fit(PLAIN, "sequential"),
    "subclassed": Fit(PLAIN, "subclassed"),
    "momentum": Fit(momentum(PLAIN)),
    "adam": Fit(adam(PLAIN)),
    **{f"execution-{n}": Fit(replace(PLAIN, device_iterations=6), settings={"steps_per_execution": n})
       for n in (1, 2, 3, 6)},
})  # fmt: skip
def test_a_net_trains_as_specified(keras: Keras, fit: Fit) -> None:
    """On one IPU the weights after a fit are the oracle's, however many of its steps an execution has."""
    keras.check_fit(fit.config, fit.kind, fit.name, **fit.settings)


@pytest.mark.parametrize("execution", [4, 100])
def test_a_longer_execution_is_cut_with_a_warning(keras: Keras, said: Any, execution: int) -> None:
    """steps_per_execution larger than the number of steps is cut to it."""
    keras.check_fit(PLAIN, steps_per_execution=execution)

    check.contains(actual=said(), expected="steps_per_execution", what="TensorFlow's log")


@pytest.mark.parametrize("form", ["arrays", "tensors", "endless"])
def test_arrays_and_data_sets_train_alike(keras: Keras, tf: Any, form: str) -> None:
    """NumPy arrays and tensors feed the batches of a data set; steps_per_epoch bounds an epoch of a repeated one."""
    data = distinct_micro_batches(MLP, PLAIN)
    arguments: Any = data.inputs[0].astype(np.float32), data.labels[0].astype(np.int32)
    settings: Any = {"batch_size": PLAIN.micro_batch, "shuffle": False}
    if form == "tensors":
        arguments = tuple(map(tf.constant, arguments))
    elif form == "endless":
        arguments, settings = [keras.dataset(PLAIN).repeat()], {"steps_per_epoch": 3}
    with keras.ready(PLAIN) as model:
        model.fit(*arguments, **settings, verbose=0)

    keras.check_trained(model, PLAIN)


@pytest.mark.parametrize("phase", ["fit", "evaluate", "predict"])
def test_float64_becomes_float32(keras: Keras, tf: Any, phase: str) -> None:
    """A data set of float64 reaches the model as float32."""
    seen = []

    class Looking(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__(autocast=False)
            self.dense = tf.keras.layers.Dense(3, kernel_initializer="zeros")

        def call(self, inputs: Any) -> Any:
            seen.append(inputs.dtype)
            return self.dense(inputs)

    label = 1 + 2.0**-11  # float16 has no such number, and float32 has its square
    labels = np.full((4, 3), label)
    data = tf.data.Dataset.from_tensor_slices((np.ones((4, 3)), labels)).batch(2, drop_remainder=True)
    with keras.scope(PLAIN):
        model = Looking()
        model.compile("sgd", "mse")
        left = getattr(model, phase)(data, verbose=0)

    check.equal(actual=set(seen), expected={tf.float32}, what="the dtypes that reach the model")
    if phase == "evaluate":
        check.equal(actual=float(left), expected=label**2, what="the loss, the square of a label")


def test_validation_follows_every_epoch(keras: Keras) -> None:
    """fit evaluates its validation data after each epoch, under the same rules."""
    with keras.ready(PLAIN) as model:
        history = model.fit(keras.dataset(PLAIN), validation_data=keras.dataset(PLAIN), epochs=2, verbose=0).history
        last = model.evaluate(keras.dataset(PLAIN), verbose=0)

    check.equal(actual=history["val_loss"][1:], expected=[last], what="the val_loss after the second epoch")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.emulator)])
@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch", "predict_on_batch"])
def test_single_batches_run_on_one_replica(keras: Keras, method: str, replicas: int) -> None:
    """The methods of a single batch work on one replica and are refused on several."""
    data = distinct_micro_batches(MLP, PLAIN)
    fed = [data.inputs[0].astype(np.float32), data.labels[0].astype(np.int32)]
    config, message = replace(PLAIN, replicas=replicas), f"`{method}` runs one batch on one replica"
    refused = check.raises(RuntimeError, match=message, what=f"{method} on two replicas")
    with keras.ready(config, steps_per_execution=1) as model, refused if replicas > 1 else nullcontext():
        result = getattr(model, method)(*(fed[:1] if method == "predict_on_batch" else fed))

    if replicas == 1 and method == "predict_on_batch":
        check_outputs(result, PLAIN)
    elif replicas == 1:
        # The mean over one batch is that over its micro-batches at the initial weights.
        check_losses(result, still(PLAIN), f"the loss of {method}")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_models_own_train_step_is_used(keras: Keras, tf: Any, replicas: int) -> None:
    """A train_step that is overridden is what a replica runs; gradients of both its optimizers are added up."""

    class Own(tf.keras.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(self(x) * y)
            kernel, bias = self.trainable_variables
            of_kernel, of_bias = tape.gradient(loss, [kernel, bias])
            self.optimizer.apply_gradients([(of_kernel, kernel)])
            self.second.apply_gradients([(of_bias, bias)])
            return {"own": loss}

    config = replace(PLAIN, device_iterations=2, replicas=replicas)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    y = np.asarray([1, -1, 2, -4], np.float32)[:, None]
    with keras.scope(config):
        inputs = tf.keras.Input((2,))
        model = Own(inputs, tf.keras.layers.Dense(1, kernel_initializer="zeros")(inputs))
        model.second = tf.keras.optimizers.SGD(0.25)
        model.compile(tf.keras.optimizers.SGD(0.5), steps_per_execution=4 // replicas)
        history = model.fit(x, y, batch_size=1, shuffle=False, verbose=0).history

    # The loss is linear in the weights: in small integers and halves every sum is exact.
    check.identical(actual=model.get_weights()[0][:, 0], expected=-0.5 * (x * y).sum(axis=0), what="the weights")
    check.identical(actual=model.get_weights()[1], expected=-0.25 * y.sum(axis=0), what="the bias")
    check.equal(actual=list(history), expected=["own"], what="the names in the history")


@pytest.mark.ipus(2)
def test_python_control_flow_in_a_train_step_is_converted(keras: Keras, tf: Any) -> None:
    """Conditions on tensors in a user's train_step work as in Keras."""

    class Own(tf.keras.Model):
        def train_step(self, data: Any) -> Any:
            x, _ = data
            if tf.reduce_sum(x) > 3:  # noqa: SIM108 (the statement is what is tested)
                value = tf.constant(1.0)
            else:
                value = tf.constant(0.0)
            self.seen.assign_add(value)
            return {"value": value}

    config = replace(PLAIN, device_iterations=2, replicas=2)
    with keras.scope(config):
        inputs = tf.keras.Input((1,))
        model = Own(inputs, tf.keras.layers.Dense(1)(inputs))
        model.seen = tf.Variable(0.0, trainable=False)
        model.compile("sgd", steps_per_execution=2)
        column = np.asarray([[5.0], [1.0], [5.0], [1.0]], np.float32)
        model.fit(column, np.zeros(4), batch_size=1, shuffle=False, verbose=0)

    check.equal(actual=float(model.seen), expected=2.0, what="how often replica 0 took the first branch in 2 steps")


whole_or_cut = pytest.mark.parametrize(
    "config", [PLAIN.with_counts(1, 4, stages=stages) for stages in ((), (0, 1, 1))], ids=["whole", "pipelined"]
)


@pytest.mark.ipus(2)
@whole_or_cut
def test_regularisation_is_part_of_the_loss(keras: Keras, tf: Any, config: RunConfig) -> None:
    """Weights of every stage, and of every layer in it, move by the gradient of their own regularizer."""
    layers = [keras.scale(2.0, kernel_regularizer=tf.keras.regularizers.L2(0.5)) for _ in range(3)]
    model = keras.chained(config, layers, np.zeros(8), loss="mse")

    # Inputs of zero leave the regularizer alone: four times 2 * 0.5 * weight, times the rate, halves in each update.
    check.equal(actual=scalars(model), expected=[0.5] * 3, what="the weight of every layer after two updates")


@pytest.mark.ipus(2)
@whole_or_cut
def test_outputs_of_layers_are_regularised(keras: Keras, tf: Any, config: RunConfig) -> None:
    """What layers add to the loss for their outputs counts once for each micro-batch, whatever stage they are in."""
    shares, starts, fed = (0.5, 0.25, 0.125), (2.0, 4.0, 0.5), [1.0, 0.5, 2.0, 0.25]
    layers = [
        keras.scale(start, activity_regularizer=lambda outputs, share=share: share * tf.reduce_sum(outputs))
        for start, share in zip(starts, shares)
    ]
    model = keras.chained(config, layers, fed, loss=lambda labels, outputs: 0.0 * outputs)

    # The loss is x * a * (1/2 + b * (1/4 + c / 8)), and all micro-batches make one update.
    (a, b, c), (first, second, third) = starts, shares
    gradients = (first + b * (second + c * third), a * (second + c * third), a * b * third)
    expected = [start - 0.125 * sum(fed) * gradient for start, gradient in zip(starts, gradients)]
    check.equal(actual=scalars(model), expected=expected, what="the weight of every layer after one update")

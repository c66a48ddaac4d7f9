"""The models of ``ipu.keras`` in SDKs 1.2 to 2.1, whose steps are updates of one replica.

The rules are those of graphcore/tensorflow ``tensorflow/python/ipu/keras/model.py`` and ``pipeline.py`` of then. Later
SDKs do not have the models, so only the emulator is asked. Each kind is trained once, on products that round nothing.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.op import Term

from .. import exact
from ..ops.operations import within

pytestmark = pytest.mark.emulator

EPOCHS, ACCUMULATION, REPLICAS = 2, 4, 2


class Kind(NamedTuple):
    """The weights of a model, one of a stage, and what an epoch has on a replica; of more the products round."""

    weights: int
    runs: int
    steps_per_run: int

    @property
    def steps_per_epoch(self) -> int:
        """Those of all replicas."""
        return self.runs * self.steps_per_run * REPLICAS


KINDS = {
    "Sequential": Kind(1, 3, 2),
    "Model": Kind(1, 2, 3),
    "PipelineSequential": Kind(2, 1, 1),
    "PipelineModel": Kind(2, 1, 1),
}


class Trained(NamedTuple):
    """What a model leaves behind, and what it gives afterwards."""

    weights: np.ndarray
    history: Dict[str, Any]
    executions: int
    evaluation: Any
    predictions: np.ndarray


def product(tf: Any, weight: float) -> Any:
    """A layer that multiplies by a weight."""
    return tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=tf.keras.initializers.Constant(weight))


def made(tf: Any, ipu: Any, kind: str, **settings: Any) -> Any:
    """A model of the kind whose weights begin as the oracle's."""
    layers = [product(tf, weight) for weight in exact.START[: KINDS[kind].weights]]
    if kind == "Sequential":
        return ipu.keras.Sequential(layers, **settings)
    if kind == "PipelineSequential":
        return ipu.keras.PipelineSequential([[layer] for layer in layers], **settings)
    outputs = inputs = tf.keras.Input((1,))
    for number, layer in enumerate(layers):
        if kind == "Model":
            outputs = layer(outputs)
        else:
            with ipu.keras.PipelineStage(number):
                outputs = layer(outputs)
    return getattr(ipu.keras, kind)(inputs, outputs, **settings)


def column(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32)[:, np.newaxis]


@pytest.fixture
def train(tf: Any, ipu: Any, strategy_on: Any, records: Dict[Any, Any]) -> Callable[[str], Trained]:
    """Trains each kind once."""

    def trained(kind: str) -> Trained:
        if ("legacy", kind) not in records:
            records["legacy", kind] = _trained(kind)
        return records["legacy", kind]

    def _trained(kind: str) -> Trained:
        fed = column(exact.samples(KINDS[kind].steps_per_epoch * ACCUMULATION))
        data = tf.data.Dataset.from_tensor_slices((fed, fed)).batch(1, drop_remainder=True)
        executions = []
        counting = tf.keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: executions.append(batch))
        pipeline = kind.startswith("Pipeline")
        strategy = strategy_on(REPLICAS * KINDS[kind].weights)
        schedule = ipu.pipelining_ops.PipelineSchedule.Sequential
        with strategy.scope():
            settings = {"pipeline_schedule": schedule} if pipeline else {}
            model = made(tf, ipu, kind, gradient_accumulation_count=ACCUMULATION, **settings)
            model.compile(tf.keras.optimizers.SGD(exact.RATE), loss=lambda labels, outputs: outputs)
            history = model.fit(
                data, epochs=EPOCHS, steps_per_epoch=KINDS[kind].steps_per_epoch,
                steps_per_run=KINDS[kind].steps_per_run, verbose=0, callbacks=[counting],
            ).history  # fmt: skip
            weights = np.ravel(model.get_weights())
            # The model now multiplies by 2 in all: what follows is exact too.
            model.set_weights([np.full((1, 1), 2.0 if place == 0 else 1.0) for place in range(KINDS[kind].weights)])
            few = data.take(ACCUMULATION * REPLICAS)
            evaluation = model.evaluate(few, verbose=0)
            predictions = model.predict(few.map(lambda x, _: x))
        return Trained(weights, history, len(executions), evaluation, predictions)

    return trained


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_model_trains_as_specified(train: Any, kind: str) -> None:
    """Every step adds up the gradients of its mini-batches on every replica; epochs begin with the first element."""
    actual = train(kind)

    row = KINDS[kind]
    fed = np.tile(exact.samples(row.steps_per_epoch * ACCUMULATION), EPOCHS)
    config = exact.counts(EPOCHS * row.runs * row.steps_per_run, ACCUMULATION, REPLICAS, replica_reduction="sum")
    expected = exact.trained(row.weights, config, fed=fed)
    check.identical(actual=actual.weights, expected=expected.weights, what="the weights")
    losses = expected.losses.astype(np.float64).reshape(EPOCHS, -1)
    # A sum over an epoch, a quotient, and the mean over replicas.
    terms = [Term(np.abs(losses).mean(1), length=losses.shape[1] + 2, where="accumulate")]
    within(np.array(actual.history["loss"], np.float32), losses.mean(1), terms, "the mean losses")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_its_steps(train: Any, kind: str) -> None:
    """Callbacks are called once for every ``steps_per_run`` steps of all replicas."""
    check.equal(actual=train(kind).executions, expected=EPOCHS * KINDS[kind].runs, what="the number of runs")


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_is_a_list(train: Any, kind: str) -> None:
    """An evaluation without metrics is a list of the mean loss over all mini-batches of all replicas."""
    fed = exact.samples(ACCUMULATION * REPLICAS)

    check.equal(actual=train(kind).evaluation, expected=[2 * float(np.mean(fed))], what="the evaluation")


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_in_the_order_of_the_data(train: Any, kind: str) -> None:
    """The outputs of replicas alternate as their inputs do."""
    fed = exact.samples(ACCUMULATION * REPLICAS)

    check.identical(actual=train(kind).predictions, expected=2 * column(fed), what="the predictions")


def test_arrays_are_cut_to_whole_runs(tf: Any, ipu: Any, strategy: Any, said: Any) -> None:
    """Arrays are fed in their order; what does not fill a run is dropped with a warning, and metrics are the last's."""
    fed = column(exact.samples(23))
    with strategy.scope():
        model = made(tf, ipu, "Sequential", accumulation_count=3)
        model.compile(tf.keras.optimizers.SGD(exact.RATE), loss=lambda labels, outputs: outputs, metrics=["mae"])
        history = model.fit(fed, fed, batch_size=1, steps_per_run=3, verbose=0).history

    # Of 23 mini-batches a run takes three steps of three.
    config = exact.counts(6, 3)
    check.identical(
        actual=np.ravel(model.get_weights()),
        expected=exact.trained(1, config, fed=fed[:18, 0]).weights,
        what="the weight",
    )
    check.equal(actual=sorted(history), expected=["loss", "mae"], what="what the history holds")
    check.holds("5 are dropped" in said(), "nothing is said of the mini-batches that are dropped")
    check.holds("accumulation_count" in said(), "nothing is said of the older name")


@pytest.mark.parametrize("arrays", [False, True], ids=["data set", "arrays"])
def test_a_model_may_have_two_inputs(tf: Any, ipu: Any, strategy: Any, arrays: bool) -> None:
    """A flat tuple of a data set, or a list of arrays, has the inputs in order; prediction needs no ``compile``."""
    left, right = column(exact.samples(6)), column(exact.samples(12)[6:])
    with strategy.scope():
        ends = [tf.keras.Input((1,)), tf.keras.Input((1,))]
        model = ipu.keras.Model(ends, tf.keras.layers.Subtract()(ends))
        if arrays:
            found = model.predict([left, right], batch_size=2)
        else:
            found = model.predict(tf.data.Dataset.from_tensor_slices((left, right)).batch(2, drop_remainder=True))

    check.identical(actual=found, expected=left - right, what="the differences")


def test_a_word_is_an_optimizer_of_then(tf: Any, ipu: Any, strategy: Any) -> None:
    """The optimizer that a word names is of the generation that Keras calls legacy today."""
    with strategy.scope():
        model = made(tf, ipu, "Sequential")
        model.compile("adam", "mse")

    kind = type(model.optimizer)
    check.equal(actual=kind, expected=tf.keras.optimizers.legacy.Adam, what="the class of the optimizer")


Made = Callable[[Any, Any, Callable[..., Any]], Any]


def _fitted(tf: Any, model: Any, elements: int = 1, **settings: Any) -> Any:
    """A fit on 12 mini-batches of as many tensors besides the inputs."""
    fed = column(exact.samples(12))
    data = tf.data.Dataset.from_tensor_slices((fed,) * (1 + elements)).batch(1, drop_remainder=True)
    model.compile("sgd", "mse")
    return model.fit(settings.pop("change", lambda data: data)(data), verbose=0, **settings)


REFUSED: Dict[str, Tuple[Made, Any, str]] = {
    "validation": (lambda tf, ipu, old: _fitted(tf, old(), validation_data=1), NotImplementedError, "validation_data"),
    "two names": (
        lambda tf, ipu, old: old(gradient_accumulation_count=2, accumulation_count=2), ValueError, "used together",
    ),
    "an unknown argument": (lambda tf, ipu, old: old(stages=2), TypeError, "stages"),
    "weights of losses": (
        lambda tf, ipu, old: old().compile("sgd", "mse", loss_weights=0.5), ValueError, "loss_weights",
    ),
    "a batch size": (lambda tf, ipu, old: _fitted(tf, old(), batch_size=3), ValueError, "batch_size"),
    "labels twice": (lambda tf, ipu, old: _fitted(tf, old(), elements=2), ValueError, "2 element"),
    "no end": (
        lambda tf, ipu, old: _fitted(tf, old(), change=lambda data: data.repeat()), ValueError, "steps_per_epoch",
    ),
    "uneven steps": (
        lambda tf, ipu, old: _fitted(tf, old(), steps_per_epoch=7, steps_per_run=3), ValueError, "evenly divisible",
    ),
    "too many steps": (
        lambda tf, ipu, old: _fitted(tf, old(accumulation_count=4), steps_per_epoch=5), ValueError, "greater than",
    ),
    "too few mini-batches": (
        lambda tf, ipu, old: _fitted(tf, old(accumulation_count=16)), ValueError, "must be at least",
    ),
    "uneven mini-batches": (
        lambda tf, ipu, old: _fitted(tf, old(accumulation_count=5)), ValueError, "evenly divisible",
    ),
    "saving": (lambda tf, ipu, old: old().save("there"), NotImplementedError, "save"),
    "a call": (lambda tf, ipu, old: old()(tf.ones((3, 1))), ValueError, "can only be called through"),
    "no list": (lambda tf, ipu, old: ipu.keras.Sequential(product(tf, 1.0)), ValueError, "list"),
    "no stages": (
        lambda tf, ipu, old: ipu.keras.PipelineSequential([product(tf, 1.0)], 4), ValueError, "list of stages",
    ),
    "no outputs": (lambda tf, ipu, old: ipu.keras.Model(tf.keras.Input((1,))), ValueError, "'outputs'"),
    "no count": (
        lambda tf, ipu, old: ipu.keras.PipelineSequential([[product(tf, 1.0)], [product(tf, 2.0)]]),
        ValueError,
        "gradient_accumulation_count",
    ),
    "pieces of mini-batches": (
        lambda tf, ipu, old: made(
            tf, ipu, "PipelineSequential", gradient_accumulation_count=4, batch_serialization_iterations=3
        ),
        NotImplementedError,
        "batch_serialization_iterations",
    ),
    "layers without a stage": (
        lambda tf, ipu, old: ipu.keras.PipelineModel(
            *(lambda x: (x, product(tf, 1.0)(x)))(tf.keras.Input((1,))), gradient_accumulation_count=4
        ),
        ValueError,
        "pipeline stage",
    ),
}  # fmt: skip
"""What the models refuse, with the vendor's kinds of errors."""


@pytest.mark.parametrize("row", REFUSED)
def test_an_old_model_refuses_what_it_refused(tf: Any, ipu: Any, strategy: Any, row: str) -> None:
    """Earlier SDKs refused some arguments and some data, with errors of their kinds."""
    act, error, message = REFUSED[row]

    with strategy.scope(), check.raises(error, match=message, what=f"{row} with a model of an earlier SDK"):
        act(tf, ipu, lambda **settings: made(tf, ipu, "Sequential", **settings))


def test_old_models_need_an_ipu(tf: Any, ipu: Any) -> None:
    """Outside of a strategy's scope there is no device to run on."""
    with check.raises(ValueError, match="IPU device", what="a fit outside of a scope"):
        _fitted(tf, made(tf, ipu, "Sequential"))


@pytest.mark.parametrize(
    ("old", "new"), [("PipelinedModel", "PipelineSequential"), ("SequentialPipelineModel", "PipelineSequential")]
)
def test_even_older_names_are_the_same_models(ipu: Any, old: str, new: str) -> None:
    """A pipeline of lists of layers has had three names."""
    check.equal(actual=getattr(ipu.keras, old), expected=getattr(ipu.keras, new), what=f"ipu.keras.{old}")

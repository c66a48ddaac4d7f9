"""The models of ``ipu.keras`` in SDKs 1.2 to 2.1, whose steps are updates of one replica.

The rules are those of graphcore/tensorflow ``tensorflow/python/ipu/keras/model.py`` and ``pipeline.py`` of then. Later
SDKs do not have the models, so only the emulator is asked. Each kind is trained once, on products that round nothing.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, NamedTuple, Tuple, Type

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.op import Term

from .. import exact
from ..ops.operations import within
from .nets import Keras, outputs_alone

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


def column(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32)[:, np.newaxis]


class Old:
    """Builds and trains models with one vendor's package of then."""

    def __init__(self, keras: Keras) -> None:
        self.keras, self.tf, self.ipu = keras, keras.tf, keras.ipu

    def model(self, kind: str = "Sequential", **settings: Any) -> Any:
        """A model of the kind whose weights begin as the oracle's."""
        layers = [self.keras.scale(weight) for weight in exact.START[: KINDS[kind].weights]]
        if kind == "Sequential":
            return self.ipu.keras.Sequential(layers, **settings)
        if kind == "PipelineSequential":
            return self.ipu.keras.PipelineSequential([[layer] for layer in layers], **settings)
        outputs = inputs = self.tf.keras.Input((1,))
        for number, layer in enumerate(layers):
            with self.ipu.keras.PipelineStage(number) if kind == "PipelineModel" else contextlib.nullcontext():
                outputs = layer(outputs)
        return getattr(self.ipu.keras, kind)(inputs, outputs, **settings)

    def fit(self, elements: int = 1, repeats: int = 1, count: int = 0, **settings: Any) -> Any:
        """A fit on 12 mini-batches of as many tensors besides the inputs, so many of which are accumulated."""
        model = self.model("Sequential", **({"accumulation_count": count} if count else {}))
        data = self.tf.data.Dataset.from_tensor_slices((column(exact.samples(12)),) * (1 + elements))
        model.compile("sgd", "mse")
        return model.fit(data.batch(1, drop_remainder=True).repeat(repeats), verbose=0, **settings)

    def train(self, kind: str) -> Trained:
        """What a model of the kind gives; each is trained once."""
        trained: Trained = self.keras.once(("legacy", kind), lambda: self._trained(kind))
        return trained

    def _trained(self, kind: str) -> Trained:
        row = KINDS[kind]
        fed = column(exact.samples(row.steps_per_epoch * ACCUMULATION))
        data = self.tf.data.Dataset.from_tensor_slices((fed, fed)).batch(1, drop_remainder=True)
        executions = []
        counting = self.tf.keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: executions.append(batch))
        self.keras.configure(REPLICAS * row.weights)
        with self.ipu.ipu_strategy.IPUStrategy().scope():
            pipeline = {"pipeline_schedule": self.keras.schedule("sequential")} if "Pipeline" in kind else {}
            model = self.model(kind, gradient_accumulation_count=ACCUMULATION, **pipeline)
            model.compile(self.tf.keras.optimizers.SGD(exact.RATE), loss=outputs_alone)
            steps = {"steps_per_epoch": row.steps_per_epoch, "steps_per_run": row.steps_per_run}
            history = model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[counting], **steps).history
            weights = np.ravel(model.get_weights())
            # The model now multiplies by 2 in all: what follows is exact too.
            model.set_weights([np.full((1, 1), 2.0 if place == 0 else 1.0) for place in range(row.weights)])
            few = data.take(ACCUMULATION * REPLICAS)
            evaluation = model.evaluate(few, verbose=0)
            predictions = model.predict(few.map(lambda x, _: x))
        return Trained(weights, history, len(executions), evaluation, predictions)


@pytest.fixture
def old(keras: Keras) -> Old:
    """Builds and trains models of then."""
    return Old(keras)


each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_an_old_model_trains_as_specified(old: Old, kind: str) -> None:
    """Every step adds up the gradients of its mini-batches on every replica; epochs begin with the first element.

    Callbacks are called once for every ``steps_per_run`` steps of all replicas.
    """
    actual = old.train(kind)

    row = KINDS[kind]
    check.equal(actual=actual.executions, expected=EPOCHS * row.runs, what="how often callbacks are called")
    fed = np.tile(exact.samples(row.steps_per_epoch * ACCUMULATION), EPOCHS)
    config = exact.counts(EPOCHS * row.runs * row.steps_per_run, ACCUMULATION, REPLICAS, replica_reduction="sum")
    expected = exact.trained(row.weights, config, fed=fed)
    check.identical(actual=actual.weights, expected=expected.weights, what="the weights")
    losses = expected.losses.astype(np.float64).reshape(EPOCHS, -1)
    # A sum over an epoch, a quotient, and the mean over replicas.
    terms = [Term(np.abs(losses).mean(1), length=losses.shape[1] + 2, where="accumulate")]
    within(np.array(actual.history["loss"], np.float32), losses.mean(1), terms, "the mean losses")


@each_kind
def test_predictions_are_in_the_order_of_the_data(old: Old, kind: str) -> None:
    """Outputs of replicas alternate as their inputs do; an evaluation is a list of the mean loss over all of them."""
    fed = exact.samples(ACCUMULATION * REPLICAS)

    check.identical(actual=old.train(kind).predictions, expected=2 * column(fed), what="the predictions")
    check.equal(actual=old.train(kind).evaluation, expected=[2 * float(np.mean(fed))], what="the evaluation")


def test_arrays_are_cut_to_whole_runs(old: Old, strategy: Any, said: Any) -> None:
    """Arrays are fed in their order; what does not fill a run is dropped with a warning, and metrics are the last's."""
    fed = column(exact.samples(23))
    with strategy.scope():
        model = old.model(accumulation_count=3)
        model.compile(old.tf.keras.optimizers.SGD(exact.RATE), loss=outputs_alone, metrics=["mae"])
        history = model.fit(fed, fed, batch_size=1, steps_per_run=3, verbose=0).history

    # Of 23 mini-batches a run takes three steps of three.
    config = exact.counts(6, 3)
    weights = exact.trained(1, config, fed=fed[:18, 0]).weights
    check.identical(actual=np.ravel(model.get_weights()), expected=weights, what="the weight")
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
        data = tf.data.Dataset.from_tensor_slices((left, right)).batch(2, drop_remainder=True)
        found = model.predict([left, right], batch_size=2) if arrays else model.predict(data)

    check.identical(actual=found, expected=left - right, what="the differences")


def test_a_word_is_an_optimizer_of_then(old: Old, strategy: Any) -> None:
    """The optimizer that a word names is of the generation that Keras calls legacy today."""
    with strategy.scope():
        model = old.model()
        model.compile("adam", "mse")

    kind = type(model.optimizer)
    check.equal(actual=kind, expected=old.tf.keras.optimizers.legacy.Adam, what="the class of the optimizer")


COUNT = "gradient_accumulation_count"
REFUSED: Dict[str, Tuple[Callable[[Old], Any], Type[Exception], str]] = {
    "validation": (lambda old: old.fit(validation_data=1), NotImplementedError, "validation_data"),
    "two names": (lambda old: old.model("Sequential", accumulation_count=2, **{COUNT: 2}), ValueError, "used together"),
    "an unknown argument": (lambda old: old.model(stages=2), TypeError, "stages"),
    "weights of losses": (
        lambda old: old.model().compile("sgd", "mse", loss_weights=0.5), ValueError, "loss_weights",
    ),
    "a batch size": (lambda old: old.fit(batch_size=3), ValueError, "batch_size"),
    "labels twice": (lambda old: old.fit(elements=2), ValueError, "2 element"),
    "no end": (lambda old: old.fit(repeats=-1), ValueError, "steps_per_epoch"),
    "uneven steps": (lambda old: old.fit(steps_per_epoch=7, steps_per_run=3), ValueError, "evenly divisible"),
    "too many steps": (lambda old: old.fit(count=4, steps_per_epoch=5), ValueError, "greater than"),
    "too few mini-batches": (lambda old: old.fit(count=16), ValueError, "must be at least"),
    "uneven mini-batches": (lambda old: old.fit(count=5), ValueError, "evenly divisible"),
    "saving": (lambda old: old.model().save("there"), NotImplementedError, "save"),
    "a call": (lambda old: old.model()(old.tf.ones((3, 1))), ValueError, "can only be called through"),
    "no list": (lambda old: old.ipu.keras.Sequential(old.keras.scale()), ValueError, "list"),
    "no stages": (lambda old: old.ipu.keras.PipelineSequential([old.keras.scale()], 4), ValueError, "list of stages"),
    "no outputs": (lambda old: old.ipu.keras.Model(old.tf.keras.Input((1,))), ValueError, "'outputs'"),
    "no count": (lambda old: old.model("PipelineSequential"), ValueError, COUNT),
    "pieces of mini-batches": (
        lambda old: old.model("PipelineSequential", gradient_accumulation_count=4, batch_serialization_iterations=3),
        NotImplementedError, "batch_serialization_iterations",
    ),
    "layers without a stage": (
        lambda old: old.ipu.keras.PipelineModel(
            *(lambda x: (x, old.keras.scale()(x)))(old.tf.keras.Input((1,))), gradient_accumulation_count=4
        ),
        ValueError, "pipeline stage",
    ),
}  # fmt: skip
"""What the models refuse, with the vendor's kinds of errors."""


@pytest.mark.parametrize("row", REFUSED)
def test_an_old_model_refuses_what_it_refused(old: Old, strategy: Any, row: str) -> None:
    """Earlier SDKs refused some arguments and some data, with errors of their kinds."""
    act, error, message = REFUSED[row]

    with strategy.scope(), check.raises(error, match=message, what=f"{row} with a model of an earlier SDK"):
        act(old)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_an_old_pipeline_accumulates_in_a_dtype(old: Old, dtype: str) -> None:
    """In float16 2048 and three times 1 add up to another number than 2051, which float16 does not have."""
    fed = column(np.array([2048.0, 1.0, 1.0, 1.0]))
    data = old.tf.data.Dataset.from_tensor_slices((fed, fed)).batch(1, drop_remainder=True)
    old.keras.configure(2)
    with old.ipu.ipu_strategy.IPUStrategy().scope():
        model = old.ipu.keras.PipelineSequential(
            [[old.keras.scale()], [old.keras.scale()]],
            gradient_accumulation_count=4,
            gradient_accumulation_dtype=old.tf.as_dtype(dtype),
            pipeline_schedule=old.keras.schedule("sequential"),
        )
        model.compile(old.tf.keras.optimizers.SGD(1.0), loss=outputs_alone)
        model.fit(data, steps_per_epoch=1, verbose=0)
        sums = [1.0 - float(weight) for weight in np.ravel(model.get_weights())]

    reached = [value == 2051.0 for value in sums]
    check.equal(actual=reached, expected=[dtype == "float32"] * 2, what=f"whether sums in {dtype}, {sums}, are 2051")


def test_old_models_need_an_ipu(old: Old) -> None:
    """Outside of a strategy's scope there is no device to run on."""
    with check.raises(ValueError, match="IPU device", what="a fit outside of a scope"):
        old.fit()


@pytest.mark.parametrize("name", ["PipelinedModel", "SequentialPipelineModel"])
def test_even_older_names_are_the_same_models(ipu: Any, name: str) -> None:
    """A pipeline of lists of layers has had three names."""
    check.equal(actual=getattr(ipu.keras, name, None), expected=ipu.keras.PipelineSequential, what=f"ipu.keras.{name}")

"""Exports for TensorFlow Serving: what they hold, what they return, and what is refused.

Signatures and errors are those of the vendor's serving.py.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

X = np.arange(-3, 9, dtype=np.float32).reshape(4, 3)
Y = X[::-1] * 2 + 1


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder that an export may use."""
    return str(tmp_path / "export")


def _spec(tf: Any, dtype: Any = "float32") -> Any:
    return tf.TensorSpec([4, 3], dtype)


def _served(tf: Any, folder: str, *arrays: np.ndarray) -> Any:
    """What the function of a SavedModel returns, by names."""
    signature = tf.saved_model.load(folder).signatures["serving_default"]
    fed = dict(zip(sorted(signature.structured_input_signature[1]), arrays))
    return {name: value.numpy() for name, value in signature(**{name: tf.constant(fed[name]) for name in fed}).items()}


def test_a_step_is_exported_with_the_values_of_now(tf: Any, ipu: Any, strategy: Any, folder: str) -> None:
    """Variables are constants of the export, with the values that they had, and of the function that is returned."""
    with strategy.scope():
        factor = tf.Variable(3.0)
        predict = ipu.serving.export_single_step(lambda a, b: (a * factor, a - b), folder, 16, [_spec(tf), _spec(tf)])
        factor.assign(100.0)

    returned = [value.numpy() for value in predict(tf.constant(X), tf.constant(Y))]
    served = _served(tf, folder, X, Y)
    for number, expected in enumerate((X * 3, X - Y)):
        check.identical(actual=returned[number], expected=expected, what=f"result {number} of the function")
        check.identical(actual=served[f"output_{number}"], expected=expected, what=f"output_{number} of the export")


@pytest.mark.parametrize("way", ["dataset", "function"])
def test_a_signature_is_found(tf: Any, ipu: Any, strategy: Any, folder: str, way: str) -> None:
    """The signature of a step is that of a data set, or that of a tf.function."""
    dataset, step = None, lambda x: x * 2 + 1
    if way == "dataset":
        dataset = tf.data.Dataset.from_tensors(X)
    else:
        step = tf.function(step, input_signature=[_spec(tf)])
    predict = ipu.serving.export_single_step(step, folder, 16, input_dataset=dataset, output_names="y")

    check.identical(actual=predict(tf.constant(X))["y"].numpy(), expected=X * 2 + 1, what="the result by its name")
    check.identical(actual=_served(tf, folder, X)["y"], expected=X * 2 + 1, what="the output by its name")


def test_stages_are_exported_one_behind_the_other(tf: Any, ipu: Any, configure: Any, folder: str) -> None:
    """Stages get what the one before returns, the first one its inputs before what is fed."""
    configure(2)
    stages = [lambda k, x: (x * k, x), lambda a, b: a - b * 2]
    predict = ipu.serving.export_pipeline(stages, folder, 8, [np.float32(5)], predict_step_signature=[_spec(tf)])

    check.identical(actual=predict(tf.constant(X))[0].numpy(), expected=X * 3, what="the result")
    check.identical(actual=_served(tf, folder, X)["output_0"], expected=X * 3, what="the output")


def test_steps_before_and_after_are_exported(tf: Any, ipu: Any, strategy: Any, folder: str) -> None:
    """Preprocessing takes what is fed, postprocessing what the step returns."""
    predict = ipu.serving.export_single_step(
        lambda x: x * 2, folder, 16, [_spec(tf)], output_names=["a", "b"],
        preprocessing_step=lambda n: tf.cast(n, tf.float32) + 1, preprocessing_step_signature=[_spec(tf, "int32")],
        postprocessing_step=lambda y: (y, tf.reduce_sum(y, 1)), postprocessing_step_signature=[_spec(tf)],
    )  # fmt: skip

    expected = (X + 1) * 2
    found = predict(tf.constant(X.astype(np.int32)))
    check.identical(actual=found["a"].numpy(), expected=expected, what="the first result")
    check.identical(actual=found["b"].numpy(), expected=expected.sum(1), what="the second result")


def test_a_keras_model_is_exported(tf: Any, ipu: Any, strategy: Any, folder: str) -> None:
    """A model is exported in inference for batches of one size, by its method and by the function."""
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,)), tf.keras.layers.Dropout(0.5)])
        weight, bias = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([1, -1], np.float32)
        model.set_weights([weight, bias])
        model.compile(steps_per_execution=8)
        predict = ipu.serving.export_keras(model, folder, batch_size=4)
        again = model.export_for_ipu_serving(folder, 4, output_names="y", purge_export_dir=True)

    check.identical(actual=predict(tf.constant(X))[0].numpy(), expected=X @ weight + bias, what="the result")
    check.identical(actual=again(tf.constant(X))["y"].numpy(), expected=X @ weight + bias, what="that of the method")
    check.identical(actual=_served(tf, folder, X)["y"], expected=X @ weight + bias, what="the output")


@pytest.mark.emulator
@pytest.mark.parametrize("known", ["built", "called", "pipelined"])
def test_a_subclassed_model_is_exported(tf: Any, ipu: Any, strategy: Any, folder: str, known: str) -> None:
    """A model that was built, or called, knows its inputs, whether its layers have stages or not."""
    stage = (lambda number: tf.keras.ipu.PipelineStage(number)) if known == "pipelined" else contextlib.nullcontext

    class Doubled(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (tf.keras.layers.Dense(3, kernel_initializer="ones") for _ in "ab")

        def call(self, x: Any) -> Any:
            with stage(0):
                x = self.first(x)
            with stage(1):
                return self.second(x)

    with strategy.scope():
        model = Doubled()
        if known == "called":
            model(tf.constant(X))
        else:
            model.build(X.shape)
        with check.accepted("an export of a subclassed model"):
            model.export_for_ipu_serving(folder, 4, output_names="y")

    expected = X @ np.ones((3, 3)) @ np.ones((3, 3))
    check.identical(actual=_served(tf, folder, X)["y"], expected=expected.astype(np.float32), what="the output")


WRONG = {
    "folder": (ValueError, lambda tf, spec: {}),
    "two-signatures": (ValueError, lambda tf, spec: {"input_dataset": tf.data.Dataset.from_tensors(X)}),
    "no-data-set": (TypeError, lambda tf, spec: {"predict_step_signature": None, "input_dataset": [X]}),
    "no-list": (TypeError, lambda tf, spec: {"predict_step_signature": spec}),
    "empty": (ValueError, lambda tf, spec: {"predict_step_signature": []}),
    "no-specs": (TypeError, lambda tf, spec: {"predict_step_signature": [X]}),
    "no-signature": (ValueError, lambda tf, spec: {"predict_step_signature": None}),
    "too-many": (ValueError, lambda tf, spec: {"predict_step_signature": [spec, spec]}),
    "before-does-not-fit": (
        ValueError,
        lambda tf, spec: {"preprocessing_step": lambda x: x[:, :2], "preprocessing_step_signature": [spec]},
    ),
    "names-of-a-tuple": (TypeError, lambda tf, spec: {"output_names": ("y",)}),
    "names-too-many": (ValueError, lambda tf, spec: {"output_names": ["y", "z"]}),
}
"""Arguments of an export that the vendor refuses, and the error; the folder is one that holds something."""


@pytest.mark.parametrize("name", WRONG)
def test_an_export_that_does_not_fit_is_refused(tf: Any, ipu: Any, strategy: Any, folder: str, name: str) -> None:
    """Folders, signatures and names are checked before anything is written."""
    error, change = WRONG[name]
    if name == "folder":
        (Path(folder) / "held").mkdir(parents=True)
    words = {"export_dir": folder, "predict_step_signature": [_spec(tf)], **change(tf, _spec(tf))}
    with check.raises(error, what=f"an export with {name}"):
        ipu.serving.export_single_step(lambda x: x * 2, iterations=16, **words)


@pytest.mark.parametrize("name", ["host", "no-batch", "not-built"])
def test_a_model_that_cannot_be_exported_is_refused(tf: Any, ipu: Any, strategy: Any, folder: str, name: str) -> None:
    """A model is made in a strategy, is built, and has a batch size."""
    host = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    with strategy.scope():
        shape = {} if name == "not-built" else {"input_shape": (3,)}
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, **shape)])
        with check.raises(ValueError, what=f"an export of a model: {name}"):
            ipu.serving.export_keras(host if name == "host" else model, folder, None if name == "no-batch" else 4)

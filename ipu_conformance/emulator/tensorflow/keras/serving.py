"""Exports of Keras models for TensorFlow Serving."""

from __future__ import annotations

import inspect
from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.refusals import serving as refusals
from ipu_conformance.emulator.tensorflow.run import serving


def export(model: Any, export_dir: str, batch_size: Optional[int], *options: Any) -> Any:
    """Write a SavedModel of a model in inference, for batches of one size."""
    network = _network(model)
    inputs = tf.nest.flatten(network.inputs or [])
    refusals.NOT_BUILT(inputs=inputs)
    refusals.BATCH_SIZE(batch=batch_size, sizes=[tensor.shape[0] for tensor in inputs])
    specs = [
        tf.TensorSpec([batch_size or tensor.shape[0], *tensor.shape[1:]], tensor.dtype, name=tensor.name.split(":")[0])
        for tensor in inputs
    ]

    def predict_step(*fed: Any) -> Any:
        return model(tf.nest.pack_sequence_as(network.input, list(fed)), training=False)

    kind = inspect.Parameter.POSITIONAL_ONLY
    names = (spec.name.replace("/", "_").replace(".", "_") for spec in specs)
    predict_step.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    return serving.export([predict_step], export_dir, None, specs, None, *options)


def _network(model: Any) -> Any:
    """The graph of a subclassed model that was built or called; any other model is its own."""
    subclassed = not model.inputs and model._ipu_input_spec() is not None
    return model._ipu_network() if subclassed else model

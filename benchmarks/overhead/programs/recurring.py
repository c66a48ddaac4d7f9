"""A program that trains an LSTM in a recomputing pipeline: on emulated IPUs, or with ``--plain`` in Keras alone."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import tensorflow as tf

BATCH, STEPS, EPOCHS, ACCUMULATION, FEATURES, UNITS = 16, 32, 4, 8, 24, 64


def samples(length: int) -> Any:
    """Sequences without meaning, and their classes."""
    random = np.random.default_rng(0)
    count = BATCH * STEPS
    sequences = random.standard_normal((count, length, FEATURES), np.float32)
    labels = random.integers(0, 10, count).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((sequences, labels)).batch(BATCH, drop_remainder=True).cache().repeat()


def network(length: int) -> Any:
    """An LSTM and a classifier."""
    keras = tf.keras.layers
    return tf.keras.Sequential(
        [keras.Input((length, FEATURES), BATCH), keras.LSTM(UNITS), keras.Dense(10, activation="softmax")]
    )


def train(model: Any, length: int) -> None:
    """Compile and fit."""
    model.compile(tf.keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", steps_per_execution=STEPS)
    model.fit(samples(length), steps_per_epoch=STEPS, epochs=EPOCHS, verbose=0)


def emulated(length: int) -> None:
    """Train in a pipeline of two stages, which recomputes the first."""
    from tensorflow.python import ipu

    options = ipu.config.IPUConfig()
    options.auto_select_ipus = 2
    options.allow_recompute = True
    options.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategyV1().scope():
        model = network(length)
        assignments = model.get_pipeline_stage_assignment()
        for stage, assignment in enumerate(assignments):
            assignment.pipeline_stage = stage
        model.set_pipeline_stage_assignment(assignments)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=ACCUMULATION)
        train(model, length)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--length", type=int, default=32, help="steps of a sequence (%(default)s)")
    args = parser.parse_args()
    if args.plain:
        train(network(args.length), args.length)
    else:
        emulated(args.length)

"""Trains a Keras pipeline on two IPUs, as programs of SDK 1.4 did: ``ipu.keras`` has the model, a list of stages."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

options = ipu.utils.create_ipu_config()
options = ipu.utils.auto_select_ipus(options, 2)
ipu.utils.configure_ipu_system(options)

x = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, x)).batch(1, drop_remainder=True)

strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    model = ipu.keras.PipelineSequential(
        [
            [keras.layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(2.0))],
            [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")],
        ],
        gradient_accumulation_count=4,
    )
    model.compile(keras.optimizers.SGD(1 / 64), loss=lambda labels, outputs: outputs)
    history = model.fit(dataset.repeat(), epochs=2, steps_per_epoch=1, verbose=0)
    print("losses", *history.history["loss"])
    print("weights", *np.ravel(model.get_weights()).tolist())
    print("evaluation", *model.evaluate(dataset, verbose=0))

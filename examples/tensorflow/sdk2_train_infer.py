"""Trains a Keras model on an IPU, saves it, and predicts with the saved one, as programs of SDK 2.x do."""

import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()

x = np.array([[1.0], [2.0], [1.0], [2.0]], np.float32)
data = tf.data.Dataset.from_tensor_slices((x, 3 * x)).batch(1, drop_remainder=True)

with tempfile.TemporaryDirectory() as folder:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,))])
        model.compile(keras.optimizers.SGD(1 / 16), "mse", steps_per_execution=4)
        model.fit(data, verbose=0)
        model.save(folder)

    with strategy.scope():
        restored = keras.models.load_model(folder)
        predictions = restored.predict(np.array([[1.0], [4.0]], np.float32), batch_size=1, verbose=0)

print("weight", model.get_weights()[0].item())
print("predictions", *np.ravel(predictions).tolist())

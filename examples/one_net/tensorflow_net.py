"""The same two dense layers with Keras: writes tensorflow.pb, the frozen graph of the model.

Run it with ``ipu-conformance emulate examples/one_net/tensorflow_net.py``.
"""

import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

BATCH = 2


def main():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    initializer = tf.keras.initializers.GlorotUniform  # with a seed it draws the same weights in every run
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((3,), name="x"),
                tf.keras.layers.Dense(4, activation="relu", kernel_initializer=initializer(1), name="hidden"),
                tf.keras.layers.Dense(2, kernel_initializer=initializer(2), name="last"),
            ]
        )
    function = tf.function(model).get_concrete_function(tf.TensorSpec((BATCH, 3), tf.float32, name="x"))
    frozen = convert_variables_to_constants_v2(function)
    tf.io.write_graph(frozen.graph, ".", "tensorflow.pb", as_text=False)
    print("The model has", model.count_params(), "weights")


if __name__ == "__main__":
    main()

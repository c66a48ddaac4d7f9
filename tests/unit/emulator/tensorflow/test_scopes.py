"""Where the emulator puts what is made in the scope of a device."""

from __future__ import annotations

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.compile import scopes

v1 = tf.compat.v1


def test_the_host_holds_variables() -> None:
    """Operations ask for the device and variables for the host, so that no session warns of moving them."""
    with tf.Graph().as_default(), scopes.ipu_scope("/device:IPU:1"):
        weight = v1.get_variable("weight", [2])
        product = weight * 2.0

    assert weight.handle.device == "/device:CPU:0"
    assert product.device == "/device:IPU:1"


def test_a_device_that_is_named_inside_stays() -> None:
    """An inner device comes before that of the scope, for variables too."""
    with tf.Graph().as_default(), scopes.ipu_scope("/device:IPU:1"), tf.device("/device:CPU:3"):
        weight = v1.get_variable("weight", [2])

    assert weight.handle.device == "/device:CPU:3"

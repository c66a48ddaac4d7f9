"""Trains one weight on one IPU, as programs of SDK 1.x did: a session, an infeed, a loop on the device, an outfeed."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

tf.disable_v2_behavior()
STEPS, RATE = 3, 1 / 16

x = np.array([[1.0], [2.0], [1.0]], np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, 3 * x)).repeat().batch(1, drop_remainder=True)
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset, feed_name="training_data")
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_name="losses")


def step(features, labels):
    with tf.variable_scope("model", use_resource=True, reuse=tf.AUTO_REUSE):
        weight = tf.get_variable("weight", shape=[1, 1], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, weight) - labels))
    train = tf.train.GradientDescentOptimizer(RATE).minimize(loss)
    with tf.control_dependencies([train]):
        return outfeed.enqueue(loss)


def training_loop():
    return ipu.loops.repeat(STEPS, step, [], infeed)


with ipu.scopes.ipu_scope("/device:IPU:0"):
    compiled = ipu.ipu_compiler.compile(training_loop, inputs=[])
losses = outfeed.dequeue()
weight = tf.global_variables()[0]

options = ipu.utils.create_ipu_config(profiling=False, use_poplar_text_report=False)
options = ipu.utils.set_ipu_model_options(options, compile_ipu_code=False)
options = ipu.utils.set_floating_point_behaviour_options(options, esr=False)
options = ipu.utils.set_matmul_options(options, {"availableMemoryProportion": "0.3"})
options = ipu.utils.auto_select_ipus(options, num_ipus=1)
ipu.utils.configure_ipu_system(options)
ipu.utils.move_variable_initialization_to_cpu()

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(infeed.initializer)
    session.run(compiled)
    print("losses", *np.ravel(session.run(losses)).tolist())
    print("weight", session.run(weight).item())

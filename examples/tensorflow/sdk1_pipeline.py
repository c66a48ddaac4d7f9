"""Trains two stages on two IPUs, as programs of SDK 1.x did: four micro-batches are the depth of the pipeline."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

tf.disable_v2_behavior()
DEPTH, RUNS, RATE = 4, 2, 1 / 64

samples = np.arange(1, DEPTH + 1, dtype=np.float32)
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(samples).repeat(), feed_name="in")
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_name="out")


def multiply(name, x, start):
    with tf.variable_scope(name, use_resource=True):
        return x * tf.get_variable("weight", initializer=start)


def first_stage(x):
    return multiply("first", x, 2.0)


def second_stage(x):
    return multiply("second", x, 1.0)


def optimizer(loss):
    return ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(RATE), loss)


def training():
    return ipu.pipelining_ops.pipeline(
        [first_stage, second_stage],
        pipeline_depth=DEPTH,
        repeat_count=RUNS,
        infeed_queue=infeed,
        outfeed_queue=outfeed,
        optimizer_function=optimizer,
        pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Grouped,
    )


with ipu.scopes.ipu_scope("/device:IPU:0"):
    compiled = ipu.ipu_compiler.compile(training, inputs=[])
losses = outfeed.dequeue()

options = ipu.utils.create_ipu_config(profiling=True, profile_execution=True)
options = ipu.utils.auto_select_ipus(options, [2])
options = ipu.utils.set_recomputation_options(options)
ipu.utils.configure_ipu_system(options)

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(infeed.initializer)
    session.run(compiled)
    print("losses", *np.ravel(session.run(losses)).tolist())
    print("weights", *np.ravel(session.run(tf.global_variables())).tolist())

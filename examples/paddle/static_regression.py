"""A regression on two IPUs in the style of Paddle 2: a pipeline is trained, saved, and asked by a predictor.

ipu-conformance emulate examples/paddle/static_regression.py train model
ipu-conformance emulate examples/paddle/static_regression.py infer model
"""

import sys

import numpy as np
import paddle
from paddle import inference, static

FEATURES, BATCH, BATCHES, STEPS = 4, 5, 3, 20
SLOPES = np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")


def samples(count, seed):
    """Samples, and what a linear rule makes of them."""
    x = np.random.RandomState(seed).uniform(-1, 1, (count, FEATURES)).astype("float32")
    return x, x @ SLOPES


def train(folder):
    """Train a pipeline of two stages on accumulated gradients, and save its forward pass."""
    paddle.seed(7)
    x = static.data("x", [None, FEATURES], "float32")
    y = static.data("y", [None, 1], "float32")
    with static.ipu_shard_guard(index=0, stage=0):
        hidden = static.nn.fc(x, 16, activation="tanh")
    with static.ipu_shard_guard(index=1, stage=1):
        out = static.nn.fc(hidden, 1)
        loss = paddle.mean(paddle.square(out - y))
    paddle.optimizer.Adam(learning_rate=0.05).minimize(loss)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())

    strategy = static.IpuStrategy()
    strategy.set_graph_config(num_ipus=2, is_training=True, micro_batch_size=BATCH, enable_manual_shard=True)
    strategy.set_pipelining_config(
        enable_pipelining=True, enable_gradient_accumulation=True, accumulation_factor=BATCHES
    )
    compiled = static.IpuCompiledProgram(static.default_main_program(), ipu_strategy=strategy)
    program = compiled.compile([x.name, y.name], [loss.name])
    for step in range(STEPS):
        fed = dict(zip((x.name, y.name), samples(BATCH * BATCHES, step)))
        (losses,) = executor.run(program, feed=fed, fetch_list=[loss])
        if step in (0, STEPS - 1):
            print("step", step, "loss", round(float(losses.mean()), 3))
    compiled._backend.weights_to_host()
    static.save_inference_model(f"{folder}/regression", [x], [out], executor, program=program.org_program)


def infer(folder):
    """Ask a predictor on one IPU."""
    config = inference.Config(f"{folder}/regression.pdmodel", f"{folder}/regression.pdiparams")
    config.enable_ipu(ipu_device_num=1, ipu_micro_batch_size=BATCH)
    predictor = inference.create_predictor(config)
    x, y = samples(BATCH, 100)
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(x)
    predictor.run()
    out = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    print("mean squared error below that of zeros:", bool(((out - y) ** 2).mean() < (y**2).mean()))


if __name__ == "__main__":
    paddle.enable_static()
    {"train": train, "infer": infer}[sys.argv[1]](sys.argv[2])

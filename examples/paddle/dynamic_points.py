"""A classifier in the style of Paddle's later age: a dynamic model is trained on the IPU, saved, and asked there.

ipu-conformance emulate examples/paddle/dynamic_points.py train model
ipu-conformance emulate examples/paddle/dynamic_points.py infer model
"""

import os
import sys

import numpy as np
import paddle
from paddle import inference

FEATURES, CLASSES, BATCH, FACTOR, STEPS = 4, 3, 5, 2, 25


def points(count, seed):
    """Points, and which of three directions each lies in."""
    random = np.random.RandomState(seed)
    label = random.randint(0, CLASSES, count)
    x = random.uniform(-0.3, 0.3, (count, FEATURES))
    x[np.arange(count), label] += 1
    return x.astype("float32"), label.astype("int64")


class Classifier(paddle.nn.Layer):
    """Two layers; with labels it gives the loss too."""

    def __init__(self):
        super().__init__()
        self.hidden = paddle.nn.Linear(FEATURES, 12)
        self.out = paddle.nn.Linear(12, CLASSES)

    def forward(self, x, label=None):
        scores = self.out(paddle.nn.functional.relu(self.hidden(x)))
        if label is None:
            return scores
        loss = paddle.nn.functional.cross_entropy(scores, label, reduction="none")
        return scores, paddle.incubate.identity_loss(loss, "mean")


def train(folder):
    """Train by calls of the model: each is forward, backward and an update on accumulated gradients."""
    paddle.seed(3)
    x = paddle.static.InputSpec([BATCH, FEATURES], "float32", "x")
    label = paddle.static.InputSpec([BATCH], "int64", "label")
    model = paddle.jit.to_static(Classifier(), input_spec=[x, label])
    optimizer = paddle.optimizer.Adam(learning_rate=0.05, parameters=model.parameters())
    paddle.set_device("ipu")
    strategy = paddle.static.IpuStrategy()
    strategy.set_graph_config(num_ipus=1, is_training=True, micro_batch_size=BATCH)
    strategy.set_options({"enable_gradient_accumulation": True, "accumulation_factor": FACTOR})
    strategy.set_optimizer(optimizer)
    for step in range(STEPS):
        batch, labels = points(BATCH * FACTOR, step)
        _, loss = model(paddle.to_tensor(batch), paddle.to_tensor(labels))
        if step in (0, STEPS - 1):
            print("step", step, "loss", round(float(loss.numpy().mean()), 3))
    paddle.base.core.IpuBackend.get_instance().weights_to_host()
    strategy.release_patch()
    os.makedirs(folder, exist_ok=True)
    paddle.save(model.state_dict(), f"{folder}/points.pdparams")


def infer(folder):
    """Load the weights, save the model for inference, and ask a predictor on the IPU."""
    model = Classifier()
    model.set_state_dict(paddle.load(f"{folder}/points.pdparams"))
    model.eval()
    spec = [paddle.static.InputSpec([BATCH, FEATURES], "float32", "x")]
    paddle.jit.save(paddle.jit.to_static(model, input_spec=spec), f"{folder}/points")
    config = inference.Config(f"{folder}/points.pdmodel", f"{folder}/points.pdiparams")
    config.enable_ipu(ipu_device_num=1, ipu_micro_batch_size=BATCH)
    predictor = inference.create_predictor(config)
    x, label = points(BATCH, 100)
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(x)
    predictor.run()
    scores = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    print("recognised", int((scores.argmax(1) == label).sum()), "of", BATCH)


if __name__ == "__main__":
    {"train": train, "infer": infer}[sys.argv[1]](sys.argv[2])

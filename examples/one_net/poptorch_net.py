"""Two dense layers on two IPUs with PopTorch: writes inference.onnx, training.onnx and inputs.npz.

Run it with ``ipu-conformance emulate examples/one_net/poptorch_net.py``.
"""

import os

import numpy as np
import poptorch
import torch

BATCH, BATCHES, ACCUMULATION = 2, 1, 3


class Net(torch.nn.Module):
    """Three numbers in, two scores out; given labels, it also returns its loss."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(3, 4)
        self.last = torch.nn.Linear(4, 2)

    def forward(self, x, labels=None):
        with poptorch.Block("hidden", ipu_id=0):
            x = torch.relu(self.hidden(x))
        with poptorch.Block("last", ipu_id=1):
            scores = self.last(x)
            return scores if labels is None else (scores, torch.nn.functional.cross_entropy(scores, labels))


def main():
    torch.manual_seed(2021)
    net = Net()
    samples, labels = torch.randn(BATCH * ACCUMULATION, 3), torch.tensor([0, 1, 1, 0, 1, 0])

    os.environ["POPTORCH_EXPORT_PROTO_FILE"] = "inference.onnx"
    poptorch.inferenceModel(net, poptorch.Options().deviceIterations(ACCUMULATION)).compile(samples)

    os.environ["POPTORCH_EXPORT_PROTO_FILE"] = "training.onnx"
    options = poptorch.Options()
    options.Training.gradientAccumulation(ACCUMULATION)
    held = {name: value.detach().clone().numpy() for name, value in net.named_parameters()}
    trainer = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.5))
    trainer(samples, labels)
    trainer.copyWeightsToHost()

    streams = (BATCHES, ACCUMULATION, 1, BATCH)
    fed = {"tensors_0": samples.numpy().reshape(*streams, 3), "tensors_1": labels.numpy().reshape(streams)}
    np.savez("inputs.npz", **fed, **held)
    print("The device trained hidden.bias to", *(f"{value:.4f}" for value in net.hidden.bias.tolist()))


if __name__ == "__main__":
    main()

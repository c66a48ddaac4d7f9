"""The small nets, each for one thing that training can get wrong."""

from __future__ import annotations

from ipu_conformance.nets.chain import Chain
from ipu_conformance.nets.net import Net


def linear() -> Net:
    """One linear layer: nothing can hide in it."""
    chain = Chain()
    chain.linear("fc1", 6, 5)
    return chain.net("linear", (6,), 5)


def mlp() -> Net:
    """Four linear layers with smooth and kinked activations between them."""
    chain = Chain()
    for number, (sizes, activation) in enumerate([((6, 10), "tanh"), ((10, 9), "relu"), ((9, 8), "tanh")], 1):
        chain.linear(f"fc{number}", *sizes)
        chain.add(f"act{number}", activation)
    chain.linear("fc4", 8, 5)
    return chain.net("mlp", (6,), 5)


def convnet() -> Net:
    """Two convolutions, a maximum and an average pool, two linear layers."""
    chain = Chain()
    chain.conv("conv1", 2, 4)
    chain.add("act1", "relu")
    chain.add("pool1", "max_pool", kernel=2, stride=2)
    chain.conv("conv2", 4, 3)
    chain.add("act2", "tanh")
    chain.add("pool2", "avg_pool", kernel=2, stride=2)
    chain.add("flat", "flatten", start=1, stop=-1)
    chain.linear("fc1", 12, 7)
    chain.add("act3", "relu")
    chain.linear("fc2", 7, 5)
    return chain.net("convnet", (2, 8, 8), 5)


def bn_convnet() -> Net:
    """Two convolutions, each followed by batch norm: statistics are those of a micro-batch on a replica."""
    # No bias before batch norm: its gradient is zero, and Adam would blow the rounding errors of zero up to full steps.
    chain = Chain()
    chain.conv("conv1", 2, 4, bias=False)
    chain.batch_norm("bn1", 4)
    chain.add("act1", "relu")
    chain.conv("conv2", 4, 3, bias=False)
    chain.batch_norm("bn2", 3)
    chain.add("act2", "relu")
    chain.add("pool2", "avg_pool", kernel=2, stride=2)
    chain.add("flat", "flatten", start=1, stop=-1)
    chain.linear("fc1", 27, 7)
    chain.add("act3", "tanh")
    chain.linear("fc2", 7, 5)
    return chain.net("bn_convnet", (2, 6, 6), 5)


def residual() -> Net:
    """Two skips from one place; in three stages one of them passes through a stage that does not use it."""
    chain = Chain()
    chain.conv("conv1", 2, 3)
    chain.add("act1", "tanh")
    chain.conv("conv2", 3, 3)
    chain.add("add1", "add", "act1")
    chain.add("act2", "relu")
    chain.conv("conv3", 3, 3)
    chain.add("add2", "add", "act1")
    chain.add("flat", "flatten", start=1, stop=-1)
    chain.linear("fc1", 75, 5)
    return chain.net("residual", (2, 5, 5), 5)


def dropout_net() -> Net:
    """Three linear layers with two dropouts of different rates."""
    chain = Chain()
    chain.linear("fc1", 6, 16)
    chain.add("act1", "tanh")
    chain.add("drop1", "dropout", rate=0.5)
    chain.linear("fc2", 16, 12)
    chain.add("act2", "relu")
    chain.add("drop2", "dropout", rate=0.25)
    chain.linear("fc3", 12, 5)
    return chain.net("dropout_net", (6,), 5)


def tied_weights() -> Net:
    """Two linear layers that use one weight: its gradient is the sum of both uses."""
    chain = Chain()
    chain.linear("fc1", 6, 8)
    chain.add("act1", "tanh")
    chain.linear("fc2", 8, 8, shared="tied")
    chain.add("act2", "tanh")
    chain.linear("fc3", 8, 8, shared="tied")
    chain.add("act3", "relu")
    chain.linear("fc4", 8, 5)
    return chain.net("tied_weights", (6,), 5)

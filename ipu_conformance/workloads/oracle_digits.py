"""Nets that the oracle trains on synthetic digits: workloads whose convergence can be recorded on any machine.

They need no framework and no download.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from ipu_conformance.nets import INPUT, Data, Layer, Net, Weight, generator
from ipu_conformance.oracle.training.train import infer, train
from ipu_conformance.run import Array, RunConfig, RunRecord, learning_rate, optimizer

DATA_SET = "synthetic-digits"
CLASSES = 10
SIDE = 14
"""Images are averaged over 2 x 2 pixels to this side: the oracle is exact, not fast."""


@dataclass(frozen=True)
class OracleWorkload:
    """A net trained by the oracle on synthetic digits; its metric is the test accuracy after each epoch."""

    name: str
    make_net: Callable[[], Net]
    epochs: int
    train: int
    test: int
    batch: int
    rate: float
    momentum: float

    metric = "test accuracy"

    @property
    def budget(self) -> Mapping[str, Any]:
        """All that the values depend on besides the seed."""
        return {
            "data": DATA_SET,
            "net": self.make_net().name,
            "epochs": self.epochs,
            "train": self.train,
            "test": self.test,
            "batch": self.batch,
            "rate": self.rate,
            "momentum": self.momentum,
        }

    def config(self, **changes: Any) -> RunConfig:
        """The configuration of a run; one of its steps is an epoch, so that a record holds the weights after each."""
        config = RunConfig(
            device_iterations=self.train // self.batch,
            micro_batch=self.batch,
            steps=self.epochs,
            optimizer=optimizer("sgd", momentum=self.momentum),
            learning_rate=learning_rate("constant", base=self.rate),
        )
        return replace(config, **changes)

    def __call__(self, seed: int) -> Sequence[float]:
        """The test accuracy after each epoch; the seed chooses the initial weights and the order of the samples."""
        return self.accuracies(train, self.config(seed=seed))

    def accuracies(self, train: Callable[[Net, Data, RunConfig], RunRecord], config: RunConfig) -> List[float]:
        """The test accuracy after each epoch when ``train`` trains the net."""
        from ipu_conformance.data import load

        net, digits = self.make_net(), load(DATA_SET, train=self.train, test=self.test)
        inputs, tests = (_images(split.images, net) for split in (digits.train, digits.test))
        labels, answers = (split.labels.astype(np.int64) for split in (digits.train, digits.test))
        random = generator(config.seed, "order", self.name)
        orders = np.stack([random.permutation(self.train)[: config.combined_batch] for _ in range(config.steps)])
        record = train(net, Data(inputs[orders], labels[orders]), config)
        return [_accuracy(net, weights, tests, answers) for weights in record.weights_by_step or ()]


def _accuracy(net: Net, weights: Mapping[str, Array], inputs: Array, labels: Array) -> float:
    config = RunConfig(micro_batch=len(labels), training=False)
    outputs = infer(net, Data(inputs[np.newaxis], labels[np.newaxis]), config, weights=weights).outputs
    assert outputs is not None
    return float(np.mean(outputs[0].argmax(axis=-1) == labels))


def _images(images: Array, net: Net) -> Array:
    """uint8 [N, 28, 28, 1] as float64 in 0..1, averaged over 2 x 2 pixels, in the shape of the net's input."""
    small = images.reshape(-1, SIDE, 2, SIDE, 2).mean(axis=(2, 4)) / 255.0
    return small.reshape(-1, *net.input_shape)


def _net(name: str, input_shape: Tuple[int, ...], layers: Sequence[Layer], weights: Sequence[Weight]) -> Net:
    return Net(name, input_shape, CLASSES, tuple(layers), tuple(weights))


def _linear_weights(name: str, inputs: int, outputs: int) -> List[Weight]:
    return [Weight(f"{name}.weight", (outputs, inputs), inputs), Weight(f"{name}.bias", (outputs,), inputs)]


def digits_mlp() -> Net:
    """196 pixels, 24 hidden units, 10 classes."""
    hidden = 24
    layers = [
        Layer("fc1", "linear", (INPUT,), ("fc1.weight", "fc1.bias")),
        Layer("act1", "relu", ("fc1",)),
        Layer("fc2", "linear", ("act1",), ("fc2.weight", "fc2.bias")),
    ]
    weights = _linear_weights("fc1", SIDE * SIDE, hidden) + _linear_weights("fc2", hidden, CLASSES)
    return _net("digits_mlp", (SIDE * SIDE,), layers, weights)


def digits_convnet() -> Net:
    """One convolution of 6 channels, a maximum pool of 2, one linear layer."""
    channels = 6
    layers = [
        Layer("conv1", "conv", (INPUT,), ("conv1.weight", "conv1.bias"), (("padding", 1),)),
        Layer("act1", "relu", ("conv1",)),
        Layer("pool1", "max_pool", ("act1",), (), (("kernel", 2), ("stride", 2))),
        Layer("flat", "flatten", ("pool1",), (), (("start", 1), ("stop", -1))),
        Layer("fc1", "linear", ("flat",), ("fc1.weight", "fc1.bias")),
    ]
    weights = [Weight("conv1.weight", (channels, 1, 3, 3), 9), Weight("conv1.bias", (channels,), 9)]
    weights += _linear_weights("fc1", channels * (SIDE // 2) ** 2, CLASSES)
    return _net("digits_convnet", (1, SIDE, SIDE), layers, weights)


WORKLOADS: Dict[str, OracleWorkload] = {
    workload.name: workload
    for workload in (
        OracleWorkload("oracle-mlp", digits_mlp, epochs=4, train=6000, test=2000, batch=20, rate=0.02, momentum=0.9),
        OracleWorkload(
            "oracle-convnet", digits_convnet, epochs=3, train=1000, test=1000, batch=20, rate=0.02, momentum=0.9
        ),
    )
}
"""The workloads by the names of their baselines."""

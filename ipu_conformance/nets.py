"""The small nets of the suite as data: layers, weights and inputs that every framework builds the same way.

Conventions: images are NCHW, convolution weights are [out, in, height, width], linear weights are [out, in] (the output
is x W^T + b), labels are class numbers. The net's value is its logits; the loss is the mean softmax cross entropy of a
micro-batch. Initial weights and inputs are exact in float16, so that no dtype begins with a rounding.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Tuple

import numpy as np

from ipu_conformance.run import Array, RunConfig, RunError, Settings

INPUT = "input"
"""The name that layers use for the net's input."""


@dataclass(frozen=True)
class Weight:
    """A trained tensor: its name, its shape and how it begins (uniform with ``fan_in``, or constant when that is 0)."""

    name: str
    shape: Tuple[int, ...]
    fan_in: int = 0
    constant: float = 0.0


@dataclass(frozen=True)
class Layer:
    """One op of a net, named as in the table of ops; its value carries the layer's name."""

    name: str
    op: str
    inputs: Tuple[str, ...]
    weights: Tuple[str, ...] = ()
    settings: Settings = ()
    cut_before: bool = False
    """Is this a natural place to begin a pipeline stage?"""

    @property
    def attributes(self) -> Dict[str, Any]:
        return dict(self.settings)


@dataclass(frozen=True)
class Net:
    """A net as data; the last layer's value is the logits."""

    name: str
    input_shape: Tuple[int, ...]
    classes: int
    layers: Tuple[Layer, ...]
    weights: Tuple[Weight, ...]
    statistics: Tuple[Weight, ...] = ()
    """Running statistics of batch norm; they are not trained."""
    loss: str = "cross_entropy_loss"
    loss_settings: Settings = (("reduction", "mean"),)
    labelled: bool = True
    """Does the loss take the labels, or the net's value alone?"""

    def __str__(self) -> str:
        return self.name

    def initial_weights(self, seed: int) -> Dict[str, Array]:
        """The weights at the start, a function of ``seed`` and of each weight's name alone."""
        return {weight.name: _initial(weight, seed) for weight in self.weights}

    def initial_statistics(self) -> Dict[str, Array]:
        """The running statistics at the start: mean 0, variance 1."""
        return {weight.name: np.full(weight.shape, weight.constant) for weight in self.statistics}

    def cut(self, stages: int) -> Tuple[int, ...]:
        """The stage of each layer when the net is cut, at natural places, into ``stages`` nearly equal pieces."""
        places = [number for number, layer in enumerate(self.layers) if layer.cut_before]
        if not 1 <= stages <= len(places) + 1:
            raise RunError(f"{self.name} cannot be cut into {stages} stages: give 1 to {len(places) + 1}.")
        chosen = [places[(piece + 1) * (len(places) + 1) // stages - 1] for piece in range(stages - 1)]
        return tuple(sum(number >= place for place in chosen) for number in range(len(self.layers)))


@dataclass(frozen=True)
class Data:
    """The feed of each step: ``inputs[step]`` is one combined batch, ``labels[step]`` its class numbers."""

    inputs: Array
    labels: Array


def generator(seed: int, *key: Any) -> np.random.Generator:
    """A Philox generator of its own for each ``seed`` and key."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, zlib.crc32(repr(key).encode())])))


def distinct_micro_batches(net: Net, config: RunConfig, seed: int = 2021) -> Data:
    """Random data for all steps of a run, in which every micro-batch differs from every other."""
    samples = (config.steps, config.combined_batch)
    random = generator(seed, "data", net.name)
    inputs = _float16_exact(random.standard_normal(samples + net.input_shape))
    return Data(inputs, random.integers(0, net.classes, samples))


def _initial(weight: Weight, seed: int) -> Array:
    if not weight.fan_in:
        return np.full(weight.shape, weight.constant)
    # Wide enough (a gain of two) that signals and gradients of the deepest net neither vanish nor blow up.
    bound = 2.0 / np.sqrt(weight.fan_in)
    return _float16_exact(generator(seed, "weight", weight.name).uniform(-bound, bound, weight.shape))


def _float16_exact(values: Array) -> Array:
    return values.astype(np.float16).astype(np.float64)


class _Chain:
    """Builds a net layer by layer; by default a layer reads the value before it."""

    def __init__(self) -> None:
        self.layers: Tuple[Layer, ...] = ()
        self.weights: Dict[str, Weight] = {}
        self.statistics: Tuple[Weight, ...] = ()
        self.last = INPUT

    def add(
        self, name: str, op: str, *others: str, weights: Tuple[str, ...] = (), cut: bool = False, **settings: Any
    ) -> None:
        row = Layer(name, op, (self.last, *others), weights, tuple(settings.items()), cut and bool(self.layers))
        self.layers, self.last = (*self.layers, row), name

    def linear(self, name: str, inputs: int, outputs: int, shared: str = "") -> None:
        weight, bias = f"{shared or name}.weight", f"{name}.bias"
        self.weights[weight] = Weight(weight, (outputs, inputs), inputs)
        self.weights[bias] = Weight(bias, (outputs,), inputs)
        self.add(name, "linear", weights=(weight, bias), cut=True)

    def conv(self, name: str, inputs: int, outputs: int, bias: bool = True) -> None:
        fan_in = inputs * 3 * 3
        rows = [Weight(f"{name}.weight", (outputs, inputs, 3, 3), fan_in), Weight(f"{name}.bias", (outputs,), fan_in)]
        rows = rows[: 1 + bias]
        self.weights.update((row.name, row) for row in rows)
        self.add(name, "conv", weights=tuple(row.name for row in rows), cut=True, padding=1)

    def batch_norm(self, name: str, channels: int) -> None:
        self.weights[f"{name}.weight"] = Weight(f"{name}.weight", (channels,), constant=1.0)
        self.weights[f"{name}.bias"] = Weight(f"{name}.bias", (channels,))
        self.statistics += (
            Weight(f"{name}.running_mean", (channels,)),
            Weight(f"{name}.running_var", (channels,), constant=1.0),
        )
        self.add(name, "batch_norm", weights=(f"{name}.weight", f"{name}.bias"), momentum=0.1, epsilon=1e-5)

    def net(self, name: str, input_shape: Tuple[int, ...], classes: int) -> Net:
        return Net(name, input_shape, classes, self.layers, tuple(self.weights.values()), self.statistics)


def linear() -> Net:
    """One linear layer: nothing can hide in it."""
    chain = _Chain()
    chain.linear("fc1", 6, 5)
    return chain.net("linear", (6,), 5)


def mlp() -> Net:
    """Four linear layers with smooth and kinked activations between them."""
    chain = _Chain()
    for number, (sizes, activation) in enumerate([((6, 10), "tanh"), ((10, 9), "relu"), ((9, 8), "tanh")], 1):
        chain.linear(f"fc{number}", *sizes)
        chain.add(f"act{number}", activation)
    chain.linear("fc4", 8, 5)
    return chain.net("mlp", (6,), 5)


def convnet() -> Net:
    """Two convolutions, a maximum and an average pool, two linear layers."""
    chain = _Chain()
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
    chain = _Chain()
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
    chain = _Chain()
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
    chain = _Chain()
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
    chain = _Chain()
    chain.linear("fc1", 6, 8)
    chain.add("act1", "tanh")
    chain.linear("fc2", 8, 8, shared="tied")
    chain.add("act2", "tanh")
    chain.linear("fc3", 8, 8, shared="tied")
    chain.add("act3", "relu")
    chain.linear("fc4", 8, 5)
    return chain.net("tied_weights", (6,), 5)


NETS: Mapping[str, Callable[[], Net]] = {
    maker.__name__: maker for maker in (linear, mlp, convnet, bn_convnet, residual, dropout_net, tied_weights)
}
"""Every net by its name."""

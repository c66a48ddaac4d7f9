"""A net as data: layers, weights and inputs that every framework builds the same way.

Conventions: images are NCHW, sequences [step, feature], convolution weights are [out, in, height, width] and those of
transposed ones [in, out, height, width], linear weights are [out, in] (the output is x W^T + b), labels are class
numbers. The net's value is its logits, with the classes on axis 1; the loss is the mean softmax cross entropy of a
micro-batch. Initial weights and inputs are exact in float16, so that no dtype begins with a rounding.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Dict, Tuple

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
    tokens: int = 0
    """Inputs are token numbers below this; 0 if they are real numbers."""
    label_shape: Tuple[int, ...] = ()
    """The shape of a sample's labels: empty for one label, that of an image for one at each pixel."""

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
    """The feed of each step: ``inputs[step]`` is one combined batch, ``labels[step]`` its class numbers.

    Inputs are float64, or int64 if they are tokens.
    """

    inputs: Array
    labels: Array


def generator(seed: int, *key: Any) -> np.random.Generator:
    """A Philox generator of its own for each ``seed`` and key."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, zlib.crc32(repr(key).encode())])))


def distinct_micro_batches(net: Net, config: RunConfig, seed: int = 2021) -> Data:
    """Random data for all steps of a run, in which every micro-batch differs from every other."""
    samples = (config.steps, config.combined_batch)
    random = generator(seed, "data", net.name)
    if net.tokens:
        inputs = random.integers(0, net.tokens, samples + net.input_shape)
    else:
        inputs = _float16_exact(random.standard_normal(samples + net.input_shape))
    return Data(inputs, random.integers(0, net.classes, samples + net.label_shape))


def _initial(weight: Weight, seed: int) -> Array:
    if not weight.fan_in:
        return np.full(weight.shape, weight.constant)
    # Wide enough (a gain of two) that signals and gradients of the deepest net neither vanish nor blow up.
    bound = 2.0 / np.sqrt(weight.fan_in)
    return _float16_exact(generator(seed, "weight", weight.name).uniform(-bound, bound, weight.shape))


def _float16_exact(values: Array) -> Array:
    return values.astype(np.float16).astype(np.float64)

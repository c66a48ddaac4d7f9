"""Random rounding: what the arithmetic of a device at some precision may do to the result of an op.

A result that is stored is rounded to one of its two neighbours, the nearer with the higher probability (stochastic
rounding): what is exact stays exact, and the error has mean zero. It is also exactly what a device does whose
stochastic rounding is on. A sum of K products whose partial sums are rounded gathers an error that grows like a random
walk, for any order of summation at most by the one of summing one after the other. Equal terms err in the same
direction each time, so that their errors add up. A cross entropy sums up the exponentials of the classes, and errs by
the relative error of that sum. The elements of a batch norm's channel share the errors of its mean and variance.
"""

from __future__ import annotations

import functools
import math
from typing import Dict, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from ipu_conformance.nets import INPUT, Layer, Net
from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.training.composites import written_out
from ipu_conformance.oracle.training.execution import LOSS
from ipu_conformance.oracle.training.layers import call_of
from ipu_conformance.run import Array, RunConfig


class Mantissa(NamedTuple):
    """A binary format: digits of the significand, exponent of the smallest positive value and the largest value."""

    digits: int
    smallest: int
    largest: float


MANTISSAS: Dict[str, Mantissa] = {
    "float32": Mantissa(24, -149, float(np.finfo(np.float32).max)),
    "float16": Mantissa(11, -24, float(np.finfo(np.float16).max)),
}


def mantissa(dtype: str) -> Mantissa:
    """The format called ``dtype``."""
    if dtype not in MANTISSAS:
        raise OracleError(f"dtype {dtype!r} has no random rounding; use one of {', '.join(MANTISSAS)}")
    return MANTISSAS[dtype]


def spacing(values: Array, form: Mantissa) -> Array:
    """The distance between the neighbours of each value in a format."""
    _, exponents = np.frexp(values)
    return np.ldexp(1.0, np.maximum(exponents - form.digits, form.smallest))


def stochastic(values: Array, form: Mantissa, random: np.random.Generator) -> Array:
    """Each value rounded up or down, with probabilities that keep its mean; beyond the largest value is infinity."""
    gap = spacing(values, form)
    rounded = np.floor(values / gap + random.random(np.shape(values))) * gap
    return np.where(np.abs(rounded) > form.largest, np.copysign(np.inf, values), rounded)


def nearest(values: Array, form: Mantissa) -> Array:
    """Each value rounded to the nearer neighbour, to the even one in the middle."""
    gap = spacing(values, form)
    rounded = np.rint(values / gap) * gap
    return np.where(np.abs(rounded) > form.largest, np.copysign(np.inf, values), rounded)


def stored(site: str, config: RunConfig) -> Mantissa:
    """The format in which a device of this precision keeps what a site gives."""
    return mantissa(config.accumulators if site.startswith("reduce/") and _narrow(config) else config.dtype)


def _narrow(config: RunConfig) -> bool:
    return mantissa(config.accumulators).digits < mantissa(config.dtype).digits


class RandomRounding:
    """The hook for ``train``: rounds what a site gives, as a device of this precision could have done.

    Partial sums of a random walk of K steps are on average half as large, squared, as its end. Each of their K
    roundings errs uniformly by up to half a spacing, which is between u / 2 and u (the unit roundoff) relative to the
    partial sum, depending on where it is in its binade.
    """

    def __init__(self, net: Net, config: RunConfig, seed: int) -> None:
        self._config = config
        # Over a logarithmic distribution of the partial sums the square of half a spacing is 3 / (8 ln 2) u^2 on
        # average; an error uniform up to it has a third of that, and the partial sums count by half.
        unit = 2.0 ** -mantissa(config.partials).digits
        self._partial_error = unit * math.sqrt(3.0 / (8.0 * math.log(2.0)) / 3.0 / 2.0)
        self._random = np.random.Generator(np.random.Philox(seed))
        self._lengths = _reduction_lengths(net, config.micro_batch)
        self._sizes: Dict[str, float] = {}
        """The root mean square of each layer's value, the last time that it was computed."""
        self._spreads: Dict[str, float] = {}
        """The same of what is left without the means of its channels."""
        self._norms = {layer.name: layer for layer in net.layers if layer.op == "batch_norm"}
        self._places = config.micro_batch * int(np.prod(net.input_shape[1:]))
        self._logits = net.layers[-1].name if net.loss == "cross_entropy_loss" else None
        self._reduction = dict(net.loss_settings).get("reduction", "mean")
        self._loss_error = 0.0

    def __call__(self, values: Array, site: str) -> Array:
        values = np.asarray(values, np.float64)
        kind, _, layer = site.partition("/")
        length = 1
        if kind in ("forward", "backward"):
            of_weight = self._lengths.get((layer, values.shape)) if kind == "backward" else None
            length = of_weight or self._lengths.get((layer, ()), 1)
        if kind == "forward" and self._norms:
            self._sizes[layer] = math.sqrt(float(np.mean(values**2)))
            self._spreads[layer] = math.sqrt(float(np.mean((values - _means(values)) ** 2)))
        if layer in self._norms and kind in ("forward", "backward") and values.ndim > 1:
            values = values + self._of_normalising(values, layer)
        if kind == "forward" and layer == self._logits and values.ndim > 1:
            self._loss_error = self._of_classes(values)
        if site == f"forward/{LOSS}":
            values = values + self._loss_error * self._random.standard_normal(values.shape)
        if kind == "statistics":
            values = values + self._of_statistics(layer) * self._random.standard_normal(values.shape)
        if length > 1:
            size = math.sqrt(float(np.mean(values**2)))
            error = self._partial_error * math.sqrt(length) * size
            # A sum that is exactly 0 is one of zeros (a dead unit, a masked gradient), and has no error.
            values = np.where(values == 0.0, 0.0, values + error * self._random.standard_normal(values.shape))
        return stochastic(values, stored(site, self._config), self._random)

    def _of_classes(self, logits: Array) -> float:
        """The error of a loss by the sums over the classes, which are on axis 1, of all samples and their places."""
        rows = np.moveaxis(logits, 1, -1).reshape(-1, logits.shape[1])
        # A group of k equal terms counts as k * k steps of a random walk.
        steps = float(np.mean(np.sum(rows[:, :, np.newaxis] == rows[:, np.newaxis, :], axis=(1, 2))))
        gathered = {"mean": 1.0 / math.sqrt(len(rows)), "sum": math.sqrt(len(rows)), "none": 1.0}
        return self._partial_error * math.sqrt(steps) * gathered[self._reduction]

    def _of_normalising(self, values: Array, name: str) -> Array:
        """The error of a batch norm's value, or of its input's gradient, by the means over a micro-batch.

        All elements of a channel share the means, so they err together, by as much as a sum of terms of one sign.
        """
        norm = self._norms[name]
        size, spread = (sizes.get(norm.inputs[0], 0.0) for sizes in (self._sizes, self._spreads))
        offset = max(1.0, size / math.sqrt(spread**2 + float(norm.attributes["epsilon"])))
        inner = values - _means(values)
        sizes = np.sqrt(np.mean(inner**2, axis=_places_of(values), keepdims=True))
        shifts, scales = (self._random.standard_normal(sizes.shape) for _ in range(2))
        return self._partial_error * math.sqrt(self._places) * offset * (sizes * shifts + inner * scales)

    def _of_statistics(self, name: str) -> float:
        """The error of a mean, or of a mean of squares, over a micro-batch and its places, and of its share.

        No mean of values, or of their squares, is larger than their root mean square, or the square of that.
        """
        layer, _, statistic = name.rpartition(".")
        norm = self._norms[layer]
        size = self._sizes.get(norm.inputs[0], 0.0)
        error = self._partial_error * math.sqrt(self._places) * (size if statistic == "running_mean" else size * size)
        return float(norm.attributes["momentum"]) * error


def _places_of(values: Array) -> Tuple[int, ...]:
    """The axes of a batch of values over which a batch norm takes its means: all but that of the channels."""
    return tuple(axis for axis in range(values.ndim) if axis != 1)


def _means(values: Array) -> Array:
    return np.asarray(np.mean(values, axis=_places_of(values), keepdims=True))


@functools.lru_cache(maxsize=None)
def _reduction_lengths(net: Net, micro_batch: int) -> Mapping[Tuple[str, Tuple[int, ...]], int]:
    """How many products are summed up, by op and by the shape of the gradient, () for everything but weights.

    A value is a sum over the columns of the weight; a weight's gradient is one over samples and their places. Those of
    a convolution are at most as many as the net's input has.
    """
    shapes = {weight.name: weight.shape for weight in net.weights}
    ops = [op for layer in net.layers for op in written_out(layer)]
    values = _value_shapes(net, ops)
    lengths: Dict[Tuple[str, Tuple[int, ...]], int] = {}
    for op in ops:
        read = values[op.inputs[0]]
        of_rows = {"linear": read[:-1], "matmul": read[:-1], "layer_norm": read[:-1], "embedding": read}
        places = int(np.prod(of_rows.get(op.op, net.input_shape[1:])))
        for name in op.weights:
            lengths[op.name, shapes[name]] = micro_batch * places
        lengths[op.name, ()] = _value_length(op, read, shapes)
    if net.label_shape:
        # A mean over the labels of all samples; the gradient of the logits is not a sum.
        lengths[LOSS, ()] = micro_batch * int(np.prod(net.label_shape))
        lengths[LOSS, (micro_batch, *values[net.layers[-1].name])] = 1
    return lengths


def _value_length(op: Layer, read: Tuple[int, ...], shapes: Mapping[str, Tuple[int, ...]]) -> int:
    """How many terms make a value of an op that reads a sample's value of this shape."""
    if op.op in ("matmul", "softmax", "layer_norm"):
        return read[-1]
    if op.op == "mean":
        axes = op.attributes["axis"]
        return int(np.prod([read[axis - 1] for axis in (axes if isinstance(axes, tuple) else (axes,))]))
    if op.op == "conv_transpose":
        return read[0]
    wide = [shapes[name] for name in op.weights if len(shapes[name]) > 1 and op.op != "embedding"]
    return int(np.prod(wide[0][1:])) if wide else 1


def _value_shapes(net: Net, ops: Sequence[Layer]) -> Dict[str, Tuple[int, ...]]:
    """The shape of each value of a sample, by the name of its op, from applying the ops to a sample of zeros."""
    values = {INPUT: np.zeros((1, *net.input_shape), np.int64 if net.tokens else np.float64)}
    weights, statistics = net.initial_weights(seed=0), net.initial_statistics()
    for op in ops:
        mask = np.ones(values[op.inputs[0]].shape)
        values[op.name] = call_of(op, values, weights, statistics, mask, training=False).forward()
    return {name: value.shape[1:] for name, value in values.items()}

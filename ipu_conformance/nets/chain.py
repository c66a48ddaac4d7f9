"""Builds a net layer by layer."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from ipu_conformance.nets.net import INPUT, Layer, Net, Weight


class Chain:
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

    def back_to(self, name: str) -> None:
        """Let the next layer read an earlier value."""
        self.last = name

    def declare(self, *rows: Weight) -> Tuple[str, ...]:
        """Declare weights and give their names."""
        self.weights.update((row.name, row) for row in rows)
        return tuple(row.name for row in rows)

    def linear(self, name: str, inputs: int, outputs: int, shared: str = "") -> None:
        weight, bias = f"{shared or name}.weight", f"{name}.bias"
        names = self.declare(Weight(weight, (outputs, inputs), inputs), Weight(bias, (outputs,), inputs))
        self.add(name, "linear", weights=names, cut=True)

    def conv(
        self,
        name: str,
        inputs: int,
        outputs: int,
        bias: bool = True,
        kernel: int = 3,
        cut: bool = True,
        stride: int = 1,
    ) -> None:
        """A convolution whose padding keeps the size of the image, but for the stride."""
        fan_in = inputs * kernel * kernel
        shape = (outputs, inputs, kernel, kernel)
        rows = [Weight(f"{name}.weight", shape, fan_in), Weight(f"{name}.bias", (outputs,), fan_in)]
        strided = {"stride": stride} if stride > 1 else {}
        self.add(name, "conv", weights=self.declare(*rows[: 1 + bias]), cut=cut, padding=kernel // 2, **strided)

    def conv_transpose(self, name: str, inputs: int, outputs: int, stride: int) -> None:
        """A transposed convolution that enlarges an image; its windows do not overlap."""
        shape = (inputs, outputs, stride, stride)
        rows = Weight(f"{name}.weight", shape, inputs), Weight(f"{name}.bias", (outputs,), inputs)
        self.add(name, "conv_transpose", weights=self.declare(*rows), cut=True, stride=stride)

    def batch_norm(self, name: str, channels: int) -> None:
        names = self.declare(Weight(f"{name}.weight", (channels,), constant=1.0), Weight(f"{name}.bias", (channels,)))
        self.statistics += (
            Weight(f"{name}.running_mean", (channels,)),
            Weight(f"{name}.running_var", (channels,), constant=1.0),
        )
        self.add(name, "batch_norm", weights=names, momentum=0.1, epsilon=1e-5)

    def layer_norm(self, name: str, features: int) -> None:
        names = self.declare(Weight(f"{name}.weight", (features,), constant=1.0), Weight(f"{name}.bias", (features,)))
        self.add(name, "layer_norm", weights=names, cut=True, epsilon=1e-3)

    def embedding(self, name: str, tokens: int, features: int) -> None:
        self.add(name, "embedding", weights=self.declare(Weight(f"{name}.weight", (tokens, features), features)))

    def lstm(self, name: str, steps: int, features: int, units: int) -> None:
        """The hidden state after the last step; gates are in the order input, forget, cell, output, with one bias."""
        names = self.declare(
            Weight(f"{name}.weight_ih_l0", (4 * units, features), features),
            Weight(f"{name}.weight_hh_l0", (4 * units, units), units),
            Weight(f"{name}.bias_ih_l0", (4 * units,), units),
        )
        self.add(name, "lstm", weights=names, cut=True, steps=steps, units=units)

    def attention(self, name: str, steps: int, features: int, heads: int) -> None:
        """Self-attention of several heads: projections to queries, keys and values, and one of what they give."""
        # No biases: that of the keys has no gradient, because softmax does not change with what all scores share.
        parts = ("query", "key", "value", "output")
        names = self.declare(*(Weight(f"{name}.{part}_weight", (features, features), features) for part in parts))
        shape = {"steps": steps, "features": features, "heads": heads}
        self.add(name, "multi_head_attention", weights=names, cut=True, **shape)

    def net(self, name: str, input_shape: Tuple[int, ...], classes: int, **kinds: Any) -> Net:
        return Net(name, input_shape, classes, self.layers, tuple(self.weights.values()), self.statistics, **kinds)

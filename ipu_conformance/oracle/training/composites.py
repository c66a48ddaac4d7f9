"""Layers of a net that are many ops: an LSTM and attention, written out in ops of the table.

Frameworks have them as one layer. The oracle applies their ops one by one, so that random rounding reaches every
value that a device may round.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Mapping, Tuple

from ipu_conformance.nets import Layer


class _Ops:
    """The ops of one layer: each has a name of its own below the layer's, the last one has the layer's name."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self.rows: List[Layer] = []

    def __call__(self, part: str, op: str, *inputs: str, weights: Tuple[str, ...] = (), **settings: Any) -> str:
        name = f"{self._layer.name}/{part}" if part else self._layer.name
        self.rows.append(Layer(name, op, inputs, weights, tuple(settings.items())))
        return name


def _lstm(layer: Layer, ops: _Ops) -> None:
    """The hidden state after the last step; it begins, like the cell, with zeros, which the first step leaves out."""
    (x,), (kernel, recurrent, bias) = layer.inputs, layer.weights
    steps, units = layer.attributes["steps"], layer.attributes["units"]
    hidden = cell = ""
    for step in range(steps):
        at = f"step{step}"
        row = ops(f"{at}/row", "slice", x, starts=(0, step, 0), stops=(None, step + 1, None))
        sums = ops(f"{at}/sums", "linear", ops(f"{at}/x", "squeeze", row, axis=(1,)), weights=(kernel, bias))
        if hidden:
            kept = ops(f"{at}/recurrent", "linear", hidden, weights=(recurrent,))
            sums = ops(f"{at}/all_sums", "add", sums, kept)
        gates: Dict[str, str] = {}
        for place, gate in enumerate(("input", "forget", "cell", "output")):
            if gate == "forget" and not hidden:
                continue
            part = ops(f"{at}/{gate}_sum", "slice", sums, starts=(0, place * units), stops=(None, (place + 1) * units))
            gates[gate] = ops(f"{at}/{gate}", "tanh" if gate == "cell" else "sigmoid", part)
        taken = ops(f"{at}/taken", "mul", gates["input"], gates["cell"])
        cell = ops(f"{at}/state", "add", ops(f"{at}/kept", "mul", gates["forget"], cell), taken) if hidden else taken
        last = step == steps - 1
        hidden = ops("" if last else f"{at}/hidden", "mul", gates["output"], ops(f"{at}/bent", "tanh", cell))


def _attention(layer: Layer, ops: _Ops) -> None:
    """softmax(q k' / sqrt(features of a head)) v for each head, one beside the other, and a projection of that."""
    (x,), steps, heads = layer.inputs, layer.attributes["steps"], layer.attributes["heads"]
    width = layer.attributes["features"] // heads
    *projections, last = layer.weights

    def headed(part: str, weight: str) -> str:
        projected = ops(part, "linear", x, weights=(weight,))
        rows = ops(f"{part}_rows", "reshape", projected, shape=(-1, steps, heads, width))
        return ops(f"{part}_heads", "transpose", rows, axes=(0, 2, 1, 3))

    query, key, value = map(headed, ("query", "key", "value"), projections)
    scores = ops("scores", "matmul", query, key, transpose_b=True)
    shares = ops("shares", "softmax", ops("scaled", "scale", scores, scale=1.0 / math.sqrt(width)), axis=-1)
    turned = ops("turned", "transpose", ops("mixed", "matmul", shares, value), axes=(0, 2, 1, 3))
    ops("", "linear", ops("joined", "reshape", turned, shape=(-1, steps, heads * width)), weights=(last,))


COMPOSITES: Mapping[str, Callable[[Layer, _Ops], None]] = {"lstm": _lstm, "multi_head_attention": _attention}
"""The layers that are many ops, by the names that nets have for them."""


def written_out(layer: Layer) -> Tuple[Layer, ...]:
    """The ops of a layer: itself, unless it is a composite."""
    if layer.op not in COMPOSITES:
        return (layer,)
    ops = _Ops(layer)
    COMPOSITES[layer.op](layer, ops)
    return tuple(ops.rows)

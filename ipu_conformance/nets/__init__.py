"""The nets of the suite as data: small ones, each for one thing, and models of the kinds that people train."""

from __future__ import annotations

from typing import Callable, Mapping

from ipu_conformance.nets.models import embedding, lstm, resnet, tied_embedding, transformer, unet
from ipu_conformance.nets.net import INPUT, Data, Layer, Net, Weight, distinct_micro_batches, generator
from ipu_conformance.nets.small import bn_convnet, convnet, dropout_net, linear, mlp, residual, tied_weights

__all__ = [
    "INPUT",
    "MODELS",
    "NETS",
    "Data",
    "Layer",
    "Net",
    "Weight",
    "bn_convnet",
    "convnet",
    "distinct_micro_batches",
    "dropout_net",
    "generator",
    "linear",
    "mlp",
    "residual",
    "tied_weights",
]

SMALL: Mapping[str, Callable[[], Net]] = {
    maker.__name__: maker for maker in (linear, mlp, convnet, bn_convnet, residual, dropout_net, tied_weights)
}
"""The small nets by their names."""
MODELS: Mapping[str, Callable[[], Net]] = {
    maker.__name__: maker for maker in (resnet, lstm, transformer, embedding, tied_embedding, unet)
}
"""The models by their names."""
NETS: Mapping[str, Callable[[], Net]] = {**SMALL, **MODELS}
"""Every net by its name."""

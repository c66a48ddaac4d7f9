"""The suite's nets as torch modules."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence

import poptorch
import torch
from torch.nn import functional

from ipu_conformance.frameworks import weights_of
from ipu_conformance.nets import INPUT, Layer, Net, Weight
from ipu_conformance.run import Array, RunConfig, Weights

Kernel = Callable[..., torch.Tensor]

KERNELS: Mapping[str, Kernel] = {
    "linear": lambda module, x, w, b: functional.linear(x, w, b),
    "tanh": lambda module, x: torch.tanh(x),
    "relu": lambda module, x: torch.relu(x),
    "add": lambda module, x, y: x + y,
    "conv": lambda module, x, w, b=None, *, padding, stride=1: functional.conv2d(x, w, b, stride, padding),
    "conv_transpose": lambda module, x, w, b, *, stride: functional.conv_transpose2d(x, w, b, stride),
    "interpolate_nearest": lambda module, x, *, size, coordinates: functional.interpolate(x, size, mode="nearest"),
    "max_pool": lambda module, x, *, kernel, stride: functional.max_pool2d(x, kernel, stride),
    "avg_pool": lambda module, x, *, kernel, stride: functional.avg_pool2d(x, kernel, stride),
    "flatten": lambda module, x, *, start, stop: torch.flatten(x, start, stop),
    "dropout": lambda module, x, *, rate: functional.dropout(x, rate, module.training),
    "concat": lambda module, *xs, axis: torch.cat(xs, axis),
    "mean": lambda module, x, *, axis: torch.mean(x, axis),
    "matmul": lambda module, x, w, *, transpose_b: torch.matmul(x, w.t() if transpose_b else w),
    "embedding": lambda module, x, w: functional.embedding(x, w),
    "layer_norm": lambda module, x, w, b, *, epsilon: functional.layer_norm(x, w.shape, w, b, epsilon),
    "gelu_tanh": lambda module, x: functional.gelu(x, approximate="tanh"),
    "multi_head_attention": lambda module, x, *weights, steps, features, heads: _attention(x, weights, heads),
}
"""Each op of the nets on torch; batch norm, for its statistics, and the LSTM are modules of their own."""


def _attention(x: torch.Tensor, weights: Sequence[torch.Tensor], heads: int) -> torch.Tensor:
    """Self-attention as users of torch write it out."""
    samples, steps, features = x.shape
    width = features // heads
    query, key, value = (
        functional.linear(x, weight).view(samples, steps, heads, width).transpose(1, 2) for weight in weights[:3]
    )
    shares = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(width), dim=-1)
    return functional.linear((shares @ value).transpose(1, 2).reshape(samples, steps, features), weights[3])


class NetModule(torch.nn.Module):
    """A net as a torch module: weights carry the net's names, stages are blocks, the loss is part of forward.

    The weights of ``frozen`` layers are not trained.
    """

    def __init__(self, net: Net, config: RunConfig, frozen: Sequence[str] = ()) -> None:
        super().__init__()
        self.net = net
        self.stages = config.stages or (0,) * len(net.layers)
        self.devices = config.devices or tuple(range(config.number_of_stages))
        start = net.initial_weights(config.seed)
        for layer in net.layers:
            if layer.op in _MODULES:
                module = _MODULES[layer.op](layer, start)
                self.add_module(layer.name, module.to(dtype(config)) if layer.op == "lstm" else module)
        for name, value in start.items():
            owner, _, leaf = name.rpartition(".")
            if owner not in self._modules:
                self.add_module(owner, torch.nn.Module())
            module = self.get_submodule(owner)
            held = torch.from_numpy(value).to(dtype(config))
            if leaf not in module._parameters:
                module.register_parameter(leaf, torch.nn.Parameter(held))
            else:
                module.get_parameter(leaf).data.copy_(held)
        for name in weights_of(net, frozen):
            self.get_parameter(name).requires_grad_(False)

    def weights(self) -> Weights:
        """The trained weights as the user reads them."""
        return self._named(self.net.weights)

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""
        return self._named(self.net.statistics) or None

    def _named(self, rows: Iterable[Weight]) -> Dict[str, Array]:
        state = self.state_dict()
        return {row.name: array(state[row.name]) for row in rows}

    def forward(self, x: torch.Tensor, labels: Optional[torch.Tensor] = None) -> Any:
        values = {INPUT: x}
        blocks = len(self.devices) > 1
        for stage, ipu in enumerate(self.devices):
            with poptorch.Block(f"stage{stage}", ipu_id=ipu) if blocks else nullcontext():
                for layer, layer_stage in zip(self.net.layers, self.stages):
                    if layer_stage == stage:
                        values[layer.name] = self._apply(layer, values)
                if stage == len(self.devices) - 1:
                    logits = values[self.net.layers[-1].name]
                    if labels is None:
                        return logits
                    return logits, functional.cross_entropy(logits.float(), labels, **dict(self.net.loss_settings))
        raise AssertionError("a net has at least one stage")

    def _apply(self, layer: Layer, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        inputs = [values[name] for name in layer.inputs]
        if layer.op in _MODULES:
            result: Any = self.get_submodule(layer.name)(*inputs)
            value: torch.Tensor = result[0][:, -1] if layer.op == "lstm" else result
            return value
        weights = [self.get_parameter(name) for name in layer.weights]
        return KERNELS[layer.op](self, *inputs, *weights, **layer.attributes)


def _batch_norm(layer: Layer, start: Weights) -> torch.nn.BatchNorm2d:
    attributes = layer.attributes
    channels = len(start[layer.weights[0]])
    return torch.nn.BatchNorm2d(channels, eps=attributes["epsilon"], momentum=attributes["momentum"])


def _lstm(layer: Layer, start: Weights) -> torch.nn.LSTM:
    """An LSTM whose second bias is not trained: nets have one."""
    _, features = start[layer.weights[0]].shape
    module = torch.nn.LSTM(features, layer.attributes["units"], batch_first=True)
    torch.nn.init.zeros_(module.bias_hh_l0)
    module.bias_hh_l0.requires_grad_(False)
    return module


_MODULES: Mapping[str, Callable[[Layer, Weights], torch.nn.Module]] = {"batch_norm": _batch_norm, "lstm": _lstm}


def dtype(config: RunConfig) -> torch.dtype:
    """The dtype of a configuration's weights and inputs."""
    return torch.float16 if config.dtype == "float16" else torch.float32


def array(value: torch.Tensor) -> Array:
    """A float64 copy of what the target returned."""
    return value.detach().to(torch.float64).numpy().copy()

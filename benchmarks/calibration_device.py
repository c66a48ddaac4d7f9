"""A device that shares nothing with the oracle: PyTorch trains the suite's nets at float32 or float16 on the CPU.

One op of it can be made less precise by a factor, forward and backward: its results get fewer binary digits.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
import torch
from torch.nn import functional

from ipu_conformance.nets import INPUT, Data, Layer, Net
from ipu_conformance.oracle.training.execution import Masks, Place
from ipu_conformance.oracle.training.train import dropout_masks
from ipu_conformance.run import RunConfig, RunRecord

DIGITS = {"float32": 24, "float16": 11}


class _Coarse(torch.autograd.Function):
    """The identity, but for its results and its gradients being rounded to some binary digits."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, digits: int) -> torch.Tensor:
        ctx.digits = digits
        return _rounded(value, digits)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Tuple[torch.Tensor, None]:
        return _rounded(cotangents[0], ctx.digits), None


def _rounded(value: torch.Tensor, digits: int) -> torch.Tensor:
    wide = value.double()
    exponent = torch.frexp(wide)[1]
    gap = torch.ldexp(torch.ones_like(wide), exponent - digits)
    return (torch.round(wide / gap) * gap).to(value.dtype)


class TorchDevice:
    """Trains a net as PyTorch does: its kernels, its autograd, plain SGD; optionally with one coarse layer."""

    def __init__(self, net: Net, config: RunConfig, coarse: Optional[str] = None, factor: int = 1) -> None:
        if config.optimizer.name != "sgd" or config.optimizer["momentum"] or config.replicas != 1:
            raise ValueError("this device does plain SGD on one replica")
        self._net, self._config, self._coarse = net, config, coarse
        self._digits = DIGITS[config.dtype] - (factor.bit_length() - 1)
        self._dtype = getattr(torch, config.dtype)

    def train(self, data: Data) -> RunRecord:
        """The record of a run; losses and outputs of a step are one after the other."""
        config = self._config
        masks = dropout_masks(config.seed)
        weights = {name: self._leaf(value) for name, value in self._net.initial_weights(config.seed).items()}
        losses: List[np.ndarray] = []
        outputs: List[np.ndarray] = []
        gradients: List[Dict[str, np.ndarray]] = []
        for step in range(config.steps):
            first, step_losses, step_outputs = 0, [], []
            for iteration in range(config.device_iterations):
                total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
                for turn in range(config.gradient_accumulation):
                    samples = slice(first, first + config.micro_batch)
                    first += config.micro_batch
                    place = Place(step, iteration, turn, 0)
                    inputs = torch.tensor(data.inputs[step, samples]).to(self._dtype)
                    logits = self._forward(inputs, weights, place, masks)
                    loss = functional.cross_entropy(logits, torch.tensor(data.labels[step, samples]))
                    for name, gradient in zip(weights, torch.autograd.grad(loss, list(weights.values()))):
                        total[name] = total[name] + gradient
                    step_losses.append(_numpy(loss))
                    step_outputs.append(_numpy(logits))
                mean = {name: value / config.gradient_accumulation for name, value in total.items()}
                rate = config.learning_rate["base"]
                weights = {name: self._leaf(weight.detach() - rate * mean[name]) for name, weight in weights.items()}
                gradients.append({name: _numpy(value) for name, value in mean.items()})
            losses.append(np.stack(step_losses))
            outputs.append(np.concatenate(step_outputs))
        return RunRecord(
            config,
            self._net.name,
            tuple(losses),
            tuple(outputs),
            {name: _numpy(weight) for name, weight in weights.items()},
            gradients=tuple(gradients),
            framework="torch",
            target="cpu",
        )

    def _leaf(self, value: Any) -> torch.Tensor:
        return torch.as_tensor(value).detach().to(self._dtype).requires_grad_()

    def _forward(
        self, inputs: torch.Tensor, weights: Mapping[str, torch.Tensor], place: Place, masks: Masks
    ) -> torch.Tensor:
        values = {INPUT: inputs}
        for layer in self._net.layers:
            operands = [values[name] for name in layer.inputs] + [weights[name] for name in layer.weights]
            value = self._apply(layer, operands, place, masks)
            if layer.name == self._coarse:
                value = _Coarse.apply(value, self._digits)
            values[layer.name] = value
        return values[self._net.layers[-1].name]

    def _apply(self, layer: Layer, operands: List[torch.Tensor], place: Place, masks: Masks) -> torch.Tensor:
        settings = layer.attributes
        if layer.op == "dropout":
            mask = masks(layer.name, place, tuple(operands[0].shape), settings["rate"])
            return operands[0] * torch.tensor(mask).to(self._dtype) / (1.0 - settings["rate"])
        if layer.op == "batch_norm":
            return functional.batch_norm(
                operands[0], None, None, operands[1], operands[2], training=True, eps=settings["epsilon"]
            )
        return {
            "linear": lambda: functional.linear(*operands),
            "conv": lambda: functional.conv2d(*operands, padding=settings.get("padding", 0)),
            "relu": lambda: torch.relu(*operands),
            "tanh": lambda: torch.tanh(*operands),
            "add": lambda: torch.add(*operands),
            "flatten": lambda: torch.flatten(*operands, 1),
            "max_pool": lambda: functional.max_pool2d(operands[0], settings["kernel"], settings["stride"]),
            "avg_pool": lambda: functional.avg_pool2d(operands[0], settings["kernel"], settings["stride"]),
        }[layer.op]()


def _numpy(value: torch.Tensor) -> np.ndarray:
    return value.detach().double().numpy()

"""A layer of a net as a call of an op from the table: which operands it takes and where its gradients belong."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from ipu_conformance.nets import Layer
from ipu_conformance.oracle.ops import OPS
from ipu_conformance.run import Array, Weights


class Call(NamedTuple):
    """A layer applied to its operands; its gradient needs nothing more than the cotangent."""

    layer: str
    op: str
    names: Tuple[str, ...]
    """The operands' names, of values and weights; those that follow without a name have no gradient."""
    operands: Tuple[Array, ...]
    attributes: Mapping[str, Any]

    def forward(self) -> Array:
        """The layer's value."""
        value = OPS[self.op].forward(*self.operands, **self.attributes)
        assert not isinstance(value, tuple), f"{self.op} gives several outputs"
        return value

    def backward(self, cotangent: Array) -> Dict[str, Array]:
        """The gradient of each operand that has one."""
        vjp = OPS[self.op].vjp
        assert vjp is not None, f"{self.op} has no gradient"
        gradients = zip(self.names, vjp(cotangent, *self.operands, **self.attributes))
        return {name: gradient for name, gradient in gradients if gradient is not None}

    def holding(self, weights: Weights) -> Call:
        """The same call with the weights as they are now."""
        now = tuple(weights.get(name, operand) for name, operand in zip(self.names, self.operands))
        return self._replace(operands=now + self.operands[len(now) :])


def call_of(
    layer: Layer, values: Weights, weights: Weights, statistics: Weights, mask: Optional[Array], training: bool
) -> Call:
    """The call that ``layer`` stands for: dropout takes its mask, batch norm in inference the running statistics."""
    names = layer.inputs + layer.weights
    operands = tuple(values[name] for name in layer.inputs) + tuple(weights[name] for name in layer.weights)
    op, attributes = layer.op, layer.attributes
    if op == "dropout":
        assert mask is not None
        operands, attributes["training"] = (*operands, mask), training
    elif op == "batch_norm":
        attributes = {"epsilon": attributes["epsilon"]}
        if not training:
            op = "batch_norm_inference"
            operands += tuple(statistics[name] for name in _statistics_of(layer))
    return Call(layer.name, op, names, operands, attributes)


def statistics_after(layer: Layer, x: Array, statistics: Weights, unbiased: bool) -> Dict[str, Array]:
    """The running statistics of ``layer``, if it has any, after it was trained on ``x``."""
    if layer.op != "batch_norm":
        return {}
    names = _statistics_of(layer)
    momentum = layer.attributes["momentum"]
    before = (statistics[name] for name in names)
    return dict(zip(names, OPS["batch_norm_statistics"].forward(x, *before, momentum=momentum, unbiased=unbiased)))


def _statistics_of(layer: Layer) -> Tuple[str, str]:
    return f"{layer.name}.running_mean", f"{layer.name}.running_var"

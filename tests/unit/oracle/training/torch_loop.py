"""Training as a plain PyTorch loop in float64, by autograd and torch.optim: a second opinion on what a run means."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

import numpy as np

from ipu_conformance.nets import INPUT, Data, Net
from ipu_conformance.run import RunConfig, Weights
from tests.unit.oracle.installed import installed

OPTIMIZERS: Dict[str, Any] = {
    "sgd": lambda o, p, lr, s: o.SGD(p, lr, s["momentum"], weight_decay=s["weight_decay"]),
    "adam": lambda o, p, lr, s: o.Adam(p, lr, (s["beta1"], s["beta2"]), s["epsilon"], s["weight_decay"]),
    "adamw": lambda o, p, lr, s: o.AdamW(p, lr, (s["beta1"], s["beta2"]), s["epsilon"], s["weight_decay"]),
}


def logits(
    net: Net,
    x: Any,
    weights: Mapping[str, Any],
    statistics: Mapping[str, Any],
    masks: Mapping[str, np.ndarray],
    training: bool,
) -> Any:
    torch = installed("torch")
    f = torch.nn.functional
    values = {INPUT: x}
    for layer in net.layers:
        inputs, own, s = [values[n] for n in layer.inputs], [weights[n] for n in layer.weights], layer.attributes
        if layer.op == "batch_norm":
            running = statistics[f"{layer.name}.running_mean"], statistics[f"{layer.name}.running_var"]
            value = f.batch_norm(inputs[0], *running, *own, training, s["momentum"], s["epsilon"])
        elif layer.op == "dropout":
            value = inputs[0] * torch.tensor(masks[layer.name]) / (1 - s["rate"]) if training else inputs[0]
        else:
            value = {
                "linear": lambda x, w, b: f.linear(x, w, b),
                "conv": lambda x, w, b=None, s=s: f.conv2d(x, w, b, s.get("stride", 1), s["padding"]),
                "conv_transpose": lambda x, w, b, s=s: f.conv_transpose2d(x, w, b, s["stride"]),
                "interpolate_nearest": lambda x, s=s: f.interpolate(x, s["size"], mode="nearest"),
                "concat": lambda *xs, s=s: torch.cat(xs, s["axis"]),
                "mean": lambda x, s=s: x.mean(s["axis"]),
                "matmul": lambda x, w: x @ w.T,
                "embedding": f.embedding,
                "layer_norm": lambda x, w, b, s=s: f.layer_norm(x, w.shape, w, b, s["epsilon"]),
                "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"),
                "lstm": _lstm,
                "multi_head_attention": lambda x, *own, s=s: _attention(x, own, s["heads"]),
                "max_pool": lambda x, s=s: f.max_pool2d(x, s["kernel"], s["stride"]),
                "avg_pool": lambda x, s=s: f.avg_pool2d(x, s["kernel"], s["stride"]),
                "relu": torch.relu,
                "tanh": torch.tanh,
                "add": torch.add,
                "flatten": lambda x: x.flatten(1),
            }[layer.op](*inputs, *own)
        values[layer.name] = value
    return value


def _lstm(x: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    torch = installed("torch")
    state = x.new_zeros(1, len(x), recurrent.shape[1])
    weights = [kernel, recurrent, bias, torch.zeros_like(bias)]
    return torch.lstm(x, (state, state), weights, True, 1, 0.0, True, False, True)[0][:, -1]


def _attention(x: Any, own: Sequence[Any], heads: int) -> Any:
    """torch's own function, which takes steps before samples."""
    torch = installed("torch")
    turned = x.transpose(0, 1)
    kernel = torch.cat([*own[:3]])
    return torch.nn.functional.multi_head_attention_forward(
        turned, turned, turned, x.shape[-1], heads, kernel, None, None, None, False, 0.0, own[3], None
    )[0].transpose(0, 1)


def trained(net: Net, data: Data, config: RunConfig, masks: Mapping[Any, np.ndarray]) -> Dict[str, Any]:
    """Weights, statistics by replica and losses of a run; the gradient of an update is that of one written-out sum."""
    torch = installed("torch")
    torch.set_num_threads(1)  # these tensors are tiny: threads would only wait for each other
    weights = {n: torch.tensor(w, requires_grad=True) for n, w in net.initial_weights(config.seed).items()}
    statistics = [{n: torch.tensor(w) for n, w in net.initial_statistics().items()} for _ in range(config.replicas)]
    parameters = list(weights.values())
    rule = OPTIMIZERS[config.optimizer.name](
        torch.optim, parameters, config.learning_rate["base"], dict(config.optimizer.settings)
    )
    shape = (config.device_iterations, config.gradient_accumulation, config.replicas, config.micro_batch)
    losses: List[float] = []
    for step in range(config.steps):
        inputs = torch.tensor(data.inputs[step]).reshape(*shape, *net.input_shape)
        labels = torch.tensor(data.labels[step]).reshape(*shape, *net.label_shape)
        for d in range(config.device_iterations):
            total = 0.0
            for g in range(config.gradient_accumulation):
                for r in range(config.replicas):
                    own = {layer: mask for (layer, *place), mask in masks.items() if place == [step, d, g, r]}
                    out = logits(net, inputs[d, g, r], weights, statistics[r], own, True)
                    loss = torch.nn.functional.cross_entropy(out, labels[d, g, r])
                    losses.append(loss.item())
                    total = total + loss
            if config.accumulation_reduction != "sum":
                total = total / config.gradient_accumulation
            if config.replica_reduction == "mean":
                total = total / config.replicas
            for weight, gradient in zip(parameters, torch.autograd.grad(total, parameters)):
                weight.grad = gradient
            if config.clip_norm is not None:
                norm = torch.sqrt(sum((weight.grad**2).sum() for weight in parameters))
                for weight in parameters:
                    weight.grad = weight.grad * min(1.0, config.clip_norm / norm.item())
            rule.step()
    return {"losses": np.array(losses), "weights": _numpy(weights), "statistics": [_numpy(row) for row in statistics]}


def inferred(net: Net, inputs: np.ndarray, weights: Weights, statistics: Weights) -> np.ndarray:
    """The logits of all samples at once, with running statistics."""
    torch = installed("torch")
    weights, statistics = [{n: torch.tensor(w) for n, w in group.items()} for group in (weights, statistics)]
    return logits(net, torch.tensor(inputs), weights, statistics, {}, False).numpy()


def _numpy(tensors: Mapping[str, Any]) -> Dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}

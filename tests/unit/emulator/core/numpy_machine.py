"""A small network of tanh stages in NumPy: a machine for the engine, and a plain loop that shares no code with it.

A stage computes ``tanh(x @ w + b)``; the last one also takes the mean over the batch of the squared distance to the
target. Weights move by SGD with momentum. Both write their sums in the same order, so they agree bit by bit.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

Weights = Dict[str, np.ndarray]
WIDTH = 3
RATE, MOMENTUM = 0.3, 0.7


def initial_weights(stages: int, seed: int = 7) -> List[Weights]:
    """Distinct float32 weights for every stage."""
    random = np.random.default_rng(seed)
    return [
        {
            "w": random.normal(size=(WIDTH, WIDTH)).astype(np.float32),
            "b": random.normal(size=WIDTH).astype(np.float32),
        }
        for _ in range(stages)
    ]


def samples(replicas: int, micro_batches: int, seed: int = 11) -> List[List[Tuple[np.ndarray, np.ndarray]]]:
    """Distinct inputs and targets by [replica][micro-batch]."""
    random = np.random.default_rng(seed)
    return [
        [tuple(random.normal(size=(2, 2, WIDTH)).astype(np.float32)) for _ in range(micro_batches)]
        for _ in range(replicas)
    ]


class NumpyMachine:
    """The machine: every replica owns its weights, velocities and accumulated gradients."""

    def __init__(self, weights: Sequence[Weights], replicas: int, accumulation: int) -> None:
        self.divisor = float(accumulation * replicas)
        self.values = [[{k: v.copy() for k, v in stage.items()} for stage in weights] for _ in range(replicas)]
        self.velocity = [[{k: 0 * v for k, v in stage.items()} for stage in weights] for _ in range(replicas)]
        self.accumulated: List[List[Weights]] = [[{} for _ in weights] for _ in range(replicas)]
        self.live = [[0] * len(weights) for _ in range(replicas)]
        self.deepest = [[0] * len(weights) for _ in range(replicas)]
        self.kept: List[Tuple[int, int, bool]] = []

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        x, target = boundary
        y = self._activation(replica, stage, x)
        self.kept.append((stage, micro_batch, keep))
        self.live[replica][stage] += 1
        self.deepest[replica][stage] = max(self.deepest[replica][stage], self.live[replica][stage])
        if stage == len(self.values[replica]) - 1:
            return np.mean(np.sum((y - target) ** 2, axis=1)), (x, y, target) if keep else None
        return (y, target), (x, y, target) if keep else None

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        x, target = boundary
        return x, self._activation(replica, stage, x), target

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        x, y, target = stash
        self.live[replica][stage] -= 1
        if gradient is None:
            gradient = 2 * (y - target) / np.float32(len(y))
        inner = gradient * (1 - y * y)
        own = {"w": x.T @ inner, "b": inner.sum(axis=0)}
        accumulated = self.accumulated[replica][stage]
        for name, value in own.items():
            accumulated[name] = accumulated[name] + value if name in accumulated else value
        return inner @ self.values[replica][stage]["w"].T

    def gradients(self, replica: int, stage: int) -> Weights:
        return self.accumulated[replica][stage]

    def reduce(self, stage: int, gradients: List[Weights]) -> List[Weights]:
        total = dict(gradients[0])
        for other in gradients[1:]:
            total = {name: value + other[name] for name, value in total.items()}
        mean = {name: value / np.float32(self.divisor) for name, value in total.items()}
        return [mean] * len(gradients)

    def update(self, replica: int, stage: int, gradients: Weights) -> None:
        for name, gradient in gradients.items():
            velocity = np.float32(MOMENTUM) * self.velocity[replica][stage][name] + gradient
            self.velocity[replica][stage][name] = velocity
            self.values[replica][stage][name] = self.values[replica][stage][name] - np.float32(RATE) * velocity
        self.accumulated[replica][stage] = {}

    def weights(self, replica: int, stage: int) -> Weights:
        return {name: value.copy() for name, value in self.values[replica][stage].items()}

    def set_weights(self, replica: int, stage: int, weights: Weights) -> None:
        self.values[replica][stage] = dict(weights)

    def _activation(self, replica: int, stage: int, x: np.ndarray) -> np.ndarray:
        return np.tanh(x @ self.values[replica][stage]["w"] + self.values[replica][stage]["b"])


def plain_step(
    forward_weights: Sequence[Weights], backward_weights: Sequence[Weights], sample: Tuple[np.ndarray, np.ndarray]
) -> Tuple[Any, List[Weights]]:
    """Loss and gradients of one micro-batch; the two sets of weights are the same but in an asynchronous pipeline."""
    x, target = sample
    activations = [x]
    for stage in forward_weights:
        activations.append(np.tanh(activations[-1] @ stage["w"] + stage["b"]))
    loss = np.mean(np.sum((activations[-1] - target) ** 2, axis=1))
    gradient = 2 * (activations[-1] - target) / np.float32(len(x))
    gradients: List[Weights] = []
    for number in reversed(range(len(forward_weights))):
        gradient = gradient * (1 - activations[number + 1] * activations[number + 1])
        gradients.insert(0, {"w": activations[number].T @ gradient, "b": gradient.sum(axis=0)})
        gradient = gradient @ backward_weights[number]["w"].T
    return loss, gradients


def plain_loop(
    weights: Sequence[Weights], data: Sequence[Sequence[Tuple[np.ndarray, np.ndarray]]], accumulation: int
) -> Tuple[List[Weights], List[List[Any]]]:
    """Weights and losses of training without stages, plan or engine: one micro-batch after the other."""
    current = [dict(stage) for stage in weights]
    velocity = [{name: np.zeros_like(value) for name, value in stage.items()} for stage in weights]
    losses: List[List[Any]] = [[] for _ in data]
    for start in range(0, len(data[0]), accumulation):
        by_replica = []
        for replica, own in enumerate(data):
            total: List[Weights] = []
            for sample in own[start : start + accumulation]:
                loss, gradients = plain_step(current, current, sample)
                losses[replica].append(loss)
                if total:
                    gradients = [{name: a[name] + b[name] for name in a} for a, b in zip(total, gradients)]
                total = gradients
            by_replica.append(total)
        for stage, values in enumerate(current):
            for name in values:
                summed, *others = (total[stage][name] for total in by_replica)
                for other in others:
                    summed = summed + other
                mean = summed / np.float32(accumulation * len(data))
                velocity[stage][name] = np.float32(MOMENTUM) * velocity[stage][name] + mean
                current[stage][name] = values[name] - np.float32(RATE) * velocity[stage][name]
    return current, losses

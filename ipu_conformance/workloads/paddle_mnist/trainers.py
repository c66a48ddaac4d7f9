"""What the training loop needs of a device, and the native trainer: the stock executor on the CPU."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Protocol, Tuple

import numpy as np
import paddle
from paddle import static

from ipu_conformance.workloads.paddle_mnist import Settings
from ipu_conformance.workloads.paddle_mnist.digits import Samples, filled
from ipu_conformance.workloads.paddle_mnist.model import IMAGE, LABEL, Network, build

Weights = Mapping[str, np.ndarray]


class Trainer(Protocol):
    """What the training loop needs; both trainers begin with the same weights and take the same batches."""

    def train(self, batch: Samples) -> float:
        """One update; the mean cost of its samples before the update."""

    def to_host(self) -> None:
        """Bring the weights to the host's scope."""

    def classify(self, samples: Samples, weights: Weights) -> np.ndarray:
        """The probabilities of the digits of all samples with these weights; it ends the training."""


class Host:
    """The stock executor on the CPU, with a scope of its own."""

    def __init__(self, settings: Settings) -> None:
        self.scope = static.Scope()
        self.executor = static.Executor(paddle.CPUPlace())
        self.evaluation = build(settings.batch_size)
        self.batch = settings.batch_size

    def initialise(self, network: Network) -> None:
        """Make the weights and the state of the optimizer."""
        self.run(network.startup)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """``Executor.run`` with this scope."""
        return self.executor.run(*args, scope=self.scope, **kwargs)

    def weights(self) -> Dict[str, np.ndarray]:
        """Copies of what the network for evaluation needs, statistics included."""
        names = [variable.name for variable in self.evaluation.main.list_vars() if variable.persistable]
        return {name: np.array(self.scope.find_var(name).get_tensor()) for name in names}

    def evaluate(self, samples: Samples) -> Tuple[np.ndarray, np.ndarray]:
        """The probabilities and the cost of every sample with the weights of this scope."""
        fetched = [self.evaluation.prediction, self.evaluation.costs]
        parts = [
            [values[:count] for values in self.run(self.evaluation.main, feed=feed(batch), fetch_list=fetched)]
            for batch, count in filled(samples, self.batch)
        ]
        probabilities, costs = (np.concatenate(part) for part in zip(*parts))
        return probabilities, costs[:, 0]


def feed(batch: Samples) -> Any:
    """What ``Executor.run`` is fed."""
    return {IMAGE: batch.images, LABEL: batch.labels}


def put(weights: Weights, scope: Any) -> None:
    """Give the variables of a scope these values."""
    for name, value in weights.items():
        scope.var(name).get_tensor().set(value, paddle.CPUPlace())


class NativeTrainer:
    """The network in the stock executor, without any IPU API."""

    def __init__(self, settings: Settings, host: Host) -> None:
        self._host = host
        self.network = build(settings.batch_size, learning_rate=settings.learning_rate, seed=settings.seed)
        host.initialise(self.network)

    def train(self, batch: Samples) -> float:
        (cost,) = self._host.run(self.network.main, feed=feed(batch), fetch_list=[self.network.cost])
        return float(cost)

    def to_host(self) -> None:
        """The host is where the weights are."""

    def classify(self, samples: Samples, weights: Weights) -> np.ndarray:
        put(weights, self._host.scope)
        return self._host.evaluate(samples)[0]

"""What the training loop needs of a device, and the native side: the stock executor on the CPU."""

from __future__ import annotations

from typing import Any, Protocol, Tuple

import numpy as np
import paddle
from paddle import static

from ipu_conformance.workloads.paddle_mnist.batches import Samples, filled
from ipu_conformance.workloads.paddle_mnist.model import IMAGE, LABEL, Network, build
from ipu_conformance.workloads.paddle_mnist.settings import Settings


class Side(Protocol):
    """What the training loop needs; both sides begin with the same weights and take the same batches."""

    @property
    def scope(self) -> Any:
        """The host's scope, with weights as they were at the last ``to_host``."""

    def train(self, batch: Samples) -> float:
        """One update; the mean cost of its samples before the update."""

    def to_host(self) -> None:
        """Bring the weights to the host's scope."""

    def classify(self, samples: Samples) -> np.ndarray:
        """The probabilities of the digits of all samples, after training, with the weights of the host's scope."""


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

    def evaluate(self, samples: Samples) -> Tuple[np.ndarray, np.ndarray]:
        """The probabilities and the cost of every sample with the weights of this scope."""
        fetched = [self.evaluation.prediction, self.evaluation.costs]
        parts = [
            [found[:count] for found in self.run(self.evaluation.main, feed=feed(batch), fetch_list=fetched)]
            for batch, count in filled(samples, self.batch)
        ]
        probabilities, costs = (np.concatenate(part) for part in zip(*parts))
        return probabilities, costs[:, 0]


def feed(batch: Samples) -> Any:
    """What ``Executor.run`` is fed."""
    return {IMAGE: batch.images, LABEL: batch.labels}


class Native:
    """The network in the stock executor, without any IPU API."""

    def __init__(self, settings: Settings, host: Host) -> None:
        self._host = host
        self.network = build(settings.batch_size, learning_rate=settings.learning_rate, seed=settings.seed)
        host.initialise(self.network)

    @property
    def scope(self) -> Any:
        return self._host.scope

    def train(self, batch: Samples) -> float:
        (cost,) = self._host.run(self.network.main, feed=feed(batch), fetch_list=[self.network.cost])
        return float(cost)

    def to_host(self) -> None:
        """The host is where the weights are."""

    def classify(self, samples: Samples) -> np.ndarray:
        return self._host.evaluate(samples)[0]

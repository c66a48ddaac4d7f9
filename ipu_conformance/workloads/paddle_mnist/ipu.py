"""The network on IPUs, through Paddle's IPU API."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import static

from ipu_conformance.workloads.paddle_mnist import Settings
from ipu_conformance.workloads.paddle_mnist.digits import Samples, filled
from ipu_conformance.workloads.paddle_mnist.model import IMAGE, LABEL, build
from ipu_conformance.workloads.paddle_mnist.trainers import Host, Weights, feed, put


class IpuTrainer:
    """The network compiled for IPUs: replicas share a batch, and a pipeline takes each share in micro-batches."""

    def __init__(self, settings: Settings, host: Host) -> None:
        self._host = host
        self._settings = settings
        self._executor = static.Executor(paddle.IPUPlace())
        self.network = build(
            settings.micro_batch, learning_rate=settings.learning_rate, seed=settings.seed, shard=self._shard
        )
        host.initialise(self.network)
        self.compiled = static.IpuCompiledProgram(
            self.network.main, scope=host.scope, ipu_strategy=training_strategy(settings)
        )
        self.program = self.compiled.compile([IMAGE, LABEL], [self.network.cost.name])

    def _shard(self, part: int) -> Any:
        # A guard with -1 places nothing: on one IPU there is no choice.
        index = part if self._settings.stages > 1 else -1
        return static.ipu_shard_guard(index=index, stage=index)

    def train(self, batch: Samples) -> float:
        (costs,) = self._executor.run(
            self.program, feed=feed(batch), fetch_list=[self.network.cost], scope=self._host.scope
        )
        return float(np.mean(costs))

    def to_host(self) -> None:
        self.compiled._backend.weights_to_host()

    def classify(self, samples: Samples, weights: Weights) -> np.ndarray:
        evaluation, batch = self._host.evaluation, self._host.batch
        # The scope of the training keeps its weights: these need one of their own.
        scope = static.Scope()
        put(weights, scope)
        program = static.normalize_program(evaluation.main, [evaluation.image], [evaluation.prediction])
        self.classifier = Classifier(program, IMAGE, evaluation.prediction.name, scope, batch)
        return np.concatenate([self.classifier(part.images)[:count] for part, count in filled(samples, batch)])


def training_strategy(settings: Settings) -> Any:
    """The strategy of a run: replicas times the IPUs of each, and the micro-batches of one update."""
    strategy = static.IpuStrategy()
    strategy.set_graph_config(
        num_ipus=settings.num_ipus,
        is_training=True,
        micro_batch_size=settings.micro_batch,
        enable_manual_shard=settings.stages > 1,
    )
    strategy.set_pipelining_config(
        enable_pipelining=settings.pipelined,
        batches_per_step=1,
        enable_gradient_accumulation=settings.accumulation > 1,
        accumulation_factor=settings.accumulation,
    )
    replicas = settings.replication_factor
    strategy.set_options({"enable_replicated_graphs": replicas > 1, "replicated_graph_count": replicas})
    return strategy


class Classifier:
    """A Program compiled for inference on one IPU; the backend holds one compiled Program at a time."""

    def __init__(self, program: Any, image: str, prediction: str, scope: Any, batch: int) -> None:
        strategy = static.IpuStrategy()
        strategy.set_graph_config(num_ipus=1, is_training=False, micro_batch_size=batch)
        self.compiled = static.IpuCompiledProgram(program, scope=scope, ipu_strategy=strategy)
        self._image, self._prediction, self._scope = image, prediction, scope
        self._program = self.compiled.compile([image], [prediction])
        self._executor = static.Executor(paddle.IPUPlace())

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """The probabilities of the digits of one batch."""
        (probabilities,) = self._executor.run(
            self._program, feed={self._image: images}, fetch_list=[self._prediction], scope=self._scope
        )
        return probabilities

"""The models of the suite, trained by the oracle on small tasks of their own: references of what devices learn.

They need no framework and no download. A seed chooses the samples. The initial weights and what there is to learn are
the same for all seeds: nets of this size begin so differently that only large shifts of a device would be detected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from ipu_conformance.nets import MODELS, Data, Net, generator
from ipu_conformance.oracle.training.train import train
from ipu_conformance.run import Array, RunConfig, RunRecord, learning_rate, optimizer

Samples = Tuple[Array, Array]
Task = Callable[[Net, np.random.Generator, int], Samples]
"""``task(net, random, count)`` draws samples with their labels."""


def patterns(net: Net, random: np.random.Generator, count: int) -> Samples:
    """Each class has a pattern, which every sample shows under noise of the same size."""
    known = generator(0, "patterns", net.name).standard_normal((net.classes, *net.input_shape))
    labels = random.integers(0, net.classes, count)
    return known[labels] + random.standard_normal((count, *net.input_shape)), labels


def vocabularies(net: Net, random: np.random.Generator, count: int) -> Samples:
    """Each class uses some tokens more than others."""
    likings = generator(0, "vocabularies", net.name).standard_normal((net.classes, net.tokens))
    labels = random.integers(0, net.classes, count)
    # The largest of a liking and Gumbel noise is a token drawn by the exponentials of the likings.
    noise = random.gumbel(size=(count, *net.input_shape, net.tokens))
    return (2.0 * likings[labels][:, np.newaxis] + noise).argmax(axis=-1), labels


def repeated_token(net: Net, random: np.random.Generator, count: int) -> Samples:
    """The label is a token that stands in about half of the places; the others are taken by any."""
    labels = random.integers(0, net.tokens, count)
    others = random.integers(0, net.tokens, (count, *net.input_shape))
    return np.where(random.random((count, *net.input_shape)) < 0.5, labels[:, np.newaxis], others), labels


def squares(net: Net, random: np.random.Generator, count: int) -> Samples:
    """A square of one colour on a background of another, under noise; every pixel has the class of its colour."""
    colours = generator(0, "squares", net.name).standard_normal((net.classes, net.input_shape[0]))
    side = net.label_shape[0]
    at = np.arange(side)
    corners, classes = random.integers(0, side // 2, (count, 2)), random.integers(1, net.classes, count)
    rows, columns = ((corners[:, [axis]] <= at) & (at < corners[:, [axis]] + side // 2) for axis in (0, 1))
    labels = classes[:, np.newaxis, np.newaxis] * (rows[:, :, np.newaxis] & columns[:, np.newaxis])
    images = np.moveaxis(colours[labels], -1, 1)
    return images + random.standard_normal(images.shape), labels


@dataclass(frozen=True)
class ModelWorkload:
    """A model trained by the oracle on a task; its metric is the mean training loss of each epoch."""

    model: str
    task: Task
    epochs: int = 2
    updates: int = 60
    """The updates of an epoch."""
    batch: int = 8
    rate: float = 0.05
    momentum: float = 0.5

    metric = "mean training loss"

    @property
    def name(self) -> str:
        """The name of the workload and of its baseline."""
        return f"oracle-{self.model.replace('_', '-')}"

    @property
    def budget(self) -> Mapping[str, Any]:
        """All that the values depend on besides the seed."""
        return {
            "data": self.task.__name__,
            "net": self.model,
            "epochs": self.epochs,
            "updates": self.updates,
            "batch": self.batch,
            "rate": self.rate,
            "momentum": self.momentum,
        }

    def config(self, **changes: Any) -> RunConfig:
        """The configuration of a run; one of its steps is an epoch."""
        config = RunConfig(
            device_iterations=self.updates,
            micro_batch=self.batch,
            steps=self.epochs,
            optimizer=optimizer("sgd", momentum=self.momentum),
            learning_rate=learning_rate(base=self.rate),
        )
        return replace(config, **changes)

    def __call__(self, seed: int) -> Sequence[float]:
        """The mean training loss of each epoch."""
        return self.losses(train, self.config(), seed)

    def losses(self, train: Callable[[Net, Data, RunConfig], RunRecord], config: RunConfig, seed: int) -> List[float]:
        """The mean training loss of each epoch when ``train`` trains the model."""
        net = MODELS[self.model]()
        samples = (config.steps, config.combined_batch)
        inputs, labels = self.task(net, generator(seed, "samples", self.name), samples[0] * samples[1])
        shaped = (inputs.reshape(samples + net.input_shape), labels.reshape(samples + net.label_shape))
        return [float(np.mean(losses)) for losses in train(net, Data(*shaped), config).losses]


WORKLOADS: Dict[str, ModelWorkload] = {
    workload.name: workload
    for workload in (
        ModelWorkload("resnet", patterns),
        ModelWorkload("lstm", patterns),
        ModelWorkload("transformer", patterns),
        ModelWorkload("embedding", vocabularies),
        ModelWorkload("tied_embedding", repeated_token),
        ModelWorkload("unet", squares),
    )
}
"""The workloads by the names of their baselines."""

"""The training loop: after some batches and after each pass a validation on the whole test set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from ipu_conformance.workloads.bars import bar
from ipu_conformance.workloads.paddle_mnist import Settings, saved_model
from ipu_conformance.workloads.paddle_mnist.digits import Samples, datasets, in_order
from ipu_conformance.workloads.paddle_mnist.model import static_mode
from ipu_conformance.workloads.paddle_mnist.trainers import Host, NativeTrainer, Trainer


class Validation(NamedTuple):
    """After which number of batches the test set was gone through, its mean cost and the share recognised."""

    batches: int
    cost: float
    accuracy: float


@dataclass(frozen=True)
class Result:
    """The cost of every batch, every validation, that of each pass, and what the device makes of the best pass."""

    costs: Tuple[float, ...]
    validations: Tuple[Validation, ...]
    passes: Tuple[Validation, ...]
    accuracy: float
    """On the test set, classified by the device with the weights of the best pass."""
    weights: Mapping[str, np.ndarray]
    """The weights and statistics of the best pass."""

    @property
    def best(self) -> int:
        """The number, from 1, of the pass with the lowest validation cost."""
        return 1 + min(range(len(self.passes)), key=lambda number: self.passes[number].cost)


def make_trainer(settings: Settings, host: Host, *, native: bool) -> Trainer:
    """The trainer; only that of the IPU imports what uses the IPU API."""
    if native:
        return NativeTrainer(settings, host)
    from ipu_conformance.workloads.paddle_mnist.ipu import IpuTrainer

    return IpuTrainer(settings, host)


def train(
    settings: Settings,
    *,
    native: bool,
    model: Optional[Path] = None,
    every: int = 300,
    bars: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Result:
    """Train a new network; the model of the best pass so far is always at ``model``, whole.

    With ``native`` no IPU API is touched. A validation follows each ``every`` batches and each pass.
    """
    training, test = datasets(settings)
    costs: List[float] = []
    validations: List[Validation] = []
    passes: List[Validation] = []
    weights: Dict[str, np.ndarray] = {}
    with static_mode():
        host = Host(settings)
        trainer = make_trainer(settings, host, native=native)
        count = settings.train_size // settings.batch_size
        for epoch in range(1, settings.epochs + 1):
            batches = in_order(training, settings, epoch)
            title = f"Epoch {epoch}/{settings.epochs}" if bars else ""
            for number, batch in enumerate(bar(batches, title=title, total=count, unit="batch"), start=1):
                costs.append(trainer.train(batch))
                if number % every == 0 or number == count:
                    trainer.to_host()
                    validations.append(validate(host, test, len(costs)))
                    cost = validations[-1].cost
                    say(f"Epoch {epoch}, batch {number}, Cost {costs[-1]:.6f}, Validation Cost {cost:.6f}")
            passes.append(validations[-1])
            say(f"Epoch {epoch}, accuracy on test set {100 * passes[-1].accuracy:.2f}%")
            if passes[-1].cost <= min(each.cost for each in passes):
                weights = host.weights()
                if model is not None:
                    saved_model.save(host, model)
        accuracy = share_recognised(trainer.classify(test, weights), test)
    return Result(tuple(costs), tuple(validations), tuple(passes), accuracy, weights)


def validate(host: Host, test: Samples, batches: int) -> Validation:
    """The test set with the weights on the host, after ``batches`` updates."""
    probabilities, costs = host.evaluate(test)
    return Validation(batches, float(costs.mean(dtype=np.float64)), share_recognised(probabilities, test))


def share_recognised(probabilities: Any, samples: Samples) -> float:
    """How many of the samples have their own digit as the most probable one."""
    return float(np.mean(probabilities.argmax(axis=1) == samples.labels[:, 0]))

"""A net under training through ``poptorch.trainingModel``, call by call."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence, Tuple

import poptorch
import torch

from ipu_conformance import frameworks
from ipu_conformance.frameworks.poptorch.module import NetModule, array, dtype
from ipu_conformance.frameworks.poptorch.rules import Schedule
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import Array, RunConfig, Weights

PIPELINE_RECOMPUTATION = 3
"""PopART's type of recomputation that keeps what enters a stage and computes the rest again."""
CHECKPOINT = "checkpoint.pt"


def options(config: RunConfig) -> Any:
    """The vendor's options for a configuration."""
    chosen = poptorch.Options()
    chosen.deviceIterations(config.device_iterations)
    chosen.replicationFactor(config.replicas)
    if config.training:
        chosen.Training.gradientAccumulation(config.gradient_accumulation)
        kind = poptorch.ReductionType.Mean if config.accumulation_reduction == "mean" else poptorch.ReductionType.Sum
        chosen.Training.accumulationAndReplicationReductionType(kind)
    # Batch norm's statistics are each replica's own, and replicas need not fill a power of two.
    chosen.broadcastBuffers(False)
    chosen.autoRoundNumIPUs(True)
    chosen.randomSeed(config.seed)
    if config.output_mode == "every_n":
        chosen.outputMode(poptorch.OutputMode.EveryN, config.output_period)
    else:
        chosen.outputMode(getattr(poptorch.OutputMode, config.output_mode.capitalize()))
    if config.stochastic_rounding:
        chosen.Precision.enableStochasticRounding(True)
    if config.partials == "float16":
        chosen.Precision.setPartialsType(torch.float16)
    if config.recompute:
        chosen._Popart.set("autoRecomputation", PIPELINE_RECOMPUTATION)
    strategy = poptorch.ShardedExecution if config.schedule == "sequential" else poptorch.PipelinedExecution
    chosen.setExecutionStrategy(strategy(poptorch.AutoStage.SameAsIpu))
    return chosen


def tensors(data: Data, step: int, config: RunConfig) -> Tuple[torch.Tensor, torch.Tensor]:
    """The combined batch of one step and its labels."""
    return samples(data.inputs[step], config), torch.from_numpy(data.labels[step])


def samples(inputs: Array, config: RunConfig) -> torch.Tensor:
    """Real numbers in the dtype of a configuration; tokens as they are."""
    held = torch.from_numpy(inputs)
    return held.to(dtype(config)) if held.is_floating_point() else held


class Trainer:
    """A training model and, once it is asked for, the inference model beside it."""

    def __init__(self, net: Net, config: RunConfig, family: str, frozen: Sequence[str] = ()) -> None:
        self.net, self.config = net, config
        self.module = NetModule(net, config, frozen).train()
        self.schedule = Schedule(config, self.module.named_parameters(), family)
        self.executor = poptorch.trainingModel(self.module, options(config), self.schedule.optimizer)
        self._evaluator: Optional[Any] = None
        self._moves = 0
        frameworks.observe("poptorch", self.executor)

    def step(self, data: Data, step: int) -> Tuple[Array, Array]:
        """Losses and outputs of one call, at the learning rate of its step."""
        while self._moves < step:
            self._moves += 1
            if self.schedule.advance():
                self.executor.setOptimizer(self.schedule.optimizer)
        logits, loss = self.executor(*tensors(data, step, self.config))
        return array(loss), array(logits)

    def weights(self) -> Weights:
        """The trained weights as the user reads them."""
        return self.module.weights()

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""
        return self.module.statistics()

    def evaluate(self, data: Data, step: int = 0) -> Array:
        """The outputs of inference with what was learned so far."""
        asked = self.config.inference()
        self.module.eval()
        try:
            if self._evaluator is None:
                self._evaluator = poptorch.inferenceModel(self.module, options(asked))
            return array(self._evaluator(tensors(data, step, asked)[0]))
        finally:
            self.module.train()

    def save(self, folder: Path) -> None:
        """Write the model's and the optimizer's state."""
        state = {"model": self.module.state_dict(), "optimizer": self.schedule.optimizer.state_dict()}
        torch.save(state, folder / CHECKPOINT)

    def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote; nothing has run yet."""
        state = torch.load(folder / CHECKPOINT, weights_only=False)
        self.module.load_state_dict(state["model"])
        self.schedule.optimizer.load_state_dict(state["optimizer"])

    def destroy(self) -> None:
        """Leave the device."""
        self.executor.destroy()
        if self._evaluator is not None:
            self._evaluator.destroy()


@contextmanager
def training(net: Net, config: RunConfig, family: str = "poptorch", *, frozen: Sequence[str] = ()) -> Iterator[Trainer]:
    """The net on the device, ready to be trained; ``family`` is torch or poptorch: where the optimizer comes from.

    The state of the vendor's own optimizers can be saved, torch's cannot. The layers ``frozen`` keep their weights.
    """
    trainer = Trainer(net, config, family, frozen)
    try:
        yield trainer
    finally:
        trainer.destroy()

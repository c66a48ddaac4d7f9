"""The driver of PopTorch: the suite's nets as torch modules, trained through the vendor's public API alone.

``native`` trains the same module in plain torch.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterator, List, Optional, Tuple

import numpy as np
import poptorch
import torch

from ipu_conformance import frameworks
from ipu_conformance.frameworks.poptorch.module import NetModule, array, dtype
from ipu_conformance.frameworks.poptorch.ops import run_ops, why_inexpressible
from ipu_conformance.frameworks.poptorch.rules import Schedule, inexpressible, optimizer
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import Array, RunConfig, RunRecord, Weights
from ipu_conformance.targets import Inspector, inspector

__all__ = [
    "NetModule",
    "array",
    "build",
    "infer",
    "inspect",
    "native",
    "optimizer",
    "options",
    "run_ops",
    "supports",
    "train",
    "why_inexpressible",
]


@contextmanager
def build(net: Net, config: RunConfig) -> Iterator[NetModule]:
    """The net as a module with its initial weights and a block for each stage."""
    yield NetModule(net, config).train(config.training)


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
    strategy = poptorch.ShardedExecution if config.schedule == "sequential" else poptorch.PipelinedExecution
    chosen.setExecutionStrategy(strategy(poptorch.AutoStage.SameAsIpu))
    return chosen


def train(net: Net, config: RunConfig, data: Data, *, family: str = "", weights_of_steps: bool = True) -> RunRecord:
    """Train ``net`` through ``poptorch.trainingModel`` and record what the user of the API sees.

    Reading weights between steps brings them to the host each time; ``weights_of_steps`` can be turned off. ``family``
    is torch or poptorch: where the optimizer comes from.
    """
    frameworks.require(supports(net, config))
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    with build(net, config) as module:
        schedule = Schedule(config, list(module.parameters()), family)
        trainer = poptorch.trainingModel(module, options(config), schedule.optimizer)
        frameworks.observe("poptorch", trainer)
        try:
            for step in range(config.steps):
                if step > 0 and schedule.advance():
                    trainer.setOptimizer(schedule.optimizer)
                logits, loss = trainer(*tensors(data, step, config))
                losses.append(array(loss))
                outputs.append(array(logits))
                if weights_of_steps:
                    by_step.append(module.weights())
            weights, statistics = module.weights(), module.statistics()
            replicas = _weights_by_replica(trainer, net, config)
            trace = frameworks.trace("poptorch", trainer, config.replicas)
        finally:
            trainer.destroy()
    return RunRecord(
        config,
        net.name,
        tuple(losses),
        tuple(outputs),
        weights=weights,
        weights_by_replica=replicas,
        weights_by_step=tuple(by_step) or None,
        statistics=statistics,
        trace=trace,
        **frameworks.origin("poptorch", torch.__version__),
    )


def infer(net: Net, config: RunConfig, data: Data) -> RunRecord:
    """Run ``net`` through ``poptorch.inferenceModel`` from its initial weights."""
    frameworks.require(supports(net, config))
    with build(net, config) as module:
        model = poptorch.inferenceModel(module, options(config))
        frameworks.observe("poptorch", model)
        try:
            outputs = tuple(array(model(tensors(data, step, config)[0])) for step in range(config.steps))
            replicas = _weights_by_replica(model, net, config)
            trace = frameworks.trace("poptorch", model, config.replicas)
        finally:
            model.destroy()
    return RunRecord(
        config,
        net.name,
        (),
        outputs,
        weights_by_replica=replicas,
        trace=trace,
        **frameworks.origin("poptorch", torch.__version__),
    )


def native(net: Net, config: RunConfig, data: Data) -> RunRecord:
    """Train ``net`` in plain torch: the gradients of an update's micro-batches add up before the optimizer steps."""
    frameworks.require(supports(net, config))
    frameworks.require(
        frameworks.refusal(
            f"A native run of {net.name}",
            {
                "dropout": any(layer.op == "dropout" for layer in net.layers),
                "batch norm on several replicas": bool(net.statistics) and config.replicas > 1,
                "loss scaling": config.loss_scale != 1.0,
                "lamb": config.optimizer.name == "lamb",
                "half precision": config.dtype != "float32",
                f"the output mode {config.output_mode}": config.output_mode != "all",
            },
        )
    )
    together = config.gradient_accumulation * config.replicas
    share = together if config.accumulation_reduction == "mean" else 1
    module = NetModule(net, replace(config, stages=(), devices=()))
    schedule = Schedule(config, list(module.parameters()))
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    for step in range(config.steps):
        if step > 0:
            schedule.advance()
        results = []
        for inputs, labels in frameworks.updates(data, step, config):
            schedule.optimizer.zero_grad()
            for samples, classes in zip(np.split(inputs, together), np.split(labels, together)):
                logits, loss = module(_samples(samples, config), torch.from_numpy(classes))
                (loss / share).backward()
                results.append((array(logits), array(loss)))
            schedule.optimizer.step()
        outputs.append(np.concatenate([logits for logits, _ in results]))
        losses.append(np.stack([loss for _, loss in results]))
        by_step.append(module.weights())
    return RunRecord(
        config,
        net.name,
        tuple(losses),
        tuple(outputs),
        weights=by_step[-1],
        weights_by_step=tuple(by_step),
        statistics=module.statistics(),
        **frameworks.origin("poptorch", torch.__version__, "native"),
    )


def supports(net: Net, config: RunConfig) -> Optional[str]:
    """Why PopTorch cannot express a run, None if it can."""
    unable = {
        "different reductions of accumulation and replicas": config.accumulation_reduction != config.replica_reduction,
        "gradient clipping by norm": config.clip_norm is not None,
        "one update for several device iterations": config.update == "run" and config.device_iterations > 1,
        "recomputation on request": config.recompute,
        "batch norm with a biased running variance": not config.unbiased_statistics,
    }
    always = {
        "the interleaved schedule": config.schedule == "interleaved",
        f"the output layout of {config.output_layout}": config.output_layout != "poptorch",
    }
    training = {**inexpressible(config), **unable} if config.training else {}
    return frameworks.refusal("PopTorch", {**always, **training})


def inspect() -> Optional[Inspector]:
    """The target's door to what PopTorch does not show."""
    return inspector("poptorch")


def tensors(data: Data, step: int, config: RunConfig) -> Tuple[torch.Tensor, torch.Tensor]:
    """The combined batch of one step and its labels."""
    return _samples(data.inputs[step], config), torch.from_numpy(data.labels[step])


def _samples(inputs: Array, config: RunConfig) -> torch.Tensor:
    """Real numbers in the dtype of a configuration; tokens as they are."""
    samples = torch.from_numpy(inputs)
    return samples.to(dtype(config)) if samples.is_floating_point() else samples


def _weights_by_replica(executor: Any, net: Net, config: RunConfig) -> Optional[Tuple[Weights, ...]]:
    names = {weight.name: weight.name for weight in net.weights}
    return frameworks.by_replica("poptorch", executor, names, config.replicas, lambda _, value: array(value))

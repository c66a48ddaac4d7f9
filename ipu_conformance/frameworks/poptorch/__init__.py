"""The driver of PopTorch: the suite's nets as torch modules, trained through the vendor's public API alone.

``native`` trains the same module in plain torch.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import poptorch
import torch

from ipu_conformance import frameworks
from ipu_conformance.frameworks import limits
from ipu_conformance.frameworks.poptorch.module import NetModule, array
from ipu_conformance.frameworks.poptorch.ops import run_ops, why_inexpressible
from ipu_conformance.frameworks.poptorch.rules import Schedule, optimizer
from ipu_conformance.frameworks.poptorch.trainer import Trainer, options, samples, tensors, training
from ipu_conformance.nets import Data, Net, Weight
from ipu_conformance.run import Array, RunConfig, RunRecord, Weights
from ipu_conformance.targets import Inspector, inspector

__all__ = [
    "NetModule",
    "Trainer",
    "array",
    "build",
    "infer",
    "inspect",
    "native",
    "optimizer",
    "options",
    "run_ops",
    "supports",
    "tensors",
    "train",
    "training",
    "why_inexpressible",
]


@contextmanager
def build(net: Net, config: RunConfig) -> Iterator[NetModule]:
    """The net as a module with its initial weights and a block for each stage."""
    yield NetModule(net, config).train(config.training)


def train(
    net: Net,
    config: RunConfig,
    data: Data,
    *,
    family: str = "",
    weights_of_steps: bool = True,
    frozen: Sequence[str] = (),
) -> RunRecord:
    """Train ``net`` through ``poptorch.trainingModel`` and record what the user of the API sees.

    Reading weights between steps brings them to the host each time; ``weights_of_steps`` can be turned off. ``family``
    is torch or poptorch: where the optimizer comes from. The layers ``frozen`` keep their weights.
    """
    frameworks.require(supports(net, config))
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    with training(net, config, family, frozen=frozen) as trainer:
        for step in range(config.steps):
            loss, logits = trainer.step(data, step)
            losses.append(loss)
            outputs.append(logits)
            if weights_of_steps:
                by_step.append(trainer.weights())
        weights, statistics = trainer.weights(), trainer.statistics()
        replicas = _by_replica(trainer.executor, net.weights, config)
        moved = _by_replica(trainer.executor, net.statistics, config) if net.statistics else None
        trace = frameworks.trace("poptorch", trainer.executor, config.replicas)
        ir = frameworks.ir("poptorch", trainer.executor)
    return RunRecord(
        config,
        net.name,
        tuple(losses),
        tuple(outputs),
        weights=weights,
        weights_by_replica=replicas,
        weights_by_step=tuple(by_step) or None,
        statistics=statistics,
        statistics_by_replica=moved,
        ir=ir,
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
            replicas = _by_replica(model, net.weights, config)
            trace = frameworks.trace("poptorch", model, config.replicas)
            ir = frameworks.ir("poptorch", model)
        finally:
            model.destroy()
    return RunRecord(
        config,
        net.name,
        (),
        outputs,
        weights_by_replica=replicas,
        ir=ir,
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
                "gradient clipping": config.clip_norm is not None,
                "lamb": config.optimizer.name == "lamb",
                "dampening of the first velocity": bool(dict(config.optimizer.settings).get("dampening")),
                "half precision": config.dtype != "float32",
                f"the output mode {config.output_mode}": config.output_mode != "all",
            },
        )
    )
    together = config.gradient_accumulation * config.replicas
    share = together if config.accumulation_reduction == "mean" else 1
    module = NetModule(net, replace(config, stages=(), devices=()))
    schedule = Schedule(config, module.named_parameters())
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    for step in range(config.steps):
        if step > 0:
            schedule.advance()
        results = []
        for inputs, labels in frameworks.updates(data, step, config):
            schedule.optimizer.zero_grad()
            for part, classes in zip(np.split(inputs, together), np.split(labels, together)):
                logits, loss = module(samples(part, config), torch.from_numpy(classes))
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
    return limits.supports("poptorch", net, config)


def inspect() -> Optional[Inspector]:
    """The target's door to what PopTorch does not show."""
    return inspector("poptorch")


def _by_replica(executor: Any, held: Iterable[Weight], config: RunConfig) -> Optional[Tuple[Weights, ...]]:
    names = {each.name: each.name for each in held}
    return frameworks.by_replica("poptorch", executor, names, config.replicas, lambda _, value: array(value))

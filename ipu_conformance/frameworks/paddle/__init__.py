"""The driver of Paddle: the suite's nets as static programs, run through the vendor's public API alone.

``native`` trains the same program with the stock executor, without any IPU API.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle

from ipu_conformance import frameworks
from ipu_conformance.frameworks import limits
from ipu_conformance.frameworks.paddle.ops import run_ops, why_inexpressible
from ipu_conformance.frameworks.paddle.programs import AXES, Program, build
from ipu_conformance.frameworks.paddle.trainer import Trainer, array, compiled_for, strategy, training
from ipu_conformance.nets import Data, Net, Weight
from ipu_conformance.run import Array, RunConfig, RunRecord, Weights
from ipu_conformance.targets import Inspector, inspector

__all__ = [
    "AXES",
    "Program",
    "Trainer",
    "array",
    "build",
    "compiled_for",
    "infer",
    "inspect",
    "native",
    "run_ops",
    "strategy",
    "supports",
    "train",
    "training",
    "why_inexpressible",
]


def train(
    net: Net,
    config: RunConfig,
    data: Data,
    *,
    weights_of_steps: bool = True,
    options: Optional[Mapping[str, Any]] = None,
    frozen: Sequence[str] = (),
) -> RunRecord:
    """Train ``net`` through ``IpuCompiledProgram`` and record what the user of the API sees.

    Reading weights between steps brings them to the host each time; ``weights_of_steps`` can be turned off. The layers
    ``frozen`` keep their weights.
    """
    frameworks.require(supports(net, config))
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    with training(net, config, options, frozen=frozen) as trainer:
        for step in range(config.steps):
            loss, logits = trainer.step(data, step)
            losses.append(loss)
            outputs.append(logits)
            if weights_of_steps:
                by_step.append(trainer.weights())
        return RunRecord(
            config,
            net.name,
            tuple(losses),
            tuple(outputs),
            weights=trainer.weights(),
            weights_by_replica=_by_replica(trainer.compiled, trainer.program, net.weights),
            weights_by_step=tuple(by_step) or None,
            optimizer_state=trainer.program.state() or None,
            statistics=trainer.statistics(),
            statistics_by_replica=_by_replica(trainer.compiled, trainer.program, net.statistics)
            if net.statistics
            else None,
            ir=frameworks.ir("paddle", trainer.compiled),
            trace=frameworks.trace("paddle", trainer.compiled, config.replicas),
            **frameworks.origin("paddle", paddle.__version__),
        )


def infer(net: Net, config: RunConfig, data: Data) -> RunRecord:
    """Run ``net`` through ``IpuCompiledProgram`` without training, from its initial weights."""
    frameworks.require(supports(net, config))
    with build(net, config) as program:
        compiled, run = compiled_for(program, strategy(config))
        outputs = tuple(array(run(program.feed(data, step))[0]) for step in range(config.steps))
        return RunRecord(
            config,
            net.name,
            (),
            outputs,
            weights_by_replica=_by_replica(compiled, program, net.weights),
            ir=frameworks.ir("paddle", compiled),
            trace=frameworks.trace("paddle", compiled, config.replicas),
            **frameworks.origin("paddle", paddle.__version__),
        )


def native(net: Net, config: RunConfig, data: Data) -> RunRecord:
    """Train ``net`` with the stock executor: every update sees all its micro-batches as one large batch.

    The mean over the large batch is the mean of the micro-batches' means, unless batch norm tells them apart.
    """
    frameworks.require(supports(net, config))
    together = config.gradient_accumulation * config.replicas
    frameworks.require(
        frameworks.refusal(
            f"A native run of {net.name}",
            {
                "dropout": any(layer.op == "dropout" for layer in net.layers),
                f"batch norm of {together} micro-batches an update": bool(net.statistics) and together > 1,
                "sums of gradients": config.accumulation_reduction == "sum",
            },
        )
    )
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    with build(net, config, batch=together * config.micro_batch, sharded=False) as program:
        executor = paddle.static.Executor(paddle.CPUPlace())
        each = _each_loss(program)
        for step in range(config.steps):
            fetched = [
                executor.run(program.main, feed=program.batch(inputs, labels), fetch_list=[program.logits, each])
                for inputs, labels in frameworks.updates(data, step, config)
            ]
            losses.append(_returned([loss for _, loss in fetched], config).mean(axis=-1, keepdims=True))
            outputs.append(_returned([logits for logits, _ in fetched], config))
            by_step.append(program.weights())
            if hasattr(program.rate, "step"):
                program.rate.step()
        return RunRecord(
            config,
            net.name,
            tuple(losses),
            tuple(outputs),
            weights=by_step[-1],
            weights_by_step=tuple(by_step),
            optimizer_state=program.state() or None,
            statistics=program.statistics(),
            **frameworks.origin("paddle", paddle.__version__, "native"),
        )


def _each_loss(program: Program) -> Any:
    """The program's own variable of the samples' losses, from which it takes the mean."""
    producers = [op for op in program.main.global_block().ops if op.type == "softmax_with_cross_entropy"]
    return producers[0].output("Loss")[0]


def _returned(values: Sequence[Array], config: RunConfig) -> Array:
    """The values of a step's samples in the shape in which Paddle returns those of micro-batches."""
    rest = np.asarray(values[0]).shape[1:]
    factors = (config.replicas, config.gradient_accumulation, config.device_iterations)
    axes = tuple(factor for factor in factors if factor > 1)
    flat = np.concatenate([np.asarray(value, dtype=np.float64) for value in values])
    return flat.reshape((*axes, config.micro_batch, *(size for size in rest if size > 1)))


def supports(net: Net, config: RunConfig) -> Optional[str]:
    """Why Paddle cannot express a run, None if it can."""
    return limits.supports("paddle", net, config)


def inspect() -> Optional[Inspector]:
    """The target's door to what Paddle does not show."""
    return inspector("paddle")


def _by_replica(compiled: Any, program: Program, held: Iterable[Weight]) -> Optional[Tuple[Weights, ...]]:
    return frameworks.by_replica(
        "paddle",
        compiled,
        {each.name: each.name for each in held},
        program.config.replicas,
        lambda name, value: frameworks.orient(program.net, name, value, AXES, back=True),
    )

"""The driver of Paddle: the suite's nets as static programs, run through the vendor's public API alone.

``native`` trains the same program with the stock executor, without any IPU API.
"""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle

from ipu_conformance import frameworks
from ipu_conformance.frameworks.paddle import rules
from ipu_conformance.frameworks.paddle.ops import run_ops, why_inexpressible
from ipu_conformance.frameworks.paddle.programs import AXES, FEEDS, Program, build
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import Array, RunConfig, RunRecord, Weights
from ipu_conformance.targets import Inspector, inspector

__all__ = [
    "Program",
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
    "why_inexpressible",
]


def strategy(config: RunConfig, **changes: Any) -> Any:
    """The vendor's strategy for a configuration; ``changes`` are further options by name."""
    chosen = paddle.static.IpuStrategy()
    ipus = max(config.devices, default=config.number_of_stages - 1) + 1
    chosen.set_graph_config(
        num_ipus=ipus * config.replicas,
        is_training=config.training,
        micro_batch_size=config.micro_batch,
        enable_manual_shard=ipus > 1,
    )
    accumulating = config.gradient_accumulation > 1
    chosen.set_pipelining_config(
        enable_pipelining=_pipelined(config),
        batches_per_step=config.device_iterations,
        enable_gradient_accumulation=accumulating,
        accumulation_factor=config.gradient_accumulation,
    )
    options = {
        "random_seed": config.seed,
        "loss_scaling": float(config.loss_scale),
        "accumulation_and_replication_reduction_type": int(config.accumulation_reduction != "sum"),
    }
    if config.replicas > 1:
        options.update(enable_replicated_graphs=True, replicated_graph_count=config.replicas)
    chosen.set_options({**options, **changes})
    return chosen


def train(
    net: Net,
    config: RunConfig,
    data: Data,
    *,
    weights_of_steps: bool = True,
    options: Optional[Mapping[str, Any]] = None,
) -> RunRecord:
    """Train ``net`` through ``IpuCompiledProgram`` and record what the user of the API sees.

    Reading weights between steps brings them to the host each time; ``weights_of_steps`` can be turned off.
    """
    frameworks.require(supports(net, config))
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    with build(net, config) as program:
        compiled, run = compiled_for(program, strategy(config, **(options or {})))
        for step in range(config.steps):
            logits, loss = run(program.feed(data, step))
            losses.append(array(loss))
            outputs.append(array(logits))
            if weights_of_steps:
                compiled._backend.weights_to_host()
                by_step.append(program.weights())
            if hasattr(program.rate, "step"):
                program.rate.step()
        compiled._backend.weights_to_host()
        return RunRecord(
            config,
            net.name,
            tuple(losses),
            tuple(outputs),
            weights=program.weights(),
            weights_by_replica=_weights_by_replica(compiled, program),
            weights_by_step=tuple(by_step) or None,
            optimizer_state=program.state() or None,
            statistics=program.statistics(),
            trace=frameworks.trace("paddle", compiled, config.replicas),
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
            weights_by_replica=_weights_by_replica(compiled, program),
            trace=frameworks.trace("paddle", compiled, config.replicas),
            **frameworks.origin("paddle", paddle.__version__),
        )


def compiled_for(program: Program, chosen: Any) -> Tuple[Any, Callable[[Mapping[str, Array]], List[Any]]]:
    """The compiled program of a net for a strategy, and the function that runs it once."""
    compiled = paddle.static.IpuCompiledProgram(program.main, scope=program.scope, ipu_strategy=chosen)
    feeds = list(FEEDS if program.config.training else FEEDS[:1])
    runnable = compiled.compile(feeds, [fetch.name for fetch in program.fetches])
    executor = paddle.static.Executor(paddle.IPUPlace())
    frameworks.observe("paddle", compiled)

    def run(feed: Mapping[str, Array]) -> List[Any]:
        fetched: List[Any] = executor.run(runnable, feed=dict(feed), fetch_list=program.fetches)
        return fetched

    return compiled, run


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


def _pipelined(config: RunConfig) -> bool:
    return config.number_of_stages > 1 and config.schedule == "grouped"


def supports(net: Net, config: RunConfig) -> Optional[str]:
    """Why Paddle cannot express a run, None if it can."""
    unable = {
        **(rules.inexpressible(config) if config.training else {}),
        "different reductions of accumulation and replicas": config.accumulation_reduction != config.replica_reduction,
        "the interleaved schedule": config.schedule == "interleaved",
        f"the output layout of {config.output_layout}": config.output_layout != "paddle",
        "one update for several batches of a step": config.update == "run" and config.device_iterations > 1,
        "emptying a pipeline before an update of one micro-batch": _pipelined(config)
        and config.training
        and config.gradient_accumulation == 1
        and config.update == "device_iteration",
        "recomputation on request": config.recompute,
        "batch norm with an unbiased running variance": config.unbiased_statistics and bool(net.statistics),
        "half precision in this driver": config.dtype != "float32" or config.partials != "float32",
    }
    return frameworks.refusal("Paddle", unable)


def inspect() -> Optional[Inspector]:
    """The target's door to what Paddle does not show."""
    return inspector("paddle")


def array(value: Any) -> Array:
    """A float64 copy of what the target returned."""
    return np.array(value, dtype=np.float64)


def _weights_by_replica(compiled: Any, program: Program) -> Optional[Tuple[Weights, ...]]:
    net, names = program.net, {weight.name: weight.name for weight in program.net.weights}
    return frameworks.by_replica(
        "paddle",
        compiled,
        names,
        program.config.replicas,
        lambda name, value: frameworks.orient(net, name, value, AXES, back=True),
    )

"""The driver of Paddle: the suite's nets as static programs, run through the vendor's public API alone.

``native`` trains the same program with the stock executor, without any IPU API. Where the target is the emulator, the
record of ``train`` also holds each replica's weights and the trace of the last step.
"""

from __future__ import annotations

import heapq
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle

from ipu_conformance.frameworks.paddle import rules
from ipu_conformance.frameworks.paddle.programs import FEEDS, Built, built, oriented
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import Array, RunConfig, RunError, RunRecord, Weights

__all__ = ["Built", "array", "built", "compiled_for", "infer", "native", "plan_of", "strategy", "train"]


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
    _require(net, config)
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    with built(net, config) as made:
        compiled, run = compiled_for(made, strategy(config, **(options or {})))
        for step in range(config.steps):
            logits, loss = run(made.feed(data, step))
            losses.append(array(loss))
            outputs.append(array(logits))
            if weights_of_steps:
                compiled._backend.weights_to_host()
                by_step.append(made.weights())
            if hasattr(made.rate, "step"):
                made.rate.step()
        compiled._backend.weights_to_host()
        replicas, trace = _inside(compiled, made)
        return RunRecord(
            config,
            net.name,
            tuple(losses),
            tuple(outputs),
            weights=made.weights(),
            weights_by_replica=replicas,
            weights_by_step=tuple(by_step) or None,
            optimizer_state=made.state() or None,
            statistics=made.statistics(),
            trace=trace,
            **_where(compiled),
        )


def infer(net: Net, config: RunConfig, data: Data) -> RunRecord:
    """Run ``net`` through ``IpuCompiledProgram`` without training, from its initial weights."""
    _require(net, config)
    with built(net, config) as made:
        compiled, run = compiled_for(made, strategy(config))
        outputs = tuple(array(run(made.feed(data, step))[0]) for step in range(config.steps))
        replicas, trace = _inside(compiled, made)
    return RunRecord(
        config,
        net.name,
        (),
        outputs,
        weights_by_replica=replicas,
        trace=trace,
        **_where(compiled),
    )


def compiled_for(made: Built, chosen: Any) -> Tuple[Any, Callable[[Mapping[str, Array]], List[Any]]]:
    """The compiled program of a net for a strategy, and the function that runs it once."""
    compiled = paddle.static.IpuCompiledProgram(made.main, scope=made.scope, ipu_strategy=chosen)
    feeds = list(FEEDS if made.config.training else FEEDS[:1])
    program = compiled.compile(feeds, [fetch.name for fetch in made.fetches])
    executor = paddle.static.Executor(paddle.IPUPlace())
    device = _emulated(compiled)
    if device is not None:
        device.tracing = True

    def run(feed: Mapping[str, Array]) -> List[Any]:
        fetched: List[Any] = executor.run(program, feed=dict(feed), fetch_list=made.fetches)
        return fetched

    return compiled, run


def native(net: Net, config: RunConfig, data: Data) -> RunRecord:
    """Train ``net`` with the stock executor: every update sees all its micro-batches as one large batch.

    The mean over the large batch is the mean of the micro-batches' means, unless batch norm tells them apart.
    """
    _require(net, config)
    together = config.gradient_accumulation * config.replicas
    if net.statistics and together > 1:
        raise RunError(f"{net.name} has batch norm, whose {together} micro-batches an update cannot be one batch.")
    if any(layer.op == "dropout" for layer in net.layers) or config.accumulation_reduction == "sum":
        raise RunError(f"{net.name} with {config} has no native run: leave out dropout and sums of gradients.")
    losses: List[Array] = []
    outputs: List[Array] = []
    by_step: List[Weights] = []
    with built(net, config, batch=together * config.micro_batch, sharded=False) as made:
        executor = paddle.static.Executor(paddle.CPUPlace())
        each = _each_loss(made)
        for step in range(config.steps):
            pieces = [np.split(whole[step], config.device_iterations) for whole in (data.inputs, data.labels)]
            fetched = [
                executor.run(made.main, feed=made.batch(*piece), fetch_list=[made.logits, each])
                for piece in zip(*pieces)
            ]
            losses.append(_returned([loss for _, loss in fetched], config).mean(axis=-1, keepdims=True))
            outputs.append(_returned([logits for logits, _ in fetched], config))
            by_step.append(made.weights())
            if hasattr(made.rate, "step"):
                made.rate.step()
        return RunRecord(
            config,
            net.name,
            tuple(losses),
            tuple(outputs),
            weights=by_step[-1],
            weights_by_step=tuple(by_step),
            optimizer_state=made.state() or None,
            statistics=made.statistics(),
            framework="paddle",
            target="native",
            environment={"paddle": paddle.__version__},
        )


def _each_loss(made: Built) -> Any:
    """The program's own variable of the samples' losses, from which it takes the mean."""
    producers = [op for op in made.main.global_block().ops if op.type == "softmax_with_cross_entropy"]
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


def _require(net: Net, config: RunConfig) -> None:
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
    for what, asked in unable.items():
        if asked:
            raise RunError(f"Paddle does not do {what}: choose another configuration for it.")


def array(value: Any) -> Array:
    """A float64 copy of what the target returned."""
    return np.array(value, dtype=np.float64)


def plan_of(config: RunConfig) -> Any:
    """The plan that a configuration implies on this front end, to compare with the trace that the emulator records."""
    from ipu_conformance.emulator.core.plan import plan

    batches, accumulation = config.device_iterations, config.gradient_accumulation
    # Without accumulation the batches of a step fill the pipeline, and each is updated by on its way.
    streamed = accumulation == 1 and (not config.training or _pipelined(config))
    return plan(
        config.devices or tuple(range(config.number_of_stages)),
        "popart" if _pipelined(config) else "sequential",
        batches if streamed else accumulation,
        training=config.training,
        replicas=config.replicas,
        device_iterations=1 if streamed else batches,
        accumulate=not (streamed and config.training),
    )


def _emulated(compiled: Any) -> Optional[Any]:
    """What the emulator has on its device; a vendor's build lets nobody look."""
    return getattr(compiled._backend, "executable", None)


def _where(compiled: Any) -> Dict[str, Any]:
    target = "hardware" if paddle.base.core.get_ipu_device_count() else "ipu-model"
    return {
        "framework": "paddle",
        "target": target if _emulated(compiled) is None else "emulator",
        "environment": {"paddle": paddle.__version__},
    }


def _inside(compiled: Any, made: Built) -> Tuple[Optional[Tuple[Weights, ...]], Optional[Tuple[Any, ...]]]:
    """Each replica's weights and the slots of the last step by tick, None where nobody can know."""
    device = _emulated(compiled)
    if device is None:
        return None, None
    names = [weight.name for weight in made.net.weights]
    replicas = range(made.config.replicas)
    held = tuple(
        {name: oriented(made.net, name, array(value)) for name, value in device.machine.read(names, replica).items()}
        for replica in replicas
    )
    # Merging keeps each replica's own order, so that a slot out of turn stays visible.
    slots = heapq.merge(*(device.last_trace.slots(replica) for replica in replicas), key=lambda slot: slot.tick)
    return held, tuple(slots)

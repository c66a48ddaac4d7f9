"""The driver of PopTorch: the suite's nets as torch modules, trained through the vendor's public API alone.

Where the target is the emulator, the record also holds each replica's weights and the trace of the last step.
"""

from __future__ import annotations

import heapq
import tempfile
from contextlib import nullcontext
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import poptorch
import torch
from torch.nn import functional

from ipu_conformance.nets import INPUT, Data, Layer, Net
from ipu_conformance.oracle.training import schedules
from ipu_conformance.run import Array, Rule, RunConfig, RunError, RunRecord, Weights

Kernel = Callable[..., torch.Tensor]

KERNELS: Mapping[str, Kernel] = {
    "linear": lambda module, x, w, b: functional.linear(x, w, b),
    "tanh": lambda module, x: torch.tanh(x),
    "relu": lambda module, x: torch.relu(x),
    "add": lambda module, x, y: x + y,
    "conv": lambda module, x, w, b=None, *, padding: functional.conv2d(x, w, b, padding=padding),
    "max_pool": lambda module, x, *, kernel, stride: functional.max_pool2d(x, kernel, stride),
    "avg_pool": lambda module, x, *, kernel, stride: functional.avg_pool2d(x, kernel, stride),
    "flatten": lambda module, x, *, start, stop: torch.flatten(x, start, stop),
    "dropout": lambda module, x, *, rate: functional.dropout(x, rate, module.training),
}
"""Each op of the nets on torch; batch norm is a module of its own, for its statistics."""


class NetModule(torch.nn.Module):
    """A net as a torch module: weights carry the net's names, stages are blocks, the loss is part of forward."""

    def __init__(self, net: Net, config: RunConfig) -> None:
        super().__init__()
        self.net = net
        self.stages = config.stages or (0,) * len(net.layers)
        self.devices = config.devices or tuple(range(config.number_of_stages))
        start = net.initial_weights(config.seed)
        for layer in net.layers:
            if layer.op == "batch_norm":
                self.add_module(layer.name, _batch_norm(layer, start))
        for name, value in start.items():
            owner, _, leaf = name.rpartition(".")
            if owner not in self._modules:
                self.add_module(owner, torch.nn.Module())
            module = self.get_submodule(owner)
            if leaf not in module._parameters:
                module.register_parameter(leaf, torch.nn.Parameter(torch.from_numpy(value).to(_dtype(config))))

    def forward(self, x: torch.Tensor, labels: Optional[torch.Tensor] = None) -> Any:
        values = {INPUT: x}
        blocks = len(self.devices) > 1
        for stage, ipu in enumerate(self.devices):
            with poptorch.Block(f"stage{stage}", ipu_id=ipu) if blocks else nullcontext():
                for layer, own in zip(self.net.layers, self.stages):
                    if own == stage:
                        values[layer.name] = self._apply(layer, values)
                if stage == len(self.devices) - 1:
                    logits = values[self.net.layers[-1].name]
                    if labels is None:
                        return logits
                    return logits, functional.cross_entropy(logits.float(), labels)
        raise AssertionError("a net has at least one stage")

    def _apply(self, layer: Layer, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        inputs = [values[name] for name in layer.inputs]
        if layer.op == "batch_norm":
            normed: torch.Tensor = self.get_submodule(layer.name)(*inputs)
            return normed
        weights = [self.get_parameter(name) for name in layer.weights]
        return KERNELS[layer.op](self, *inputs, *weights, **layer.attributes)


def _batch_norm(layer: Layer, start: Weights) -> torch.nn.BatchNorm2d:
    attributes = layer.attributes
    channels = len(start[layer.weights[0]])
    return torch.nn.BatchNorm2d(channels, eps=attributes["epsilon"], momentum=attributes["momentum"])


def _dtype(config: RunConfig) -> torch.dtype:
    return torch.float16 if config.dtype == "float16" else torch.float32


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
    modes = {
        "all": poptorch.OutputMode.All,
        "every_n": poptorch.OutputMode.EveryN,
        "final": poptorch.OutputMode.Final,
        "sum": poptorch.OutputMode.Sum,
    }
    if config.output_mode == "every_n":
        chosen.outputMode(modes["every_n"], config.output_period)
    else:
        chosen.outputMode(modes[config.output_mode])
    if config.stochastic_rounding:
        chosen.Precision.enableStochasticRounding(True)
    if config.partials == "float16":
        chosen.Precision.setPartialsType(torch.float16)
    strategy = poptorch.ShardedExecution if config.schedule == "sequential" else poptorch.PipelinedExecution
    chosen.setExecutionStrategy(strategy(poptorch.AutoStage.SameAsIpu))
    return chosen


def plan_of(config: RunConfig) -> Any:
    """The plan that a configuration implies on this front end, to compare with the trace that the emulator records."""
    from ipu_conformance.emulator.core.plan import plan

    iterations, accumulation = config.device_iterations, config.gradient_accumulation
    return plan(
        config.devices or tuple(range(config.number_of_stages)),
        "sequential" if config.schedule == "sequential" else "popart",
        accumulation if config.training else iterations,
        training=config.training,
        replicas=config.replicas,
        device_iterations=iterations if config.training else 1,
    )


def optimizer(config: RunConfig, parameters: Any, rate: float, family: str = "") -> Any:
    """The optimizer for a rule, with every setting passed on; ``family`` is torch or poptorch, torch where it can."""
    rule = config.optimizer
    common: Dict[str, Any] = {"lr": rate, "weight_decay": rule["weight_decay"]}
    if config.loss_scale != 1.0:
        common["loss_scaling"] = config.loss_scale
    own = family == "poptorch" or config.loss_scale != 1.0 or rule.name == "lamb"
    return _OPTIMIZERS[rule.name](poptorch.optim if own else torch.optim, parameters, rule, common)


_OPTIMIZERS: Mapping[str, Callable[[Any, Any, Rule, Dict[str, Any]], Any]] = {
    "sgd": lambda family, parameters, rule, common: family.SGD(
        parameters, momentum=rule["momentum"], dampening=rule["dampening"], nesterov=rule["nesterov"], **common
    ),
    "adam": lambda family, parameters, rule, common: family.Adam(parameters, **_moments(rule), **common),
    "adamw": lambda family, parameters, rule, common: family.AdamW(parameters, **_moments(rule), **common),
    "rmsprop": lambda family, parameters, rule, common: family.RMSprop(
        parameters,
        alpha=rule["alpha"],
        eps=rule["epsilon"],
        momentum=rule["momentum"],
        centered=rule["centred"],
        **common,
    ),
    "lamb": lambda family, parameters, rule, common: family.LAMB(
        parameters, bias_correction=rule["bias_correction"], **_moments(rule), **common
    ),
}


def _moments(rule: Rule) -> Dict[str, Any]:
    return {"betas": (rule["beta1"], rule["beta2"]), "eps": rule["epsilon"]}


def train(net: Net, config: RunConfig, data: Data, *, family: str = "", weights_of_steps: bool = True) -> RunRecord:
    """Train ``net`` through ``poptorch.trainingModel`` and record what the user of the API sees.

    Reading weights between steps brings them to the host each time; ``weights_of_steps`` can be turned off.
    """
    _require(config)
    module = NetModule(net, config)
    parameters = list(module.parameters())
    module.train()
    rate = schedules.rate(config.learning_rate, 0)
    losses, outputs, by_step = [], [], []
    with tempfile.TemporaryDirectory() as reports:
        chosen = options(config)
        if _EMULATED:
            chosen.enableProfiling(reports)
        wrapped = poptorch.trainingModel(module, chosen, optimizer(config, parameters, rate, family))
        try:
            for step in range(config.steps):
                following = schedules.rate(config.learning_rate, step)
                if following != rate:
                    rate = following
                    wrapped.setOptimizer(optimizer(config, parameters, rate, family))
                logits, loss = wrapped(*tensors(data, step, config))
                losses.append(array(loss))
                outputs.append(array(logits))
                if weights_of_steps:
                    by_step.append(weights_of(module, net))
            weights = weights_of(module, net)
            statistics = {weight.name: array(module.state_dict()[weight.name]) for weight in net.statistics}
            replicas, trace = _inside(wrapped, net)
        finally:
            wrapped.destroy()
    return RunRecord(
        config,
        net.name,
        tuple(losses),
        tuple(outputs),
        weights=weights,
        weights_by_replica=replicas,
        weights_by_step=tuple(by_step) or None,
        statistics=statistics or None,
        trace=trace,
        **_WHERE,
    )


def infer(net: Net, config: RunConfig, data: Data) -> RunRecord:
    """Run ``net`` through ``poptorch.inferenceModel`` from its initial weights."""
    module = NetModule(net, config)
    module.eval()
    with tempfile.TemporaryDirectory() as reports:
        chosen = options(config)
        if _EMULATED:
            chosen.enableProfiling(reports)
        wrapped = poptorch.inferenceModel(module, chosen)
        try:
            outputs = tuple(array(wrapped(tensors(data, step, config)[0])) for step in range(config.steps))
            replicas, trace = _inside(wrapped, net)
        finally:
            wrapped.destroy()
    return RunRecord(config, net.name, (), outputs, weights_by_replica=replicas, trace=trace, **_WHERE)


def _require(config: RunConfig) -> None:
    rule = dict(config.optimizer.settings)
    unable = {
        f"the optimizer {config.optimizer.name}": config.optimizer.name not in _OPTIMIZERS,
        "gradient clipping by norm": config.clip_norm is not None,
        "different reductions of accumulation and replicas": config.accumulation_reduction != config.replica_reduction,
        "the interleaved schedule": config.schedule == "interleaved",
        f"the output layout of {config.output_layout}": config.output_layout != "poptorch",
        "one update for several device iterations": config.update == "run" and config.device_iterations > 1,
        "a rate that changes on the device": config.rate_changes == "update",
        "the learning rate inside the velocity": rule.get("rate_in_velocity", False),
        "epsilon inside the root": rule.get("epsilon_inside", False),
        "epsilon beside the uncorrected root": rule.get("epsilon_at") == "uncorrected",
        "recomputation on request": config.recompute,
        "moments without bias correction": config.optimizer.name != "lamb" and not rule.get("bias_correction", True),
        "batch norm with a biased running variance": not config.unbiased_statistics,
    }
    for what, asked in unable.items():
        if asked:
            raise RunError(f"PopTorch does not do {what}: choose another configuration for it.")


def tensors(data: Data, step: int, config: RunConfig) -> Tuple[torch.Tensor, torch.Tensor]:
    """The combined batch of one step and its labels."""
    return torch.from_numpy(data.inputs[step]).to(_dtype(config)), torch.from_numpy(data.labels[step])


def array(value: torch.Tensor) -> Array:
    """A float64 copy of what the target returned."""
    return value.detach().to(torch.float64).numpy().copy()


def weights_of(module: torch.nn.Module, net: Net) -> Weights:
    """The trained weights of a module as its user reads them."""
    held = module.state_dict()
    return {weight.name: array(held[weight.name]) for weight in net.weights}


_EMULATED = hasattr(poptorch.PoplarExecutor, "compiled")
"""Whether the target lets one look inside; a vendor's package does not."""


def _target() -> str:
    if _EMULATED:
        return "emulator"
    return "hardware" if poptorch.ipuHardwareIsAvailable() else "ipu-model"


_WHERE: Dict[str, Any] = {
    "framework": "poptorch",
    "target": _target(),
    "environment": {"torch": torch.__version__},
}


def _inside(wrapped: Any, net: Net) -> Tuple[Optional[Tuple[Weights, ...]], Optional[Tuple[Any, ...]]]:
    """Each replica's weights and the slots of the last step by tick, None where nobody can know."""
    if not _EMULATED:
        return None, None
    replicas = wrapped.compiled.weights.replicas
    held = tuple({weight.name: array(own[weight.name]) for weight in net.weights} for own in replicas)
    # Merging keeps each replica's own order, so that a slot out of turn stays visible.
    slots = heapq.merge(*(wrapped._trace.slots(replica) for replica in range(len(held))), key=lambda slot: slot.tick)
    return held, tuple(slots)

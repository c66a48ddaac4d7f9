"""The program of a compiled model as a graph of PopART ops, its dumps, and what is estimated from its forward pass."""

from __future__ import annotations

import math
import os
from typing import Any, Dict, Mapping

from ipu_conformance.emulator.core import cost, memory
from ipu_conformance.emulator.popart import lowering, onnx
from ipu_conformance.emulator.popart.constants import Numbers
from ipu_conformance.emulator.popart.updates import Training, rmsprop
from ipu_conformance.emulator.poptorch.ir.forward import Forward
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import ReductionType
from ipu_conformance.ir.formats import popart
from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.tensor import IRError

PROTO_FILE = "POPTORCH_EXPORT_PROTO_FILE"
"""The variable that names a file for the program as ONNX."""


def lower(compiled: Any, options: Any, training: bool) -> Graph:
    """The whole program that one replica runs for one micro-batch and, when training, one update."""
    placement = compiled.placement
    execution = lowering.Execution(
        stages=len(placement.topology.placement),
        pipelined=placement.pipelined,
        recompute=compiled.plan.recompute,
        phases=placement.phases if "Phased" in placement.mode else None,
    )
    forward = _forward(compiled, options)
    return lowering.lower(_graph(forward), execution, _training(forward, compiled, options) if training else None)


def forward_graph(compiled: Any, options: Any) -> Graph:
    """The forward pass alone with a stage for every op and no copies: what estimates are made from."""
    return _graph(_forward(compiled, options))


def popart_ir(compiled: Any, options: Any) -> str:
    """The program in the JSON of PopART."""
    return popart.dump(lower(compiled, options, compiled.training)).decode("utf-8")


def export(compiled: Any, options: Any) -> None:
    """Write the program as ONNX, if the environment names a file for it."""
    path = os.environ.get(PROTO_FILE)
    if not path:
        return
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    except OSError as error:
        raise Error(f"{PROTO_FILE} is {path}: its folder cannot be made: {error.strerror}") from error
    try:
        onnx.write(lower(compiled, options, compiled.training), path)
    except IRError as error:
        raise Error(f"{PROTO_FILE} is {path}: {error}") from error


def cycles(compiled: Any, options: Any) -> int:
    """The cycles of one call, by the estimate of the core."""
    graph = forward_graph(compiled, options)
    return int(cost.estimate(compiled.plan, graph, optimizer=_optimizer(compiled)).cycles)


def memory_of(compiled: Any, options: Any) -> memory.MemoryEstimate:
    """The memory that every IPU of a replica needs, by the estimate of the core."""
    return memory.estimate(compiled.plan, forward_graph(compiled, options), optimizer=_optimizer(compiled))


def _forward(compiled: Any, options: Any) -> Forward:
    forward = Forward(
        compiled.captured,
        compiled.placement.stage_of,
        compiled.placement.topology.placement,
        compiled.weights.example,
        scopes=options.module_namescope_enabled,
        shares=options.available_memory_proportion,
    )
    forward.run()
    return forward


def _graph(forward: Forward) -> Graph:
    nodes = [*forward.captured.outputs, *forward.captured.losses]
    return forward.program.graph([forward.name(node) for node in nodes if node is not None and node in forward.names])


def _training(forward: Forward, compiled: Any, options: Any) -> Training:
    settings = compiled.update.settings
    groups: Dict[str, Any] = {name: group for group in settings.groups for name in group.names}
    trainable = [name for name in compiled.weights.trainable if name in groups]
    norm = compiled.update.max_grad_norm
    mean = options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean
    return Training(
        loss=forward.name(compiled.captured.losses[0]),
        optimizers={forward.weights[name]: rule_of(settings, groups[name].values) for name in trainable},
        accumulation=options.Training.gradient_accumulation,
        replicas=options.replication_factor,
        clip_norm=norm if math.isfinite(norm) else None,
        loss_scale=compiled.update.loss_scale,
        mean=mean,
        running_mean=mean and compiled.update.running_mean,
        numbers={forward.weights[name]: _numbers({**settings.whole, **groups[name].values}) for name in trainable},
    )


def _numbers(values: Mapping[str, Any]) -> Numbers:
    """The settings of one group in the words of the lowering."""
    beta1, beta2 = values.get("betas", (0.0, 0.0))
    return Numbers(
        rate=float(values["lr"]),
        momentum=float(values.get("momentum", 0.0)),
        dampening=float(values.get("dampening", 0.0)),
        weight_decay=float(values.get("weight_decay", 0.0)),
        beta1=float(beta1),
        beta2=float(beta2),
        epsilon=float(values.get("eps", 0.0)),
        alpha=float(values.get("alpha", 0.0)),
        corrected=bool(values.get("bias_correction", True)),
        inside=bool(values.get("use_tf_variant", False)),
        max_weight_norm=float(values.get("max_weight_norm", math.inf)),
    )


def rule_of(settings: Any, values: Mapping[str, Any]) -> str:
    """The rule of PopART's that an optimizer with the values of one group follows."""
    momentum = bool(values.get("momentum"))
    if settings.kind == "sgd":
        apart = "sgd2-nesterov" if values.get("nesterov") else "sgd2"
        return "sgd0" if not momentum else "sgd1" if settings.whole.get("use_combined_accum") else apart
    if settings.kind == "rmsprop":
        return rmsprop(centred=bool(values.get("centered")), momentum=momentum)
    return str(settings.kind)


def _optimizer(compiled: Any) -> str:
    """The optimizer as the estimates name it."""
    if compiled.update is None:
        return "sgd"
    settings = compiled.update.settings
    values = settings.groups[0].values if settings.groups else {}
    if settings.kind == "sgd":
        return "momentum" if values.get("momentum") else "sgd"
    return "rmsprop-centered" if settings.kind == "rmsprop" and values.get("centered") else str(settings.kind)

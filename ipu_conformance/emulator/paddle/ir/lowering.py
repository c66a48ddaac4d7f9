"""The compiled program as a graph of PopART's ops, with every op on its IPU and in its stage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Iterable, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator.paddle.compile.compilation import MEAN, RECOMPUTATION_OFF, RUNNING, UNFOLDED_RATE
from ipu_conformance.emulator.popart import lowering
from ipu_conformance.emulator.popart.constants import Numbers
from ipu_conformance.emulator.popart.program import NAME
from ipu_conformance.emulator.popart.updates import Training, rmsprop
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Literal, Tensor

CONSTANT = "Constant"
RULES = {"sgd": "sgd0", "momentum": "sgd2"}
"""The rules of PopART's that Paddle names otherwise."""

_NUMPY = {
    "FLOAT": "<f4", "FLOAT16": "<f2", "DOUBLE": "<f8", "INT64": "<i8", "INT32": "<i4", "INT16": "<i2", "INT8": "i1",
    "UINT8": "u1", "BOOL": "?",
}  # fmt: skip


def lower(record: Any, upto: str = lowering.STEPS[-1]) -> Graph:
    """The program of one replica for one micro-batch and, when training, one update, as far as a step."""
    graph, value = forward(record), record.strategy.value
    execution = lowering.Execution(
        stages=1 + max((op.stage or 0 for op in graph.ops), default=0),
        pipelined=bool(value("enable_pipelining")),
        recompute=record.training and int(value("auto_recomputation")) != RECOMPUTATION_OFF,
    )
    return lowering.lower(graph, execution, _training(record), upto=upto)


def _training(record: Any) -> Optional[Training]:
    optimizer, value = record.optimizer, record.strategy.value
    if not record.training or optimizer is None:
        return None
    mean = int(value("accumulation_and_replication_reduction_type")) == MEAN
    running = int(value("mean_accumulation_and_replication_reduction_strategy")) == RUNNING
    return Training(
        loss=record.aliases.get(record.loss, record.loss),
        optimizers=dict.fromkeys(optimizer.parameters, rule_of(optimizer)),
        accumulation=int(value("accumulation_factor")) if value("enable_gradient_accumulation") else 1,
        replicas=int(value("replicated_graph_count")) if value("enable_replicated_graphs") else 1,
        clip_norm=optimizer.clip_norm,
        loss_scale=float(value("loss_scaling")),
        mean=mean,
        running_mean=mean and running,
        numbers={name: _numbers(record, name) for name in optimizer.parameters},
    )


def _numbers(record: Any, weight: str) -> Numbers:
    """The settings of the folded optimizer for a weight, at the rate that the host holds."""
    optimizer = record.optimizer
    settings = optimizer.settings
    return Numbers(
        rate=_rate(record, optimizer.learning_rate),
        momentum=float(settings.get("momentum", 0.0)),
        weight_decay=float(optimizer.decays.get(weight, optimizer.weight_decay)),
        beta1=float(settings.get("beta1", 0.0)),
        beta2=float(settings.get("beta2", 0.0)),
        epsilon=float(settings.get("eps", 0.0)),
        alpha=float(settings.get("alpha", 0.0)),
    )


def _rate(record: Any, name: Optional[str]) -> float:
    """The learning rate: the variable that holds it, or the device's own where none is folded."""
    if name is not None and record.strategy.value("is_dynamic"):
        return float(record.strategy.value("lr"))
    variable = record.scope.find_var(name) if record.scope is not None and name is not None else None
    if variable is None or not variable.get_tensor()._is_initialized():
        return float(np.float32(UNFOLDED_RATE))
    return float(np.asarray(variable.get_tensor()).reshape(-1)[0])


def rule_of(optimizer: Any) -> str:
    """The rule of PopART's that a folded optimizer follows."""
    settings = optimizer.settings
    if optimizer.type == "rmsprop":
        centred = settings.get("adaptive_mode") == "centered_rmsprop"
        return rmsprop(centred=centred, momentum=bool(settings.get("momentum")))
    return RULES.get(optimizer.type, str(optimizer.type))


def forward(record: Any, *, values: bool = False) -> Graph:
    """The forward pass alone, without copies: what PopART's builder holds; with the weights' values on request."""
    strategy, tensors = record.strategy, record.written.tensors
    sharded, pipelined = bool(strategy.value("enable_manual_shard")), bool(strategy.value("enable_pipelining"))
    ops = placed(record.written.ops, sharded=sharded, pipelined=pipelined)
    # A constant is on the device from the start, like a weight: it is in no stage of its own.
    constants = {op.outputs[0]: _data(op) for op in ops if op.type == CONSTANT}
    ops = tuple(op for op in ops if op.type != CONSTANT)
    made = {name for op in ops for name in op.outputs if name}
    read = dict.fromkeys(name for op in ops for name in op.inputs if name and name not in made)
    feeds = [name for name in record.feeds if name in tensors]
    weights = [name for name in read if name not in feeds and name not in constants]
    initializers: Dict[str, Optional[bytes]] = {
        name: value_of(record.scope, tensors[name]) if values else None for name in weights
    }
    initializers.update({name: data for name, data in constants.items() if name in read})
    fetched = [record.aliases.get(name, name) for name in record.fetches]
    used = {*feeds, *initializers, *made}
    return Graph(
        name=NAME,
        ops=ops,
        inputs=feeds,
        outputs=[name for name in dict.fromkeys(fetched) if name in used],
        tensors=[tensor for name, tensor in tensors.items() if name in used],
        initializers=initializers,
    )


def _data(constant: Op) -> Optional[bytes]:
    value = constant.attributes.get("value")
    return value.data if isinstance(value, Literal) else None


def placed(ops: Sequence[Op], *, sharded: bool, pipelined: bool) -> Tuple[Op, ...]:
    """The ops on IPUs: those that were written, or IPU 0; in a pipeline with stages, or those of the IPUs in order."""
    ipus = [(op.ipu or 0) if sharded else 0 for op in ops]
    numbers = {ipu: number for number, ipu in enumerate(sorted(set(ipus)))}
    staged = sharded and any(op.stage is not None for op in ops)
    stages: Iterable[Optional[int]]
    if not pipelined:
        stages = [None for _ in ops]
    elif staged:
        stages = [op.stage or 0 for op in ops]
    else:
        stages = [numbers[ipu] for ipu in ipus]
    return tuple(replace(op, ipu=ipu, stage=stage) for op, ipu, stage in zip(ops, ipus, stages))


def value_of(scope: Any, tensor: Tensor) -> Optional[bytes]:
    """The values that the host holds of a weight, None where it holds none of that shape."""
    variable = scope.find_var(tensor.name) if scope is not None else None
    if variable is None or tensor.dtype not in _NUMPY or not variable.get_tensor()._is_initialized():
        return None
    data = np.asarray(variable.get_tensor()).astype(_NUMPY[tensor.dtype]).tobytes()
    return data if len(data) == tensor.nbytes else None

"""The compiled program as a graph of PopART's ops, with every op on its IPU and in its stage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults.decisions import paddle_ir as decide
from ipu_conformance.emulator.paddle.ir import gradients as lowering_gradients
from ipu_conformance.emulator.paddle.ir import updates
from ipu_conformance.emulator.paddle.ir.copies import copied
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Literal, Tensor

NAME = "maingraph"
CONSTANT = "Constant"
STEPS = ("forward", "backward", "update", "copies")
"""What a lowered program holds; each step adds to the one before."""

_NUMPY = {
    "FLOAT": "<f4", "FLOAT16": "<f2", "DOUBLE": "<f8", "INT64": "<i8", "INT32": "<i4", "INT16": "<i2", "INT8": "i1",
    "UINT8": "u1", "BOOL": "?",
}  # fmt: skip


@dataclass
class Program:
    """A program that is being lowered."""

    ops: List[Op]
    tensors: Dict[str, Tensor]
    stages: int
    """How many stages the forward pass has."""
    pipelined: bool
    held: Dict[str, Optional[bytes]] = field(default_factory=dict)
    """Tensors that are on the device from the start, beside the weights."""

    def backward_stage(self, stage: Optional[int]) -> Optional[int]:
        """The stage that computes the gradients of a forward stage; the last one computes its own."""
        return None if stage is None else decide("backward stage", 2 * (self.stages - 1) - stage, forward=stage)

    def declare(self, name: str, like: Tensor) -> str:
        """Add a tensor like another one; a name that is taken gets a number."""
        unique, count = name, 0
        while unique in self.tensors:
            count += 1
            unique = f"{name}__{count}"
        self.tensors[unique] = replace(like, name=unique)
        return unique

    def add(self, type: str, inputs: Sequence[str], outputs: Sequence[str], at: Op, **attributes: Any) -> str:
        """Add an op where another one is placed, and return its first output."""
        self.ops.append(Op(type, type, tuple(inputs), tuple(outputs), attributes, ipu=at.ipu, stage=at.stage))
        return outputs[0]


def forward(record: Any, *, values: bool = False) -> Graph:
    """The forward pass alone, without copies: what PopART's builder holds; with the weights' values on request."""
    program = _program(record)
    graph = _graph(record, program, [], values=values)
    return faults.apply("ir.graph", graph) if faults.active else graph


def lower(record: Any, upto: str = STEPS[-1]) -> Graph:
    """The program of one replica for one micro-batch and, when training, one update, as far as a step."""
    program = _program(record)
    wanted = STEPS[: STEPS.index(upto) + 1]
    updated: List[str] = []
    if record.training and record.optimizer is not None and "backward" in wanted:
        loss = record.aliases.get(record.loss, record.loss)
        gradients = lowering_gradients.backward(program, loss, record.optimizer.parameters)
        updated = list(gradients.values())
        if "update" in wanted:
            updated = updates.updates(program, gradients, record.optimizer, record.strategy)
    if decide("copies", "copies" in wanted):
        program.ops, program.tensors = copied(program.ops, program.tensors, pipelined=program.pipelined)
    graph = _graph(record, program, updated)
    return faults.apply("ir.graph", graph) if faults.active else graph


def _program(record: Any) -> Program:
    strategy, written = record.strategy, record.written
    sharded, pipelined = bool(strategy.value("enable_manual_shard")), bool(strategy.value("enable_pipelining"))
    ops = placed(written.ops, sharded=sharded, pipelined=pipelined)
    stages = 1 + max((op.stage or 0 for op in ops), default=0)
    # A constant is on the device from the start, like a weight: it is in no stage of its own.
    constants = {op.outputs[0]: _data(op) for op in ops if op.type == CONSTANT}
    return Program([op for op in ops if op.type != CONSTANT], dict(written.tensors), stages, pipelined, constants)


def _data(constant: Op) -> Optional[bytes]:
    value = constant.attributes.get("value")
    return value.data if isinstance(value, Literal) else None


def placed(ops: Sequence[Op], *, sharded: bool, pipelined: bool) -> Tuple[Op, ...]:
    """The ops on IPUs: those that were written, or IPU 0; in a pipeline with stages, or those of the IPUs in order."""
    ipus = [(op.ipu or 0) if sharded else 0 for op in ops]
    numbers = {ipu: number for number, ipu in enumerate(sorted(set(ipus)))}
    given = sharded and any(op.stage is not None for op in ops)
    stages: Iterable[Optional[int]]
    if not pipelined:
        stages = [None for _ in ops]
    elif given:
        stages = [op.stage or 0 for op in ops]
    else:
        stages = [numbers[ipu] for ipu in ipus]
    return tuple(replace(op, ipu=ipu, stage=stage) for op, ipu, stage in zip(ops, ipus, stages))


def _graph(record: Any, program: Program, updated: Sequence[str], *, values: bool = False) -> Graph:
    made = {name for op in program.ops for name in op.outputs if name}
    read = dict.fromkeys(name for op in program.ops for name in op.inputs if name and name not in made)
    feeds = [name for name in record.feeds if name in program.tensors]
    weights = [name for name in read if name not in feeds and name not in program.held]
    initializers: Dict[str, Optional[bytes]] = {
        name: value_of(record.scope, program.tensors[name]) if decide("values", values) else None for name in weights
    }
    initializers.update({name: data for name, data in program.held.items() if name in read})
    fetched = [record.aliases.get(name, name) for name in record.fetches]
    outputs = [name for name in dict.fromkeys([*fetched, *updated]) if name in made or name in read or name in feeds]
    used = {*feeds, *initializers, *made}
    return Graph(
        name=NAME,
        ops=program.ops,
        inputs=feeds,
        outputs=outputs,
        tensors=[tensor for name, tensor in program.tensors.items() if name in used],
        initializers=initializers,
    )


def value_of(scope: Any, tensor: Tensor) -> Optional[bytes]:
    """The values that the host holds of a weight, None where it holds none of that shape."""
    found = scope.find_var(tensor.name) if scope is not None else None
    if found is None or tensor.dtype not in _NUMPY or not found.get_tensor()._is_initialized():
        return None
    data = np.asarray(found.get_tensor()).astype(_NUMPY[tensor.dtype]).tobytes()
    return data if len(data) == tensor.nbytes else None

"""An estimate of the cycles that a plan takes, from a simple model of what an op computes and moves.

The model is documented, with its formulae, in docs/estimates.md. It ranks configurations; it does not predict a
vendor's compiler. An op type that is not in the table counts as element-wise, and the estimate names it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator.core.device import Device
from ipu_conformance.emulator.core.memory import STATE_SLOTS
from ipu_conformance.emulator.core.plan import Kind, Plan
from ipu_conformance.emulator.core.stage_loads import StageLoad, device_bytes, is_float, stage_loads, total_bytes
from ipu_conformance.errors import ConformanceError
from ipu_conformance.ir.graph import Graph, Op

OP_OVERHEAD = 500
"""Cycles that every op costs beside its work: control code and the synchronisation of its tiles."""
SYNC_OVERHEAD = 1000
"""Cycles that every tick costs: the synchronisation of the IPUs."""
VECTOR_BYTES = 8
"""What a tile's vector unit reads, computes and writes in a cycle: two float32 or four float16 values."""


class CostEstimateError(ConformanceError):
    """A cost estimate was asked for that the model does not cover."""


class Work(NamedTuple):
    """What one execution of an op computes: multiply-accumulates, and simple operations on single values."""

    macs: float = 0
    vector: float = 0


class Shapes(NamedTuple):
    """The shapes of an op's inputs and outputs, None for those that are omitted."""

    inputs: Tuple[Optional[Tuple[int, ...]], ...]
    outputs: Tuple[Optional[Tuple[int, ...]], ...]


@dataclass(frozen=True)
class Row:
    """A kind of op: its forward work, and how many times that its backward does."""

    work: Callable[[Op, Shapes], Work]
    backward: float
    moves: bool = True
    """Whether its inputs and outputs travel between tiles; views of a tensor do not."""


def _conv(op: Op, shapes: Shapes) -> Work:
    """Every output is a sum over the filter: its channels of one group times its window."""
    return Work(
        macs=math.prod(_known_shape(op, shapes.outputs, 0)) * math.prod(_known_shape(op, shapes.inputs, 1, 2)[1:])
    )


def _conv_transpose(op: Op, shapes: Shapes) -> Work:
    return Work(
        macs=math.prod(_known_shape(op, shapes.inputs, 0)) * math.prod(_known_shape(op, shapes.inputs, 1, 2)[1:])
    )


def _matmul(op: Op, shapes: Shapes) -> Work:
    return Work(macs=math.prod(_known_shape(op, shapes.outputs, 0)) * _known_shape(op, shapes.inputs, 0, 1)[-1])


def _gemm(op: Op, shapes: Shapes) -> Work:
    output = math.prod(_known_shape(op, shapes.outputs, 0))
    inner = _known_shape(op, shapes.inputs, 0, 2)[0 if op.attributes.get("transA") else -1]
    return Work(macs=output * inner, vector=output if len(op.inputs) > 2 else 0)


def _pool(op: Op, shapes: Shapes) -> Work:
    """Every output looks at one window."""
    window = op.attributes.get("kernel_shape")
    if not isinstance(window, tuple):
        raise CostEstimateError(f"the work of {op} needs its kernel_shape, and it has {window!r}; give it a list")
    return Work(vector=math.prod(_known_shape(op, shapes.outputs, 0)) * math.prod(int(side) for side in window))


def _per_input(factor: float) -> Callable[[Op, Shapes], Work]:
    """``factor`` operations for each element of the first input: reductions and normalisations."""
    return lambda op, shapes: Work(vector=factor * math.prod(_known_shape(op, shapes.inputs, 0)))


def _per_output(factor: float) -> Callable[[Op, Shapes], Work]:
    """``factor`` operations for each element of the first output: element-wise ops."""
    return lambda op, shapes: Work(vector=factor * math.prod(_known_shape(op, shapes.outputs, 0)))


def _nothing(op: Op, shapes: Shapes) -> Work:
    return Work()


_GROUPS: Tuple[Tuple[Row, str], ...] = (
    # A product's backward is two products of the same size: one for each operand's gradient.
    (Row(_conv, 2), "Conv"),
    (Row(_conv_transpose, 2), "ConvTranspose"),
    (Row(_matmul, 2), "MatMul"),
    (Row(_gemm, 2), "Gemm"),
    (Row(_pool, 1), "MaxPool AveragePool LpPool"),
    (Row(_per_input(1), 1), "GlobalAveragePool GlobalMaxPool ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd "
     "ReduceL1 ReduceL2 ReduceSumSquare ArgMax ArgMin"),
    (Row(_per_input(4), 2), "BatchNormalization LayerNormalization InstanceNormalization GroupNormalization"),
    (Row(_per_input(10), 1), "Softmax LogSoftmax Nll SoftmaxCrossEntropyLoss"),
    (Row(_per_output(1), 1), "Add Sub Mul Neg Abs Relu LeakyRelu PRelu Clip Max Min Sum Mean Where Equal Greater Less "
     "And Or Not Cast Floor Ceil Round Sign Dropout IdentityLoss L1 Scale"),
    (Row(_per_output(4), 1), "Div Sqrt Reciprocal Exp Log Pow Sigmoid Tanh Sin Cos Erf Gelu Elu Selu Softplus Softsign "
     "HardSigmoid Swish"),
    (Row(_nothing, 1), "Transpose Concat Split Slice Gather Pad Expand Tile Scatter"),
    (Row(_nothing, 0, moves=False), "Reshape Flatten Squeeze Unsqueeze Identity Constant Shape"),
)  # fmt: skip
TABLE: Mapping[str, Row] = {name: row for row, names in _GROUPS for name in names.split()}
UNKNOWN = Row(_per_output(1), 1)


@dataclass(frozen=True)
class CostEstimate:
    """An estimate, not a measurement: the cycles of one call of the device; all replicas take the same."""

    cycles: float
    seconds: float
    utilisation: Tuple[float, ...]
    """For every IPU of a replica, the share of the time in which it executes a slot."""
    bubble: float
    """The share of the time in which the IPUs that have a stage wait, on average."""
    by_kind: Mapping[str, float]
    """Cycles of all slots of a kind together, without waiting."""
    macs: float
    """Multiply-accumulates of one replica."""
    assumed: Tuple[str, ...]
    """Op types that are not in the table and count as element-wise."""

    def __str__(self) -> str:
        lines = [f"estimated {self.cycles:,.0f} cycles, {self.seconds:.6f} s, bubble {self.bubble:.1%}"]
        lines += [f"  IPU {ipu}: busy {share:.1%}" for ipu, share in enumerate(self.utilisation)]
        lines += [f"  {kind}: {cycles:,.0f} cycles" for kind, cycles in self.by_kind.items()]
        if self.assumed:
            lines.append(f"  taken for element-wise: {', '.join(self.assumed)}")
        return "\n".join(lines)


def estimate(plan: Plan, graph: Graph, *, optimizer: str = "sgd") -> CostEstimate:
    """The cycles that a plan takes for a forward graph of one micro-batch, on the device of the plan's topology.

    A slot lasts as long as its ops and exchanges, one after the other; a tick as long as its longest slot; a plan as
    long as its ticks.
    """
    if optimizer not in STATE_SLOTS:
        raise CostEstimateError(f"optimizer {optimizer!r} is not known; use one of {', '.join(STATE_SLOTS)}")
    loads = stage_loads(graph, plan)
    device = plan.topology.device
    slots = np.zeros((len(Kind), plan.stages))
    macs = np.zeros((len(Kind), plan.stages))
    returned = _gradients_returned(graph, loads, plan.topology.placement)
    for load in loads:
        slots[:, load.stage], macs[:, load.stage] = _slot_cycles(graph, plan, load, returned[load.stage], optimizer)

    columns = plan.columns
    cycles = slots[columns["kind"], columns["stage"]]
    starts = np.flatnonzero(np.diff(columns["tick"], prepend=-1))
    makespan = float(np.sum(np.maximum.reduceat(cycles, starts) + SYNC_OVERHEAD))
    busy = np.bincount(columns["ipu"], weights=cycles, minlength=plan.ipus)
    by_kind = np.bincount(columns["kind"], weights=cycles, minlength=len(Kind))
    used = list(plan.topology.used)
    return CostEstimate(
        cycles=makespan,
        seconds=makespan / device.clock_hz,
        utilisation=tuple(float(share) for share in busy / makespan),
        bubble=float(1 - busy[used].sum() / (len(used) * makespan)),
        by_kind={str(kind): float(by_kind[kind]) for kind in Kind if by_kind[kind]},
        macs=float(np.sum(macs[columns["kind"], columns["stage"]])),
        assumed=tuple(sorted({op.type for op in graph.ops if op.type not in TABLE})),
    )


def op_work(graph: Graph, op: Op) -> Work:
    """What one execution of an op computes, from the shapes of its tensors."""
    return TABLE.get(op.type, UNKNOWN).work(op, _shapes(graph, op))


def op_cycles(graph: Graph, op: Op, device: Device, *, times: float = 1) -> float:
    """The cycles of an op whose work is done ``times`` times: a fixed overhead, computing, then moving."""
    if times == 0:
        return 0.0
    row = TABLE.get(op.type, UNKNOWN)
    work = row.work(op, _shapes(graph, op))
    moved = total_bytes(graph, tuple(name for name in (*op.inputs, *op.outputs) if name)) if row.moves else 0
    half = _is_half(graph, op)
    width = 2 if half else 4
    compute = work.macs / device.macs_per_cycle("float16" if half else "float32")
    compute += work.vector * width / (device.tiles * VECTOR_BYTES)
    exchange = moved / (device.tiles * device.exchange_bytes_per_cycle)
    return OP_OVERHEAD + times * (compute + exchange)


def _slot_cycles(
    graph: Graph, plan: Plan, load: StageLoad, returned: int, optimizer: str
) -> Tuple[np.ndarray, np.ndarray]:
    """The cycles and multiply-accumulates of a stage's slot of every kind."""
    device, placement = plan.topology.device, plan.topology.placement
    per_link_byte = device.clock_hz / device.link_bandwidth
    per_host_byte = device.clock_hz / device.host_bandwidth
    sent = sum(
        total_bytes(graph, names) for later, names in load.sends.items() if placement[later] != placement[load.stage]
    )
    streamed = total_bytes(
        graph,
        tuple(name for name in load.inputs if name in graph.inputs)
        + tuple(name for name in load.produced if name in graph.outputs),
    )
    gradients = total_bytes(graph, load.trainable)
    slots, macs = np.zeros(len(Kind)), np.zeros(len(Kind))
    ops = sum(op_cycles(graph, op, device) for op in load.ops)
    slots[Kind.FORWARD] = ops + sent * per_link_byte + streamed * per_host_byte
    slots[Kind.RECOMPUTE] = ops
    slots[Kind.BACKWARD] = returned * per_link_byte + sum(
        op_cycles(graph, op, device, times=TABLE.get(op.type, UNKNOWN).backward) for op in load.ops
    )
    # A ring: every replica sends each part of its gradients once to be summed and once to be shared.
    ring = 2 * (plan.replicas - 1) / plan.replicas
    slots[Kind.REDUCE] = OP_OVERHEAD * len(load.trainable) + ring * gradients * per_link_byte
    # A step reads weight, gradient and state and writes weight and state.
    touched = gradients * (2 + STATE_SLOTS[optimizer])
    slots[Kind.UPDATE] = OP_OVERHEAD * len(load.trainable) + touched / (device.tiles * VECTOR_BYTES)
    for op in load.ops:
        work = op_work(graph, op).macs
        macs[[Kind.FORWARD, Kind.RECOMPUTE]] += work
        macs[Kind.BACKWARD] += work * TABLE.get(op.type, UNKNOWN).backward
    return slots, macs


def _gradients_returned(graph: Graph, loads: Sequence[StageLoad], placement: Sequence[int]) -> Dict[int, int]:
    """For every stage the bytes of gradients that its backward sends back to stages on other IPUs."""
    returned = {load.stage: 0 for load in loads}
    for load in loads:
        for later, names in load.sends.items():
            if placement[later] == placement[load.stage]:
                continue
            returned[later] += sum(device_bytes(graph, name) for name in names if is_float(graph.tensors[name]))
    return returned


def _shapes(graph: Graph, op: Op) -> Shapes:
    def shape(name: str) -> Any:
        return graph.tensors[name].shape if name else None

    return Shapes(tuple(map(shape, op.inputs)), tuple(map(shape, op.outputs)))


def _known_shape(op: Op, shapes: Tuple[Any, ...], index: int, rank: int = 0) -> Tuple[int, ...]:
    """The shape of one tensor; CostEstimateError unless it is fully known and has at least ``rank`` dimensions."""
    shape = shapes[index] if index < len(shapes) else None
    if shape is None or None in shape or len(shape) < rank:
        raise CostEstimateError(
            f"the work of {op} needs a tensor {index} with a full shape of {rank} or more dimensions, and it has "
            f"{shape}; give it one"
        )
    return tuple(shape)


def _is_half(graph: Graph, op: Op) -> bool:
    return any(graph.tensors[name].dtype == "FLOAT16" for name in (*op.inputs, *op.outputs) if name)

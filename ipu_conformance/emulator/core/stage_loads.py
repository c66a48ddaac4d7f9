"""What each stage of a plan holds and sends: the tensors and ops of a forward graph, by stage.

The graph is that of one micro-batch on one replica, loss included. Memory and cost are both computed from these loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Mapping, Tuple

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.errors import ConformanceError
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import BITS, Tensor

_ON_DEVICE: Mapping[str, int] = {"INT64": 32, "UINT64": 32, "DOUBLE": 32, "COMPLEX128": 64, "BFLOAT16": 32}
_FLOATS = frozenset({"FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"})
_STATISTICS_INPUTS = (3, 4)
"""Where BatchNormalization takes its running mean and variance, which are updated but not trained."""


class LoadError(ConformanceError):
    """A graph does not fit the stages of a plan."""


@dataclass(frozen=True)
class StageLoad:
    """One stage's share of the graph; sizes are bytes on the device for one micro-batch."""

    stage: int
    ops: Tuple[Op, ...]
    weights: Tuple[str, ...]
    """Initializers that the stage owns: it is the first to read them."""
    trainable: Tuple[str, ...]
    """Those of its weights that have gradients."""
    inputs: Tuple[str, ...]
    """What it reads that earlier stages or the host provide."""
    produced: Tuple[str, ...]
    sends: Mapping[int, Tuple[str, ...]]
    """The tensors that it sends, by the later stage that reads them."""
    live: int
    """The most bytes of its own tensors that are needed at once when nothing is kept for a backward."""


def element_bytes(dtype: str) -> float:
    """The bytes that one element takes on the device, which narrows 64-bit types and widens bfloat16."""
    bits = _ON_DEVICE.get(dtype, BITS[dtype])
    if bits is None:
        raise LoadError(f"elements of {dtype} have no size on the device; give every tensor a numeric dtype")
    return bits / 8


def device_bytes(graph: Graph, name: str) -> int:
    """The bytes that a tensor takes on the device."""
    tensor = graph.tensors[name]
    if tensor.elements is None:
        raise LoadError(f"the size of tensor {name!r} is not known; give it a full shape, with the micro-batch size")
    return int(-(-tensor.elements * element_bytes(tensor.dtype) // 1))


def total_bytes(graph: Graph, names: Tuple[str, ...]) -> int:
    """The bytes that several tensors take on the device."""
    return sum(device_bytes(graph, name) for name in names)


def is_float(tensor: Tensor) -> bool:
    """Whether a tensor has a gradient."""
    return tensor.dtype in _FLOATS


def stage_loads(graph: Graph, plan: Plan) -> Tuple[StageLoad, ...]:
    """The load of every stage, in order."""
    stage_of = _stages(graph, plan)
    made_by = {name: stage for op, stage in zip(graph.ops, stage_of) for name in op.outputs if name}
    ops: List[List[Op]] = [[] for _ in range(plan.stages)]
    reads: List[Dict[str, None]] = [{} for _ in range(plan.stages)]
    for op, stage in zip(graph.ops, stage_of):
        ops[stage].append(op)
        reads[stage].update((name, None) for name in op.inputs if name)
    owner: Dict[str, int] = {}
    for stage, names in enumerate(reads):
        for name in names:
            if made_by.get(name, 0) > stage:
                raise LoadError(
                    f"stage {stage} reads {name!r}, which stage {made_by[name]} makes; stages read from earlier ones"
                )
            if name in graph.initializers:
                owner.setdefault(name, stage)
    trained = _trainable(graph)
    loads = []
    for stage in range(plan.stages):
        produced = tuple(name for op in ops[stage] for name in op.outputs if name)
        # A weight that nothing reads still takes room; the first stage has it.
        weights = tuple(name for name in graph.initializers if owner.get(name, 0) == stage)
        loads.append(
            StageLoad(
                stage=stage,
                ops=tuple(ops[stage]),
                weights=weights,
                trainable=tuple(name for name in weights if name in trained),
                inputs=tuple(
                    name for name in reads[stage] if name not in graph.initializers and made_by.get(name, -1) != stage
                ),
                produced=produced,
                sends={
                    later: sent
                    for later in range(stage + 1, plan.stages)
                    for sent in [tuple(name for name in produced if name in reads[later])]
                    if sent
                },
                live=_live(graph, ops[stage], frozenset(graph.outputs).union(*reads[stage + 1 :])),
            )
        )
    return tuple(loads)


def _stages(graph: Graph, plan: Plan) -> List[int]:
    """The stage of every op: its own, else the only stage of its IPU, else the plan's only stage."""
    stages = []
    for op in graph.ops:
        stage = op.stage
        if stage is None:
            on_ipu = range(plan.stages) if op.ipu is None else plan.topology.stages_on(op.ipu)
            if len(on_ipu) != 1:
                raise LoadError(f"{op} has no stage, and {len(on_ipu)} stages are possible; set its stage")
            stage = on_ipu[0]
        if stage >= plan.stages:
            raise LoadError(f"{op} is in stage {stage}, and the plan has {plan.stages}; give the forward graph alone")
        if op.ipu is not None and op.ipu != plan.topology.placement[stage]:
            raise LoadError(
                f"{op} of stage {stage} is on IPU {op.ipu}, and the plan has that stage on IPU "
                f"{plan.topology.placement[stage]}; plan with the graph's placement"
            )
        stages.append(stage)
    return stages


def _trainable(graph: Graph) -> FrozenSet[str]:
    statistics = {
        op.inputs[index]
        for op in graph.ops
        if op.type == "BatchNormalization"
        for index in _STATISTICS_INPUTS
        if index < len(op.inputs)
    }
    return frozenset(name for name in graph.initializers if name not in statistics and is_float(graph.tensors[name]))


def _live(graph: Graph, ops: List[Op], wanted_later: FrozenSet[str]) -> int:
    """The peak of the bytes of tensors between the op that makes them and the last that reads them."""
    last_read = {name: index for index, op in enumerate(ops) for name in op.inputs if name}
    change = [0] * (len(ops) + 1)
    for index, op in enumerate(ops):
        for name in op.outputs:
            if name:
                nbytes = device_bytes(graph, name)
                end = len(ops) - 1 if name in wanted_later else last_read.get(name, index)
                change[index] += nbytes
                change[end + 1] -= nbytes
    now = peak = 0
    for delta in change:
        now += delta
        peak = max(peak, now)
    return peak

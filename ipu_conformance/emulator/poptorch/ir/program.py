"""The program under construction: ops in order, where each is placed, and copies where a value changes its IPU."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor

TYPES: Mapping[torch.dtype, str] = {
    torch.float32: "FLOAT",
    torch.float64: "FLOAT",
    torch.bfloat16: "FLOAT",
    torch.float16: "FLOAT16",
    torch.int64: "INT32",
    torch.int32: "INT32",
    torch.int16: "INT16",
    torch.int8: "INT8",
    torch.uint8: "UINT8",
    torch.bool: "BOOL",
    torch.complex64: "COMPLEX64",
    torch.complex128: "COMPLEX64",
}
"""The types of the device: 64 bits are narrowed and bfloat16 is widened."""

_PACKED = {"FLOAT": "<f", "FLOAT16": "<e", "INT32": "<i", "INT16": "<h", "INT8": "<b", "UINT8": "<B", "BOOL": "<?"}

FLOATS = ("FLOAT", "FLOAT16")

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "MultiConv")
"""Ops that trade memory for speed, and whose gradients do; the types of those begin with the op's own."""

MEMORY_SHARE = "availableMemoryProportion"

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Pipeline:
    """The stages of forward and backward in one row: stage F-1-k of the forward pass is F-1+k of the backward pass."""

    ipus: Tuple[int, ...]
    """The IPU of every forward stage."""
    pipelined: bool
    """Whether ops carry their stage, and values pass from stage to stage."""
    phases: Optional[Tuple[int, ...]] = None
    """The phase of every forward stage, where there are phases."""

    def ipu(self, stage: int) -> int:
        """The IPU of a stage of either pass."""
        return self.ipus[self.forward(stage)]

    def backward(self, stage: int) -> int:
        """The stage that computes the gradients of a forward stage; the last one computes its own."""
        return 2 * (len(self.ipus) - 1) - stage

    def forward(self, stage: int) -> int:
        """The forward stage that a stage of either pass belongs to."""
        return min(stage, 2 * (len(self.ipus) - 1) - stage)


@dataclass(frozen=True)
class Entry:
    """An op of the forward pass, as the backward pass needs it: its inputs before they were copied."""

    type: str
    scope: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    stage: int
    recompute: bool


@dataclass
class Program:
    """What is lowered so far."""

    pipeline: Pipeline
    copying: bool = True
    """Whether a value that changes its IPU is copied by an op; an estimate counts such transfers by itself."""
    recompute: bool = False
    shares: Mapping[int, float] = field(default_factory=dict)
    """The share of memory that products and convolutions may use in between, of the IPUs that have one."""
    ops: List[Op] = field(default_factory=list)
    tensors: Dict[str, Tensor] = field(default_factory=dict)
    inputs: List[str] = field(default_factory=list)
    initializers: Dict[str, Optional[bytes]] = field(default_factory=dict)
    entries: List[Entry] = field(default_factory=list)
    _home: Dict[str, int] = field(default_factory=dict)
    _copies: Dict[Tuple[str, int], str] = field(default_factory=dict)
    _counts: Dict[str, int] = field(default_factory=dict)

    def declare(self, name: str, dtype: str, shape: Sequence[int]) -> str:
        """Add a tensor; a name that is taken gets a number."""
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        unique = f"{name}__{count}" if count else name
        if unique in self.tensors:
            return self.declare(name, dtype, shape)
        self.tensors[unique] = Tensor(unique, dtype, tuple(int(length) for length in shape))
        return unique

    def host_input(self, name: str, dtype: str, shape: Sequence[int]) -> str:
        """Add a tensor that the host streams in."""
        self.inputs.append(self.declare(name, dtype, shape))
        return self.inputs[-1]

    def held(self, name: str, dtype: str, shape: Sequence[int]) -> str:
        """Add a tensor that lives on the device from the start: a weight, or state of the optimizer."""
        unique = self.declare(name, dtype, shape)
        self.initializers[unique] = None
        return unique

    def constant(self, name: str, dtype: str, value: Any) -> str:
        """Add a single number."""
        unique = self.declare(name, dtype, ())
        self.initializers[unique] = struct.pack(_PACKED[dtype], float(value) if dtype in FLOATS else int(value))
        return unique

    def kind(self, name: str) -> str:
        """The dtype of a tensor."""
        return self.tensors[name].dtype

    def shape(self, name: str) -> Shape:
        """The shape of a tensor, which is always known."""
        return tuple(length or 0 for length in self.tensors[name].shape or ())

    def home(self, name: str) -> int:
        """The stage that makes a tensor or, if none does, the one that reads it first."""
        return self._home.get(name, 0)

    def emit(
        self,
        type: str,
        scope: str,
        inputs: Sequence[str],
        outputs: Sequence[Tuple[str, str, Sequence[int]]],
        stage: int,
        attributes: Optional[Mapping[str, Any]] = None,
        *,
        remember: bool = False,
        recompute: bool = False,
    ) -> Tuple[str, ...]:
        """Add an op with its copies and return the names of its outputs, which are given as (name, dtype, shape)."""
        placed = tuple(self.at(name, stage, scope) if name else "" for name in inputs)
        made = tuple(self.declare(*output) for output in outputs)
        for name in made:
            self._home[name] = stage
        again = recompute and self.recompute
        self._append(type, scope, placed, made, stage, attributes or {}, again)
        if remember:
            self.entries.append(Entry(type, scope, tuple(inputs), made, stage, again))
        return made

    def at(self, name: str, stage: int, scope: str) -> str:
        """The tensor as a stage reads it: itself, or its copy on the IPU of that stage."""
        home = self._home.setdefault(name, stage)
        ipu = self.pipeline.ipu
        if not self.copying or ipu(home) == ipu(stage):
            return name
        if (name, ipu(stage)) in self._copies:
            return self._copies[name, ipu(stage)]
        # In a pipeline a value passes through every stage in between; elsewhere it goes straight.
        forwards = 1 if stage > home else -1
        path = range(home + forwards, stage + forwards, forwards) if self.pipeline.pipelined else (stage,)
        now, before = name, home
        for place in path:
            if ipu(place) == ipu(home):
                now = name
            elif (name, ipu(place)) in self._copies:
                now = self._copies[name, ipu(place)]
            elif ipu(place) != ipu(before):
                now = self._copy(name, now, scope, before, place)
            before = place
        return now

    def _copy(self, origin: str, source: str, scope: str, before: int, place: int) -> str:
        ipu = self.pipeline.ipu(place)
        made = self.declare(f"{origin}_c{ipu}", self.kind(origin), self.shape(origin))
        self._home[made] = place
        self._copies[origin, ipu] = made
        ends = {"sourceIpu": self.pipeline.ipu(before), "destIpu": ipu}
        self._append("IpuCopy", scope, (source,), (made,), before, ends, False)
        return made

    def _append(
        self,
        type: str,
        scope: str,
        inputs: Tuple[str, ...],
        outputs: Tuple[str, ...],
        stage: int,
        attributes: Mapping[str, Any],
        again: bool,
    ) -> None:
        full = {**attributes, "recompute": "YES" if again else "NO"}
        if self.pipeline.phases is not None:
            full["__execution_phase"] = self.pipeline.phases[self.pipeline.forward(stage)]
        bare = type.rpartition("::")[2]
        ipu = self.pipeline.ipu(stage)
        if type.startswith(PRODUCTS) and ipu in self.shares:
            full.setdefault(MEMORY_SHARE, self.shares[ipu])
        self.ops.append(
            Op(
                type=type,
                name=f"{scope}/{bare}" if scope else bare,
                inputs=inputs,
                outputs=outputs,
                attributes=full,
                ipu=ipu,
                stage=stage if self.pipeline.pipelined else None,
            )
        )

    def graph(self, name: str, outputs: Sequence[str]) -> Graph:
        """The finished graph."""
        return Graph(
            name=name,
            ops=self.ops,
            inputs=self.inputs,
            outputs=tuple(dict.fromkeys(outputs)),
            tensors=self.tensors,
            initializers=self.initializers,
        )

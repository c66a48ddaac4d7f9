"""A program under construction: ops in order, the tensors that they read and make, and what the device holds."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor

NAME = "maingraph"
FLOATS = ("FLOAT", "FLOAT16")
RECOMPUTE = "recompute"
MEMORY_SHARE = "availableMemoryProportion"
"""The share of an IPU's memory that a product may use while it runs."""

_PACKED = {"FLOAT": "<f", "FLOAT16": "<e", "INT32": "<i", "INT16": "<h", "INT8": "<b", "UINT8": "<B", "BOOL": "<?"}


class Place(NamedTuple):
    """Where an op runs."""

    ipu: Optional[int] = None
    stage: Optional[int] = None


@dataclass
class Program:
    """What is lowered so far."""

    ops: List[Op] = field(default_factory=list)
    tensors: Dict[str, Tensor] = field(default_factory=dict)
    inputs: List[str] = field(default_factory=list)
    initializers: Dict[str, Optional[bytes]] = field(default_factory=dict)
    _counts: Dict[str, int] = field(default_factory=dict)
    _intermediates: int = 0

    @classmethod
    def of(cls, graph: Graph) -> Program:
        """A program that begins with a graph."""
        return cls(list(graph.ops), dict(graph.tensors), list(graph.inputs), dict(graph.initializers))

    def declare(self, tensor: Tensor) -> str:
        """Add a tensor; a name that is taken gets a number."""
        unique = tensor.name
        while unique in self.tensors:
            self._counts[tensor.name] = self._counts.get(tensor.name, 0) + 1
            unique = f"{tensor.name}__{self._counts[tensor.name]}"
        self.tensors[unique] = replace(tensor, name=unique)
        return unique

    def intermediate(self, name: str) -> str:
        """The name of a value on the way: PopART numbers those of one program."""
        self._intermediates += 1
        return f"{name}__t{self._intermediates - 1}"

    def host_input(self, tensor: Tensor) -> str:
        """Add a tensor that the host streams in."""
        self.inputs.append(self.declare(tensor))
        return self.inputs[-1]

    def held(self, tensor: Tensor) -> str:
        """Add a tensor that is on the device from the start: a weight, or state of the optimizer."""
        unique = self.declare(tensor)
        self.initializers[unique] = None
        return unique

    def constant(self, name: str, dtype: str, value: Any) -> str:
        """Add a single number."""
        unique = self.declare(Tensor(name, dtype, ()))
        self.initializers[unique] = struct.pack(_PACKED[dtype], float(value) if dtype in FLOATS else int(value))
        return unique

    def filled(self, tensor: Tensor, value: float) -> str:
        """Add a tensor that is one number everywhere; one of an unknown size is held without its value."""
        if tensor.elements is None or tensor.dtype not in _PACKED:
            return self.held(tensor)
        unique = self.declare(tensor)
        number = float(value) if tensor.dtype in FLOATS else int(value)
        self.initializers[unique] = struct.pack(_PACKED[tensor.dtype], number) * tensor.elements
        return unique

    def dtype(self, name: str) -> str:
        """The dtype of a tensor."""
        return self.tensors[name].dtype

    def shape(self, name: str) -> Tuple[int, ...]:
        """The shape of a tensor; unknown dimensions are 0."""
        return tuple(length or 0 for length in self.tensors[name].shape or ())

    def add(
        self,
        type: str,
        inputs: Sequence[str],
        outputs: Sequence[Tensor],
        place: Place,
        *,
        name: str = "",
        attributes: Optional[Mapping[str, Any]] = None,
    ) -> Tuple[str, ...]:
        """Add an op and return the names of its outputs."""
        names = tuple(self.declare(tensor) for tensor in outputs)
        self.ops.append(Op(type, name, tuple(inputs), names, attributes or {}, ipu=place.ipu, stage=place.stage))
        return names

    def graph(self, outputs: Sequence[str]) -> Graph:
        """The finished graph."""
        return Graph(
            name=NAME,
            ops=self.ops,
            inputs=self.inputs,
            outputs=tuple(dict.fromkeys(outputs)),
            tensors=self.tensors,
            initializers=self.initializers,
        )

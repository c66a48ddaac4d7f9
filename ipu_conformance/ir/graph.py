"""The neutral graph: ops with ONNX and PopART type names, tensors with shapes and dtypes, and where each op is placed.

A graph is immutable and validated when it is made, so that whoever holds one may rely on it: every tensor has exactly
one source (a graph input, an initializer or an op), ops stand in an order in which they could be executed, and every
name, dtype, dimension and attribute can be written to every format.
"""

from __future__ import annotations

from collections import Counter, abc
from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

from ipu_conformance.ir.tensor import (
    Attribute,
    FrozenDict,
    IRError,
    Literal,
    Tensor,
    checked_names,
    checked_scalar,
    describe,
    is_int,
    require_data,
    require_text,
    shown,
)

IPU_ATTRIBUTE = "__ipu_number"
STAGE_ATTRIBUTE = "__pipeline_stage"
"""How PopART names an op's placement among its attributes; here it is ``Op.ipu`` and ``Op.stage`` instead."""

DEFAULT_OPSET = 11
"""The newest ONNX opset that PopART reads."""

_INDEX_MAX = 2**31 - 1


@dataclass(frozen=True)
class Op:
    """One operation; the empty name among ``inputs`` or ``outputs`` stands for one that is omitted.

    ``type`` is an ONNX or PopART name; an op of any other domain carries it in front, as in "com.acme::Spin".
    Names of ops need not be unique: PopART names an op after the module it comes from.
    """

    type: str
    name: str = ""
    inputs: Tuple[str, ...] = ()
    outputs: Tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: FrozenDict({}))
    ipu: Optional[int] = None
    stage: Optional[int] = None

    def __post_init__(self) -> None:
        require_text(self.type, "an op's type")
        require_text(self.name, "an op's name")
        domain, separator, bare = self.type.rpartition("::")
        if not bare or (separator and not domain) or not self.type.isprintable():
            raise IRError(f"op {self.name!r} has type {self.type!r}; give an ONNX or PopART name, or domain::name")
        object.__setattr__(self, "inputs", checked_names(self.inputs, f"the inputs of {self.type} {self.name!r}"))
        object.__setattr__(self, "outputs", checked_names(self.outputs, f"the outputs of {self.type} {self.name!r}"))
        if type(self.attributes) is not FrozenDict:  # those of another op are checked
            self._check_attributes()
        for what, index in (("ipu", self.ipu), ("stage", self.stage)):
            if index is None:
                continue
            if not is_int(index) or not 0 <= index <= _INDEX_MAX:
                raise IRError(f"{self} has {what} {shown(index)}; give an index from 0 to {_INDEX_MAX}, or None")
            object.__setattr__(self, what, int(index))

    def __str__(self) -> str:
        """The op as sentences call it: ``Conv 'conv2'``, or by its first output when it has no name."""
        if self.name or not self.outputs:
            return f"{self.type} {self.name!r}"
        return f"{self.type} that makes {self.outputs[0]!r}"

    def _check_attributes(self) -> None:
        if not isinstance(self.attributes, abc.Mapping):
            raise IRError(f"the attributes of {self} are a {type(self.attributes).__name__}; give a mapping")
        attributes = {key: self._attribute(key, value) for key, value in self.attributes.items()}
        object.__setattr__(self, "attributes", FrozenDict(dict(sorted(attributes.items(), key=lambda item: item[0]))))

    def _attribute(self, key: str, value: object) -> Attribute:
        require_text(key, f"the name of an attribute of {self}")
        if not key or key in (IPU_ATTRIBUTE, STAGE_ATTRIBUTE):
            raise IRError(f"{self} has an attribute named {key!r}; give the placement as ipu= and stage=")
        what = f"attribute {key!r} of {self}"
        if isinstance(value, Literal):
            return value
        if isinstance(value, (list, tuple)):
            values = tuple(checked_scalar(item, what) for item in value)
            if any(isinstance(item, float) for item in values):
                values = tuple(float(item) if isinstance(item, int) else item for item in values)
            if len({type(item) for item in values}) > 1:
                raise IRError(f"{what} mixes numbers and text; give a list of one kind")
            return values
        return checked_scalar(value, what)


@dataclass(frozen=True)
class Graph:
    """Ops in an order in which they can be executed, with every tensor that they read and make.

    ``tensors`` may be given as Tensors or as a mapping from names to them. ``initializers`` are the weights and
    constants that the graph carries: names, or a mapping from names to little-endian bytes or to None where the
    values are left out. ``opset`` is the version of the ONNX operators that the type names refer to.
    """

    name: str
    ops: Tuple[Op, ...] = ()
    inputs: Tuple[str, ...] = ()
    outputs: Tuple[str, ...] = ()
    tensors: Mapping[str, Tensor] = field(default_factory=lambda: FrozenDict({}))
    initializers: Mapping[str, Optional[bytes]] = field(default_factory=lambda: FrozenDict({}))
    opset: int = DEFAULT_OPSET

    def __init__(
        self,
        name: str,
        ops: Iterable[Op] = (),
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        tensors: Union[Mapping[str, Tensor], Iterable[Tensor]] = (),
        initializers: Union[Mapping[str, Optional[bytes]], Iterable[str]] = (),
        opset: int = DEFAULT_OPSET,
    ) -> None:
        require_text(name, "a graph's name")
        if not name:
            raise IRError("the graph has no name; ONNX asks for one")
        if not is_int(opset) or not 1 <= opset <= _INDEX_MAX:
            raise IRError(f"graph {name!r} has opset {shown(opset)}; give a positive number")
        fields = {
            "name": name,
            "ops": tuple(ops),
            "inputs": checked_names(inputs, "the graph's inputs"),
            "outputs": checked_names(outputs, "the graph's outputs"),
            "tensors": _tensors(tensors),
            "initializers": _initializers(initializers),
            "opset": opset,
        }
        for key, value in fields.items():
            object.__setattr__(self, key, value)
        self._validate()

    @cached_property
    def producers(self) -> Mapping[str, Op]:
        """The op that makes each tensor; graph inputs and initializers have none."""
        return FrozenDict({name: op for op in self.ops for name in op.outputs if name})

    @cached_property
    def _consumers(self) -> Dict[str, Tuple[Op, ...]]:
        consumers: Dict[str, List[Op]] = {}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                if name:
                    consumers.setdefault(name, []).append(op)
        return {name: tuple(readers) for name, readers in consumers.items()}

    def consumers(self, tensor: str) -> Tuple[Op, ...]:
        """The ops that read a tensor, in graph order."""
        return self._consumers.get(tensor, ())

    @property
    def weights(self) -> Tuple[Tensor, ...]:
        """The tensors that the graph carries, in the order of ``initializers``."""
        return tuple(self.tensors[name] for name in self.initializers)

    def bytes_of(self, tensor: str) -> int:
        """The size of a tensor's values in bytes; an error when shape or dtype leave it open."""
        if tensor not in self.tensors:
            raise IRError(f"graph {self.name!r} has no tensor {tensor!r}")
        nbytes = self.tensors[tensor].nbytes
        if nbytes is None:
            raise IRError(f"the size of {describe(self.tensors[tensor])} is not known; give its dtype and full shape")
        return nbytes

    def _validate(self) -> None:
        for what, names in (("input", self.inputs), ("output", self.outputs)):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise IRError(f"graph {self.name!r} lists the {what} {twice[0]!r} twice")
        sources: Dict[str, str] = dict.fromkeys(self.inputs, "a graph input")
        for name, data in self.initializers.items():
            _add_source(sources, name, "an initializer")
            if name in self.tensors and data is not None:
                require_data(self.tensors[name], data)
        available = set(sources)
        for op in self.ops:
            if not isinstance(op, Op):
                raise IRError(f"graph {self.name!r} holds a {type(op).__name__} among its ops; give Op")
            for name in op.outputs:
                if name:
                    _add_source(sources, name, str(op))
        for name in sources:
            if name not in self.tensors:
                raise IRError(f"tensor {name!r} of graph {self.name!r} is not declared; add a Tensor for it")
        for name in self.tensors:
            if name not in sources:
                raise IRError(f"tensor {name!r} has no source; make it a graph input, an initializer or an op's output")
        for name in self.outputs:
            if name not in sources:
                raise IRError(f"graph output {name!r} is not a tensor of graph {self.name!r}")
        self._validate_order(available, sources)

    def _validate_order(self, available: Set[str], sources: Mapping[str, str]) -> None:
        for op in self.ops:
            for name in op.inputs:
                if not name or name in available:
                    continue
                if name not in sources:
                    raise IRError(f"{op} reads {name!r}, which is not a tensor of graph {self.name!r}")
                in_order(self.ops)
                raise IRError(f"{op} reads {name!r} before {sources[name]} makes it; pass the ops through in_order()")
            available.update(op.outputs)


def in_order(ops: Sequence[Op]) -> Tuple[Op, ...]:
    """The ops in an order in which they can be executed, as close to the given one as can be; a cycle is an error."""
    makers = {name: index for index, op in enumerate(ops) for name in op.outputs if name}
    placed: Dict[int, bool] = {}  # False while the op's own sources are being placed
    ordered: List[Op] = []
    for start in range(len(ops)):
        pending = [start]
        while pending:
            index = pending[-1]
            if index in placed:
                pending.pop()
                if not placed[index]:
                    placed[index] = True
                    ordered.append(ops[index])
                continue
            placed[index] = False
            needed = [makers[name] for name in ops[index].inputs if name in makers]
            for other in needed:
                if placed.get(other) is False:
                    raise IRError(f"{ops[index]} and {ops[other]} are on a cycle; a graph has none")
            pending.extend(other for other in reversed(needed) if other not in placed)
    return tuple(ordered)


def _tensors(tensors: object) -> FrozenDict[str, Tensor]:
    if not isinstance(tensors, Iterable):
        raise IRError(f"the graph's tensors are a {type(tensors).__name__}; give Tensors")
    by_name: Dict[str, Tensor] = {}
    for tensor in tensors.values() if isinstance(tensors, Mapping) else tensors:
        if not isinstance(tensor, Tensor):
            raise IRError(f"the graph's tensors hold a {type(tensor).__name__}; give Tensor")
        if tensor.name in by_name:
            raise IRError(f"tensor {tensor.name!r} is declared twice")
        by_name[tensor.name] = tensor
    return FrozenDict(by_name)


def _initializers(initializers: object) -> FrozenDict[str, Optional[bytes]]:
    if isinstance(initializers, Mapping):
        names = checked_names(initializers, "the graph's initializers")
        return FrozenDict({name: initializers[name] for name in names})
    names = checked_names(initializers, "the graph's initializers")
    if len(set(names)) < len(names):
        raise IRError("the graph's initializers name a tensor twice")
    return FrozenDict(dict.fromkeys(names))


def _add_source(sources: Dict[str, str], name: str, source: str) -> None:
    if name in sources:
        raise IRError(f"tensor {name!r} has two sources, {sources[name]} and {source}; a tensor is made once")
    sources[name] = source

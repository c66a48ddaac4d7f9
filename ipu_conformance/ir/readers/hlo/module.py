"""Writer XLA's HLO text: the ENTRY computation becomes the graph.

Computations that are called or fused become a part of their caller, and those that a loop or a branch runs are kept as
attributes of its op, instruction by instruction. What ONNX can express becomes its ops, with Transposes where HLO has
dimensions in another order; all else becomes an op of the domain "xla". A layout in memory that is not the usual one,
and attributes for the device's compiler, are attributes of the op; a sharding on one device is its IPU.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.readers.hlo.ops import ROWS, Call, UnsupportedError, Writer
from ipu_conformance.ir.readers.hlo.text import (
    ArrayShape,
    Computation,
    HloShape,
    Instruction,
    Module,
    TupleShape,
    parse,
)
from ipu_conformance.ir.readers.op_writer import MAX_CALLED, expanded, most_called
from ipu_conformance.ir.readers.tensorflow.placement import STAGE
from ipu_conformance.ir.tensor import BITS, UNDEFINED, IRError, Tensor, shown

DOMAIN = "xla"
MAX_BRANCHES = 100
MAX_KEPT = 10_000
"""The most instructions of one computation that are kept as an attribute."""

_INLINED = {"call": "to_apply", "fusion": "calls"}
_COMPUTATIONS = (
    "to_apply", "condition", "body", "true_computation", "false_computation", "branch_computations", "calls",
)  # fmt: skip
_LEFT_OUT = ("metadata", "sharding", "backend_config", "frontend_attributes")
_ON_ONE = re.compile(r"\s*maximal\s+device=(\d{1,9})\b")
_STAGE = re.compile(rf'\b{STAGE}="?(\d{{1,9}})"?')

Value = Union[str, List[Any]]
"""The name of a tensor, or the values of a tuple."""


def load(data: bytes) -> Graph:
    """The graph of a module."""
    return graph_of(parse(data))


def graph_of(module: Module) -> Graph:
    """The graph of a module that was parsed."""
    _require_bounded(module)
    reader = _Reader(module)
    entry = module.computations[module.entry]
    arguments: Dict[int, Value] = {}
    inputs: List[str] = []
    for instruction in entry.instructions:
        if instruction.opcode == "parameter":
            arguments[_number(instruction)] = reader.declare(instruction.shape, instruction.name, inputs)
    result = reader.run(entry, arguments, "")
    outputs = list(dict.fromkeys(_leaves(result)))
    writing = reader.to
    outputs_of_ops = [name for op in writing.ops for name in op.outputs]
    used = dict.fromkeys([*inputs, *writing.initializers, *outputs_of_ops])
    return Graph(
        name=module.name,
        ops=writing.ops,
        inputs=inputs,
        outputs=[name for name in outputs if name in used],
        tensors=[writing.tensors[name] for name in used],
        initializers=dict.fromkeys(writing.initializers),
    )


def _require_bounded(module: Module) -> None:
    """Refuse a module that is too large once computations are parts of their callers; nothing is expanded for that."""
    called = {
        name: [each.attributes.get(_INLINED.get(each.opcode, ""), "") for each in computation.instructions]
        for name, computation in module.computations.items()
    }
    total = expanded(called[module.entry], called)
    most = most_called(sum(map(len, called.values())))
    if total > most:
        raise IRError(f"the module calls {shown(total)} instructions in all; at most {most} are read")


def _number(instruction: Instruction) -> int:
    if not re.fullmatch(r"\d{1,6}", instruction.literal):
        raise IRError(f"parameter {instruction.name!r} has no number")
    return int(instruction.literal)


def _leaves(value: Value) -> List[str]:
    return [value] if isinstance(value, str) else [leaf for part in value for leaf in _leaves(part)]


class _Reader:
    """Reads computations one into the other."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.to = Writer(module)
        self.left = MAX_CALLED

    def declare(self, shape: HloShape, name: str, names: Optional[List[str]] = None) -> Value:
        """New tensors for a shape, under a name that nothing else has."""
        if isinstance(shape, TupleShape):
            return [self.declare(part, f"{name}.{place}", names) for place, part in enumerate(shape.parts)]
        unique = self.to.unique(name, self.to.tensors)
        dtype = shape.dtype if shape.dtype in BITS else UNDEFINED
        self.to.tensors[unique] = Tensor(unique, dtype, shape.lengths)
        if names is not None:
            names.append(unique)
        return unique

    def run(self, computation: Computation, given: Mapping[int, Value], prefix: str) -> Value:
        """Read a computation with values for its parameters; its result."""
        values: Dict[str, Value] = {}
        for instruction in computation.instructions:
            values[instruction.name] = self._instruction(instruction, values, given, prefix)
        return values[computation.root]

    def _instruction(
        self, instruction: Instruction, values: Mapping[str, Value], given: Mapping[int, Value], prefix: str
    ) -> Value:
        opcode = instruction.opcode
        if opcode == "parameter":
            if _number(instruction) not in given:
                raise IRError(f"parameter {instruction.name!r} is number {instruction.literal}, and is not given")
            return given[_number(instruction)]
        operands: List[Value] = []
        for name in instruction.operands:
            if name not in values:
                raise IRError(f"{opcode} {instruction.name!r} reads {name!r}, which stands nowhere before it")
            operands.append(values[name])
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element":
            return self._element(instruction, operands)
        if opcode in _INLINED:
            called = self._called(instruction, _INLINED[opcode])
            inner = f"{prefix}{instruction.name}/"
            return self.run(called, dict(enumerate(operands)), inner)
        return self._op(instruction, operands, prefix)

    @staticmethod
    def _element(instruction: Instruction, operands: Sequence[Value]) -> Value:
        index = instruction.attributes.get("index", "")
        held = operands[0] if operands else ""
        if isinstance(held, str) or not re.fullmatch(r"\d{1,6}", index) or int(index) >= len(held):
            raise IRError(f"get-tuple-element {instruction.name!r} takes number {index!r} of what has no such part")
        part: Value = held[int(index)]
        return part

    def _called(self, instruction: Instruction, key: str) -> Computation:
        name = instruction.attributes.get(key, "")
        if name not in self.module.computations:
            raise IRError(f"{instruction.opcode} {instruction.name!r} calls {name!r}, which is not in the module")
        return self.module.computations[name]

    def _op(self, instruction: Instruction, operands: Sequence[Value], prefix: str) -> Value:
        result = self.declare(instruction.shape, prefix + instruction.name)
        ipu, stage = _placed(instruction)
        names = tuple(leaf for operand in operands for leaf in _leaves(operand))
        call = Call(instruction, names, result if isinstance(result, str) else "", ipu, stage)
        before = len(self.to.ops)
        self.to.begin(call)
        rule = ROWS.get(instruction.opcode) if isinstance(result, str) and len(names) == len(operands) else None
        try:
            if rule is None:
                raise UnsupportedError
            rule(call, self.to)
        except UnsupportedError:
            del self.to.ops[before:]
            attributes = {**_kept(instruction), **self._computations(instruction)}
            self.to.add(f"{DOMAIN}::{instruction.opcode}", names, _leaves(result), attributes)
        except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            raise IRError(f"{instruction.opcode} {instruction.name!r} is not as XLA makes them ({reason})") from None
        self.to.mark(before, _marks(instruction))
        return result

    def _computations(self, instruction: Instruction) -> Dict[str, Any]:
        """The computations that an op runs, an instruction a line."""
        attributes: Dict[str, Any] = {}
        for key in _COMPUTATIONS:
            for name in re.findall(r"[\w.\-]+", instruction.attributes.get(key, ""))[:MAX_BRANCHES]:
                computation = self.module.computations.get(name)
                if computation is None:
                    continue
                self.left -= len(computation.instructions)
                if self.left < 0 or len(computation.instructions) > MAX_KEPT:
                    raise IRError(f"computation {name!r} is too long to be kept; at most {MAX_KEPT} instructions are")
                attributes[f"{key} {name}"] = tuple(
                    f"{each.name} = {each.opcode}({each.literal or ', '.join(each.operands)})"
                    for each in computation.instructions
                )
        return attributes


def _placed(instruction: Instruction) -> Tuple[Optional[int], Optional[int]]:
    sharding = _ON_ONE.match(instruction.attributes.get("sharding", ""))
    stage = _STAGE.search(instruction.attributes.get("frontend_attributes", ""))
    return int(sharding[1]) if sharding else None, int(stage[1]) if stage else None


def _kept(instruction: Instruction) -> Dict[str, Any]:
    """The attributes of an op that keeps its own name."""
    kept: Dict[str, Any] = {key: value for key, value in instruction.attributes.items() if key not in _LEFT_OUT}
    if instruction.literal:
        kept["literal"] = instruction.literal
    return kept


def _marks(instruction: Instruction) -> Dict[str, Any]:
    """What is said of an op whatever it becomes."""
    marks: Dict[str, Any] = {}
    if "frontend_attributes" in instruction.attributes:
        marks["frontend_attributes"] = instruction.attributes["frontend_attributes"]
    shape = instruction.shape
    if isinstance(shape, ArrayShape) and shape.layout and shape.layout != tuple(range(len(shape.lengths)))[::-1]:
        marks["layout"] = shape.layout
    return marks

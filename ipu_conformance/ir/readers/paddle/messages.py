"""Paddle's program files: the variables and ops of a saved Program, parsed without Paddle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ipu_conformance.ir.readers.op_writer import most_entries
from ipu_conformance.ir.readers.paddle.ops import Call
from ipu_conformance.ir.readers.protobuf import Budget, Schema
from ipu_conformance.ir.tensor import IRError

MAX_ENTRIES = 250_000
"""The most ops and variables of one program."""

MAX_BLOCKS = 1_000

MAX_MESSAGES = 20 * MAX_ENTRIES
"""The most messages of all kinds: an op has some twenty slots and attributes."""

_TENSORS = frozenset((7, 8))
"""The kinds of variables that hold values: a tensor, and rows selected from one."""

SCHEMA = Schema(
    "a saved program of Paddle",
    {
        "Program": {1: "repeated Block blocks"},
        "Block": {3: "repeated Variable vars", 4: "repeated Op ops"},
        "Variable": {1: "string name", 2: "VariableType type", 3: "bool persistable"},
        "VariableType": {1: "oneof int64 type", 2: "TensorType selected_rows", 3: "LoDTensorType lod_tensor"},
        "LoDTensorType": {1: "TensorType tensor"},
        "TensorType": {1: "oneof int64 data_type", 2: "repeated int64 dims"},
        "Op": {1: "repeated Slot inputs", 2: "repeated Slot outputs", 3: "string type", 4: "repeated Attribute attrs"},
        "Slot": {1: "string parameter", 2: "repeated string arguments"},
        "Attribute": {
            1: "string name", 2: "int64 type", 3: "oneof int64 i", 4: "oneof float f", 5: "oneof string s",
            6: "repeated int64 ints", 7: "repeated float floats", 8: "repeated string strings", 10: "oneof bool b",
            11: "repeated bool bools", 12: "oneof int64 block_idx", 13: "oneof int64 l",
            14: "repeated int64 blocks_idx", 15: "repeated int64 longs", 16: "repeated double float64s",
            17: "oneof string var_name", 18: "repeated string vars_name", 19: "oneof double float64",
            20: "oneof Scalar scalar", 21: "repeated Scalar scalars",
        },
        "Scalar": {2: "oneof bool b", 3: "oneof int64 i", 4: "oneof double r"},
    },
)  # fmt: skip
"""The fields that are read, by the names that Paddle gives them."""

_LISTS = ("ints", "floats", "strings", "bools", "blocks_idx", "longs", "float64s", "vars_name", "scalars")
_LIST_TYPES = frozenset((3, 4, 5, 7, 10, 11, 12, 14, 17))
"""The types of attributes that are lists, also when they are empty."""


@dataclass(frozen=True)
class Variable:
    """A variable of a program; the shape is None where it is not a tensor."""

    name: str
    dtype: int = -1
    shape: Optional[Tuple[int, ...]] = None
    persistable: bool = False
    kind: int = 7


def parse(data: bytes) -> Tuple[List[Variable], List[Call]]:
    """The variables and the ops of a saved program, in the order in which they stand there."""
    blocks = SCHEMA.parse("Program", data).blocks
    if not blocks:
        raise IRError(f"the data is not {SCHEMA.document}: it has no block")
    if len(blocks) > 1:
        raise IRError(f"the program has {len(blocks)} blocks; one with control flow is not read")
    return parse_block(blocks[0])


def parse_blocks(data: bytes) -> List[Tuple[List[Variable], List[Call]]]:
    """The variables and the ops of every block of a saved program, those of control flow too."""
    blocks = SCHEMA.parse("Program", data).blocks
    if not 1 <= len(blocks) <= MAX_BLOCKS:
        raise IRError(f"the data is not {SCHEMA.document}: it has {len(blocks)} blocks, and 1 to {MAX_BLOCKS} are read")
    return [parse_block(block) for block in blocks]


def parse_block(data: bytes) -> Tuple[List[Variable], List[Call]]:
    """The variables and the ops of one block of a program."""
    budget = Budget(SCHEMA, MAX_MESSAGES)
    block = budget.parse("Block", data)
    most = most_entries(len(data), 32, MAX_ENTRIES)
    if len(block.vars) + len(block.ops) > most:
        raise IRError(f"the program has more than {most} ops and variables; that many are not read")
    variables = [_variable(entry, budget) for entry in block.vars]
    if len({variable.name for variable in variables}) < len(variables):
        raise IRError("the program declares a variable twice")
    return variables, [_call(entry, budget) for entry in block.ops]


def _variable(data: bytes, budget: Budget) -> Variable:
    variable = budget.parse("Variable", data)
    if not variable.name:
        raise IRError(f"the data is not {SCHEMA.document}: a variable has no name")
    kind, dtype, shape = _type(budget.parse("VariableType", variable.type), budget)
    return Variable(variable.name, dtype, shape, variable.persistable, kind)


def _type(described: Any, budget: Budget) -> Tuple[int, int, Optional[Tuple[int, ...]]]:
    """The kind of a variable, and dtype and shape where it is a tensor."""
    kind = described.type if described.WhichOneof("value") else -1
    content = described.selected_rows
    if described.lod_tensor:
        content = budget.parse("LoDTensorType", described.lod_tensor).tensor
    if kind not in _TENSORS or not content:
        return kind, -1, None
    tensor = budget.parse("TensorType", content)
    return kind, tensor.data_type if tensor.WhichOneof("value") else -1, tuple(tensor.dims)


def _call(data: bytes, budget: Budget) -> Call:
    op = budget.parse("Op", data)
    if not op.type:
        raise IRError(f"the data is not {SCHEMA.document}: an op has no type")
    attributes = dict(_attribute(entry, budget) for entry in op.attrs)
    placement = [attributes.get(key) for key in ("ipu_index", "ipu_stage")]
    ipu, stage = (value if isinstance(value, int) and 0 <= value < 2**31 else None for value in placement)
    return Call(op.type, _slots(op.inputs, budget), _slots(op.outputs, budget), attributes, ipu, stage)


def _slots(entries: Sequence[bytes], budget: Budget) -> Dict[str, Tuple[str, ...]]:
    return {slot.parameter: tuple(slot.arguments) for slot in budget.each("Slot", entries)}


def _attribute(data: bytes, budget: Budget) -> Tuple[str, Any]:
    attribute = budget.parse("Attribute", data)
    present = {field.name: value for field, value in attribute.ListFields()}
    if "scalars" in present:
        present["scalars"] = [_scalar(entry, budget) for entry in attribute.scalars]
    values = [value for field in _LISTS for value in present.get(field, ())]
    if values or attribute.type in _LIST_TYPES:
        return attribute.name, tuple(values)
    field = attribute.WhichOneof("value")
    return attribute.name, _scalar(attribute.scalar, budget) if field == "scalar" else present.get(field)


def _scalar(data: bytes, budget: Budget) -> Any:
    """A number that brings its type along: a truth value, an integer or a float; a complex number is left out."""
    scalar = budget.parse("Scalar", data)
    field = scalar.WhichOneof("value")
    return getattr(scalar, field) if field else None

"""From Paddle's ops to those of ONNX and PopART: a row for each op of Paddle writes the ops that it becomes.

Rows know nothing of Paddle itself: a saved program, a Program in memory and the emulated compiler all go through the
same table. The ops are those of ONNX opset 11 where it has them, and PopART's own elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ipu_conformance.ir.graph import Op
from ipu_conformance.ir.readers import op_writer
from ipu_conformance.ir.readers.op_writer import LONGEST_LIST
from ipu_conformance.ir.tensor import IRError, Tensor

DTYPES: Mapping[int, str] = {
    0: "BOOL", 1: "INT16", 2: "INT32", 3: "INT64", 4: "FLOAT16", 5: "FLOAT", 6: "DOUBLE", 19: "UINT64", 20: "UINT8",
    21: "INT8", 22: "BFLOAT16", 23: "COMPLEX64", 24: "COMPLEX128",
}  # fmt: skip
"""The dtypes by the numbers that Paddle writes."""


ATTRIBUTE_TENSORS: Mapping[str, Mapping[str, str]] = {
    "concat": {"AxisTensor": "axis"},
    "expand": {"ExpandTimes": "expand_times"},
    "split": {"AxisTensor": "axis"},
    "gather": {"Axis": "axis"},
    "top_k": {"K": "k"},
    "top_k_v2": {"K": "k"},
    "one_hot_v2": {"depth_tensor": "depth"},
    "unsqueeze2": {"AxesTensor": "axes", "AxesTensorList": "axes"},
}
"""The inputs that stand for attributes, which they override; no row reads them."""
LISTS = frozenset({"axes", "expand_times"})
"""Those of them that are lists."""


@dataclass(frozen=True)
class Call:
    """One op of Paddle's: variables by slot, attributes by name, and where it is placed."""

    type: str
    inputs: Mapping[str, Tuple[str, ...]]
    outputs: Mapping[str, Tuple[str, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ipu: Optional[int] = None
    stage: Optional[int] = None

    @property
    def stem(self) -> str:
        """The first variable that the op makes."""
        return next((names[0] for names in self.outputs.values() if names), self.type)

    def read(self, slot: str) -> str:
        """The first variable of an input slot; it is an error if there is none."""
        names = self.inputs.get(slot, ())
        if not names:
            raise IRError(f"{self.type} has no input {slot!r}; every op of that type has one")
        return names[0]

    def optional(self, *slots: str) -> str:
        """The first variable of the first slot that has one, or the empty name."""
        return next((self.inputs[slot][0] for slot in slots if self.inputs.get(slot)), "")

    def output(self, *slots: str) -> str:
        """The first variable of the first output slot that has one; it is an error if there is none."""
        for slot in slots or ("Out",):
            if self.outputs.get(slot):
                return self.outputs[slot][0]
        raise IRError(f"{self.type} has no output {' or '.join(slots or ('Out',))!r}; every op of that type has one")

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default where it is not written."""
        return self.attributes.get(name, default)

    def ints(self, name: str, default: Sequence[int] = ()) -> Tuple[int, ...]:
        """An attribute that is a list of integers, or one that stands for a list of one."""
        value = self.attributes.get(name, default)
        numbers = tuple(int(item) for item in value) if isinstance(value, (list, tuple)) else (int(value),)
        if len(numbers) > LONGEST_LIST:
            raise IRError(
                f"attribute {name!r} of {self.type} has {len(numbers)} numbers; at most {LONGEST_LIST} are read"
            )
        return numbers


class Writer(op_writer.Writer):
    """Collects the ops that calls become; the tensors of the program are known from the start."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors, Call("", {}, {}))


Rule = Callable[[Call, Writer], None]

ROWS: op_writer.RuleTable[Rule] = op_writer.RuleTable()
"""What each op of Paddle becomes."""

row = ROWS.row


def dtype_of(number: Any) -> str:
    """The dtype that Paddle writes as a number."""
    if not isinstance(number, int) or number not in DTYPES:
        raise IRError(f"{number!r} is not the number of one of Paddle's dtypes")
    return DTYPES[number]


def missing(calls: Iterable[Call]) -> Tuple[str, ...]:
    """The types that have no row, each once, in the order in which they occur."""
    return tuple(dict.fromkeys(call.type for call in calls if call.type not in ROWS))


def translate(call: Call, writer: Writer) -> None:
    """Write the ops that one call becomes; a call that is not as Paddle makes them is an error."""
    writer.begin(call)
    for slot, attribute in ATTRIBUTE_TENSORS.get(call.type, {}).items():
        if call.inputs.get(slot):
            raise IRError(
                f"{call.type} that makes {_first(call)!r} has its {attribute} as a tensor; give it as numbers"
            )
    try:
        ROWS[call.type](call, writer)
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise IRError(f"op {call.type} that makes {_first(call)!r} is not as Paddle makes them ({reason})") from None


def _first(call: Call) -> str:
    return next((names[0] for names in call.outputs.values() if names), "")


def renamed(
    ops: Sequence[Op], declared: Iterable[str], tensors: Mapping[str, Tensor]
) -> Tuple[List[Op], Dict[str, Tensor], Dict[str, str]]:
    """The ops with a name for every value: a name that is written again gets a number, and what follows reads that.

    Also the tensors, those of the new names included, and the last name of everything that was renamed.
    """
    taken: Set[str] = set(declared)
    known = dict(tensors)
    latest: Dict[str, str] = {}
    counts: Dict[str, int] = {}
    renamed_ops: List[Op] = []
    for op in ops:
        inputs = tuple(latest.get(name, name) for name in op.inputs)
        outputs = []
        for name in op.outputs:
            unique = name
            while unique and unique in taken:
                counts[name] = counts.get(name, 0) + 1
                unique = f"{name}_{counts[name]}"
            if unique != name:
                latest[name] = unique
                known[unique] = replace(known[name], name=unique)
            if unique:
                taken.add(unique)
            outputs.append(unique)
        renamed_ops.append(replace(op, inputs=inputs, outputs=tuple(outputs)))
    return renamed_ops, known, latest

"""Reading TensorFlow's graphs: GraphDefs as bytes or text, SavedModels, and graphs or functions in memory.

TensorFlow itself is not needed for files. Functions that are called become a part of their caller, and so do the turns
of a loop whose number is known; variables become weights, and what is known from constants attributes. An op without a
translation becomes one of the domain "tensorflow" under its own name, and so does one whose translation does not hold
for how it is used. A variable's new value is an output of the op that assigns it; a read that is ordered after the
assignment reads that. What is put into a queue for the host is an output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ipu_conformance.ir.graph import Graph, in_order
from ipu_conformance.ir.readers.op_writer import MAX_CALLED
from ipu_conformance.ir.readers.tensorflow import layers, ops
from ipu_conformance.ir.readers.tensorflow.frames import CALLS, Frame, Room, called, needed, ordered
from ipu_conformance.ir.readers.tensorflow.loops import LOOPS, Counter, body_of, computed, number_of
from ipu_conformance.ir.readers.tensorflow.messages import (
    Document,
    DType,
    FilledConstant,
    Function,
    Node,
    ShapeAttribute,
    dtype_of,
    parse,
    parse_text,
)
from ipu_conformance.ir.readers.tensorflow.ops import ROWS, Call, Writer, plain
from ipu_conformance.ir.readers.tensorflow.placement import Placement, placement
from ipu_conformance.ir.tensor import BITS, UNDEFINED, IRError, Literal, Shape, Tensor

TABLES = (ops, layers)
"""The modules whose rows are known once they are imported."""

DOMAIN = "tensorflow"
_INPUTS = ("Placeholder", "PlaceholderV2", "_Arg")
_ELEMENT = "IteratorGetNext"
"""What takes the next element of a data set."""
_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_SILENT = frozenset(
    ("NoOp", "Assert", "PrintV2", "SaveV2", "MergeV2Checkpoints", "DeleteMemoryCache", "DestroyResourceOp")
)
"""Ops that make nothing, and assign nothing."""
_DRAWING = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
"""What draws an array of a shape that it is given."""
_QUEUES = ("QueueEnqueueV2", "QueueEnqueueManyV2")
"""What leaves values for the host."""

_UPDATES = re.compile(r"Assign(Add|Sub)?VariableOp|ResourceApply\w+|ResourceScatter\w+|Assign(Add|Sub)?|Apply[A-Z]\w+")


@dataclass(frozen=True)
class Variable:
    """A variable that nodes refer to; shape and dtype may only be known where it is read."""

    name: str
    dtype: str = UNDEFINED
    shape: Optional[Shape] = None


def load(data: bytes) -> Graph:
    """The graph of a binary file: a GraphDef or a SavedModel."""
    return graph_of(parse(data))


def load_text(data: bytes) -> Graph:
    """The graph of a text file: a GraphDef or a SavedModel."""
    return graph_of(parse_text(data))


def read_graph(source: Any, fetches: Sequence[str] = (), *, name: str = "graph") -> Graph:
    """The graph of a ``tf.Graph``, or of a ConcreteFunction with its own inputs, outputs and variables.

    ``fetches`` are names of tensors; without them, a graph's outputs are what nobody reads.
    """
    graph = getattr(source, "graph", source)
    definition = graph.as_graph_def(add_shapes=True)
    read = parse(definition.SerializeToString())
    outputs = list(fetches) or [_bare(tensor.name) for tensor in getattr(graph, "outputs", ())]
    effects = [] if fetches else [op.name for op in getattr(graph, "control_outputs", ())]
    variables: Dict[str, Variable] = {}
    known = {id(variable.handle): variable for variable in getattr(graph, "variables", ())}
    for outer, inner in getattr(graph, "captures", ()):
        if id(outer) in known:
            captured = known[id(outer)]
            dtype = dtype_of(captured.dtype.base_dtype.as_datatype_enum)
            variables[inner.op.name] = Variable(_bare(captured.name), dtype, tuple(captured.shape.as_list()))
    return graph_of(replace(read, outputs=tuple(outputs)), variables=variables, effects=effects, name=name)


def graph_of(
    read: Document,
    *,
    variables: Optional[Mapping[str, Variable]] = None,
    effects: Sequence[str] = (),
    name: str = "graph",
) -> Graph:
    """The graph of a document; ``variables`` are those that placeholders stand for, ``effects`` nodes to keep."""
    outputs = [_bare(output) for output in read.outputs]
    nodes = needed(read.nodes, [*outputs, *effects], False) if outputs or effects else list(read.nodes)
    reader = _Reader(read.functions, dict(variables or {}), Room(nodes, read.functions))
    top = Frame("", nodes, {}, Placement(), False, results=outputs)
    reader.run(top)
    return reader.finish(name, top, outputs)


def _bare(name: str) -> str:
    return name[:-2] if name.endswith(":0") else name


class _Reader:
    """Collects the ops of all frames."""

    def __init__(self, functions: Mapping[str, Function], variables: Dict[str, Variable], room: Room) -> None:
        self.functions, self.captured, self.room = functions, variables, room
        self.counter = Counter(functions)
        self.writer = Writer()
        self.inputs: List[str] = []
        self.weights: Dict[str, None] = {}
        self.assigned: Dict[str, Tuple[str, str]] = {}
        """By variable, the node that assigned it last and the tensor that it made."""
        self.updates: List[str] = []
        self.left: List[str] = []
        """What was put into queues for the host, in its order."""
        self.numbers: Dict[str, int] = {}
        """Whole numbers that are known of tensors that are no constants: loops count with them."""
        self.taken: Set[str] = set()

    def run(self, frame: Frame) -> None:
        """Read the nodes of a frame."""
        for node in ordered(frame.nodes):
            self._node(frame, node)

    def _node(self, frame: Frame, node: Node) -> None:
        dtype = node.attributes.get("dtype")
        if node.op in _INPUTS and dtype == "RESOURCE":
            frame.values[node.name] = self.captured.get(node.name, Variable(frame.prefix + node.name))
        elif node.op in _INPUTS:
            name = self._declare(frame, node, 0)
            self.inputs.append(name)
        elif node.op == _ELEMENT:
            self.inputs += [self._element(frame, node, place) for place in range(self._count(frame, node))]
        elif node.op == "Const":
            self._constant(frame, node)
        elif node.op in _VARIABLES:
            self._variable(frame, node)
        elif node.op in CALLS and called(node) in self.functions:
            self._call(frame, node)
        elif node.op in _QUEUES:
            self.left += self._data(frame, node)[1:]
        elif node.op not in _SILENT:
            self._op(frame, node)

    def _constant(self, frame: Frame, node: Node) -> None:
        held = node.attributes.get("value")
        if not isinstance(held, (Literal, FilledConstant)):
            self._keep(frame, node, ())
            return
        name = self._unique(frame.prefix + node.name)
        self.writer.constants[name] = held
        self.writer.tensors[name] = Tensor(name, held.dtype, held.shape)
        frame.values[node.name] = name

    def _variable(self, frame: Frame, node: Node) -> None:
        shared = node.attributes.get("shared_name")
        named = shared.decode("utf-8", "replace") if isinstance(shared, bytes) and shared else frame.prefix + node.name
        shape = node.attributes.get("shape")
        variable = Variable(
            named,
            str(node.attributes.get("dtype", UNDEFINED)),
            shape.shape if isinstance(shape, ShapeAttribute) else None,
        )
        frame.values[node.name] = variable if node.op == "VarHandleOp" else self._weight(variable)

    def _weight(self, variable: Variable, dtype: Any = None, shape: Optional[Shape] = None) -> str:
        """The tensor of a variable's first value."""
        known = variable.dtype if variable.dtype in BITS and variable.dtype != UNDEFINED else str(dtype or UNDEFINED)
        tensor = Tensor(
            variable.name,
            known if known in BITS else UNDEFINED,
            variable.shape if variable.shape is not None else shape,
        )
        if variable.name not in self.weights:
            if variable.name in self.writer.tensors:
                raise IRError(f"a variable and a node are both named {variable.name!r}")
            self.weights[variable.name] = None
            self.taken.add(variable.name)
            self.writer.tensors[variable.name] = tensor
        elif self.writer.tensors[variable.name].shape is None:
            self.writer.tensors[variable.name] = tensor
        return variable.name

    def _call(self, frame: Frame, node: Node) -> None:
        function = self.functions[called(node)]
        arguments = self._data(frame, node)
        if len(arguments) != len(function.arguments):
            raise IRError(
                f"{node.name!r} calls {function.name!r} with {len(arguments)} of {len(function.arguments)} arguments"
            )
        results = self._inside(frame, node, function, arguments, node.name, self._order(frame, node))
        frame.values.update({_flat(node.name, place): result for place, result in enumerate(results)})

    def _inside(
        self, frame: Frame, node: Node, function: Function, arguments: Sequence[Any], name: str, after: Tuple[str, ...]
    ) -> List[Any]:
        """What a function makes of its arguments, which becomes a part of its caller under a name."""
        inner = Frame(
            f"{frame.prefix}{name}/",
            needed(function.nodes, (*function.results, *function.effects), True),
            dict(zip(function.arguments, arguments)),
            placement(node, frame.placed),
            True,
            after,
            function.results,
        )
        self.run(inner)
        return [inner.value(result) for result in function.results]

    def _turns(self, frame: Frame, node: Node) -> Optional[int]:
        """How often a loop goes round; None if that is not known, or is too often to be written out."""
        body, values = body_of(node, self.functions), self._data(frame, node)
        if body is None or len(body.arguments) != len(values):
            return None
        times = self.counter.turns(node, [self._number(value) for value in values])
        return times if times is not None and self.room.takes(body, times) else None

    def _loop(self, frame: Frame, node: Node, times: int) -> None:
        """A loop is its turns, one after the other."""
        body, values, after = body_of(node, self.functions), self._data(frame, node), self._order(frame, node)
        assert body is not None
        for turn in range(times):
            name = f"{node.name}/{turn}"
            values = self._inside(frame, node, body, values, name, after)
            after = (*after, frame.prefix + name)
        frame.values.update({_flat(node.name, place): value for place, value in enumerate(values)})

    @staticmethod
    def _data(frame: Frame, node: Node) -> List[Any]:
        """What a node reads: names of tensors, or Variables."""
        return [frame.value(reference) for reference in node.inputs if not reference.startswith("^")]

    def _number(self, value: Any) -> Optional[int]:
        """The whole number that a tensor is known to be."""
        if not isinstance(value, str):
            return None
        return self.numbers.get(value, number_of(self.writer.constants.get(value)))

    @staticmethod
    def _order(frame: Frame, node: Node) -> Tuple[str, ...]:
        """The full names of the nodes that come before, by an order alone."""
        order = (frame.prefix + reference[1:] for reference in node.inputs if reference.startswith("^"))
        return (*frame.after, *order)

    def _op(self, frame: Frame, node: Node) -> None:
        values = self._data(frame, node)
        if node.op == "ReadVariableOp" and values and isinstance(values[0], Variable):
            frame.values[node.name] = self._read(frame, node, values[0])
        elif node.op == "IdentityN" or (node.op == "Identity" and values and isinstance(values[0], Variable)):
            frame.values.update({_flat(node.name, place): value for place, value in enumerate(values)})
        elif _UPDATES.fullmatch(node.op) and values:
            self._update(frame, node, values)
        elif node.op in LOOPS:
            times = self._turns(frame, node)
            if times is None:
                self._translate(frame, node, self._names(frame, node, values))
            else:
                self._loop(frame, node, times)
        else:
            self._translate(frame, node, self._names(frame, node, values))
            known = self._computed(node, values)
            if known is not None:
                self.numbers[frame.values[node.name]] = known

    def _computed(self, node: Node, values: Sequence[Any]) -> Optional[int]:
        """The whole number that a node is known to make: of numbers, or one of a constant list."""
        if node.op == "StridedSlice" and node.attributes.get("shrink_axis_mask") == 1 and self._are_known(values):
            numbers, (begin, *_) = (self.writer.values(value) for value in values[:2])
            return numbers[begin] if -len(numbers) <= begin < len(numbers) else None
        return computed(node.op, [self._number(value) for value in values])

    def _are_known(self, values: Sequence[Any]) -> bool:
        return all(isinstance(value, str) and self.writer.is_known(value) for value in values[:2])

    def _names(self, frame: Frame, node: Node, values: Sequence[Any]) -> List[str]:
        return [self._read(frame, node, value) if isinstance(value, Variable) else value for value in values]

    def _read(self, frame: Frame, node: Node, variable: Variable) -> str:
        """The value that a variable has where a node reads it."""
        declared = (node.attributes.get("dtype"), self._shape(node, 0)) if node.op == "ReadVariableOp" else (None, None)
        first = self._weight(variable, *declared)
        by, latest = self.assigned.get(variable.name, ("", ""))
        before = self._order(frame, node)
        return latest if by and any(by == name or by.startswith(f"{name}/") for name in before) else first

    def _update(self, frame: Frame, node: Node, values: Sequence[Any]) -> None:
        """An op that assigns: it makes the variable's next value."""
        names = self._names(frame, node, values)
        target = values[0].name if isinstance(values[0], Variable) else values[0]
        updated = self._unique(f"{frame.prefix}{node.name}")
        self.writer.tensors[updated] = replace(self.writer.tensors[target], name=updated)
        self._begin(frame, node, names, (updated,))
        self.writer.add(f"{DOMAIN}::{node.op}", names, (updated,), plain(_shown(node.attributes)))
        self.assigned[target] = (frame.prefix + node.name, updated)
        self.updates.append(updated)
        frame.values[node.name] = updated

    def _translate(self, frame: Frame, node: Node, names: Sequence[str]) -> None:
        outputs = [self._declare(frame, node, place) for place in range(self._count(frame, node))]
        if not outputs:
            return
        call = self._begin(frame, node, names, outputs)
        if node.op in ROWS:
            before = self.writer.mark()
            declared = {name: self.writer.tensors[name] for name in outputs}
            try:
                ROWS[node.op](call, self.writer)
                return
            except IRError:
                # ONNX cannot express this use of the op: it keeps its own name and attributes.
                self.writer.back_to(before)
                self.writer.tensors.update(declared)
            except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
                reason = f"{type(error).__name__}: {error}"[:200]
                raise IRError(f"{node.op} {call.name!r} is not as TensorFlow makes them ({reason})") from None
        self._keep(frame, node, names, outputs)

    def _keep(self, frame: Frame, node: Node, names: Sequence[str], outputs: Sequence[str] = ()) -> None:
        """An op under its own name."""
        results = outputs or [self._declare(frame, node, 0)]
        self._begin(frame, node, names, results)
        if node.op in _DRAWING and self._are_known(names[:1]):
            self.writer.tensors[results[0]] = replace(
                self.writer.tensors[results[0]], shape=self.writer.values(names[0])
            )
        attributes = plain(_shown(node.attributes))
        labels = frame.names.labels(node)
        if labels:
            attributes["outputs"] = labels
        self.writer.add(f"{DOMAIN}::{node.op}", names, results, attributes)

    def _begin(self, frame: Frame, node: Node, names: Sequence[str], outputs: Sequence[str]) -> Call:
        placed = placement(node, frame.placed)
        full = frame.prefix + node.name
        call = Call(node.op, full, tuple(names), tuple(outputs), node.attributes, placed.ipu, placed.stage)
        self.writer.begin(call)
        return call

    def _count(self, frame: Frame, node: Node) -> int:
        read = frame.names.count(node)
        shapes = node.attributes.get("_output_shapes")
        known = len(shapes) if isinstance(shapes, tuple) else 0
        return max(read, known) if known <= MAX_CALLED else read

    def _declare(self, frame: Frame, node: Node, place: int) -> str:
        flat = _flat(node.name, place)
        name = self._unique(frame.prefix + flat)
        kinds = [node.attributes.get(key) for key in ("dtype", "T", "DstT", "output_type")]
        dtype = next((str(kind) for kind in kinds if isinstance(kind, DType) and kind in BITS), UNDEFINED)
        self.writer.tensors[name] = Tensor(name, _result(node.op, dtype, place), self._shape(node, place))
        frame.values[flat] = name
        return name

    def _element(self, frame: Frame, node: Node, place: int) -> str:
        """An input that is a part of an element, whose type and shape are in lists."""
        name = self._declare(frame, node, place)
        dtypes, shapes = (node.attributes.get(key) for key in ("output_types", "output_shapes"))
        if isinstance(dtypes, tuple) and place < len(dtypes) and dtypes[place] in BITS:
            self.writer.tensors[name] = replace(self.writer.tensors[name], dtype=str(dtypes[place]))
        if isinstance(shapes, tuple) and place < len(shapes) and isinstance(shapes[place], ShapeAttribute):
            self.writer.tensors[name] = replace(self.writer.tensors[name], shape=shapes[place].shape)
        return name

    @staticmethod
    def _shape(node: Node, place: int) -> Optional[Shape]:
        listed = node.attributes.get("_output_shapes")
        if isinstance(listed, tuple) and place < len(listed) and isinstance(listed[place], ShapeAttribute):
            shape: Optional[Shape] = listed[place].shape
            return shape
        declared = node.attributes.get("shape")
        return declared.shape if isinstance(declared, ShapeAttribute) and node.op in _INPUTS else None

    def _unique(self, name: str) -> str:
        unique = self.writer.unique(name, self.taken)
        self.taken.add(unique)
        return unique

    def finish(self, name: str, top: Frame, outputs: Sequence[str]) -> Graph:
        """The graph of all that was read."""
        writer = self.writer
        ends = [self._end(top.value(output)) for output in outputs]
        consumed = {name for op in writer.ops for name in op.inputs}
        ends += [self._end(value) for value in self.left]
        if outputs or self.left:
            ends += [updated for updated in self.updates if updated not in consumed]
        else:
            ends = [op.outputs[0] for op in writer.ops if op.outputs and not consumed.intersection(op.outputs)]
        initializers: Dict[str, Optional[bytes]] = {**dict.fromkeys(self.weights), **writer.initializers}
        used = [*self.inputs, *initializers, *(tensor for op in writer.ops for tensor in op.outputs if tensor)]
        return Graph(
            name=name,
            ops=in_order(writer.ops),
            inputs=self.inputs,
            outputs=dict.fromkeys(ends),
            tensors=[writer.tensors[each] for each in dict.fromkeys(used)],
            initializers=initializers,
        )

    def _end(self, value: Any) -> str:
        return self._weight(value) if isinstance(value, Variable) else self.writer.resolve(value)


def _flat(name: str, place: int) -> str:
    return f"{name}:{place}" if place else name


def _shown(attributes: Mapping[str, Any]) -> Dict[str, Any]:
    """The attributes that the graph does not hold elsewhere."""
    shown = {key: value for key, value in attributes.items() if not isinstance(value, FilledConstant)}
    for key in ("_output_shapes", "_XlaSharding", "_class"):
        shown.pop(key, None)
    return shown


_TRUTHS = ("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "IsNan", "IsInf", "IsFinite")
_LOGICAL = ("LogicalAnd", "LogicalOr", "LogicalNot", "All", "Any")


def _result(op: str, dtype: str, place: int) -> str:
    """The dtype of a result: for most ops that of the attribute T, in which they compute."""
    if op in (*_TRUTHS, *_LOGICAL):
        return "BOOL"
    return UNDEFINED if op in ("Shape", "ArgMax", "ArgMin", "Size", "Rank") else dtype

"""The forward pass: a captured graph's operations as ops, with their module's name and their place."""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch.fx import Node

from ipu_conformance.emulator.popart.program import MEMORY_SHARE, RECOMPUTE, Place, Program
from ipu_conformance.emulator.poptorch.compile import blocks
from ipu_conformance.emulator.poptorch.compile.capture import Captured
from ipu_conformance.emulator.poptorch.ir import groups, recurrent
from ipu_conformance.emulator.poptorch.ir.rows import MARKS, ROWS, TYPES, Row, adaptive
from ipu_conformance.ir.tensor import Tensor

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "MultiConv")
"""Ops that trade memory for speed."""

_REDUCED = ("", "ReduceMean", "ReduceSum")


class Forward:
    """Lowers the operations of one captured graph into a program."""

    def __init__(
        self, captured: Captured, stage_of: Mapping[Node, int], ipus: Sequence[int],
        weights: Mapping[str, torch.Tensor], *, scopes: bool, shares: Mapping[int, float],
    ) -> None:  # fmt: skip
        self.program = program = Program()
        self.captured = captured
        self.stage_of = stage_of
        self.ipus = ipus
        """The IPU of every stage."""
        self.scopes = scopes
        self.shares = shares
        """The share of memory that products may use, of the IPUs that have one."""
        self.names: Dict[Node, Tuple[str, ...]] = {}
        """The tensors of every node; one that has several results has several."""
        self.weights: Dict[str, str] = {}
        """The tensor of every weight."""
        self._groups: Dict[int, Tuple[Dict[str, Any], List[str]]] = {}
        """The settings and the results of the convolutions of every MultiConv."""
        for node in captured.module.graph.nodes:
            if node.op == "placeholder":
                self.names[node] = (program.host_input(_described(node.name, node.meta["val"])),)
        for name, value in weights.items():
            self.weights[name] = program.held(_described(name, value))

    def run(self) -> None:
        """Lower every operation, in order."""
        for node in self.captured.module.graph.nodes:
            if node.op == "get_attr":
                self._attribute(node)
            elif node in self.stage_of:
                self._operation(node)
        for settings, outputs in self._groups.values():
            self.program.ops = groups.join(self.program.ops, outputs, settings)

    def name(self, node: Node) -> str:
        """The tensor that a node makes; the first one of several."""
        return self.names[node][0]

    def _attribute(self, node: Node) -> None:
        if node.name in self.captured.weights:
            self.names[node] = (self.weights[self.captured.weights[node.name]],)
        elif isinstance(node.meta.get("val"), torch.Tensor):
            self.names[node] = (self.program.held(_described(node.name, node.meta["val"])),)

    def _operation(self, node: Node) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            if source in self.names:
                self.names[node] = (self.names[source][int(index)],)
            return
        if not _results(node):
            return  # an assertion about shapes or types: it held while the model was captured
        mark = blocks.tag_of(node, blocks.OPERATION)
        row = ROWS.get(_base(node))
        if mark and mark[0] in MARKS:
            settings = {"reduction": _reduction(mark[1])} if mark[0] == "identity_loss" else {}
            if mark[0] == "recomputationCheckpoint":
                settings = {RECOMPUTE: "NO"}
            self._add(node, MARKS[mark[0]], self._tensors(node), settings)
        elif row is None:
            self._add(node, _generic(node), self._tensors(node), {})
        else:
            _KINDS[row.kind](self, node, row)
        self._write_back(node)

    def _write_back(self, node: Node) -> None:
        """Make later readers of what an in-place operation changed read its result."""
        schema = getattr(node.target, "_schema", None)
        changed = node.args[0] if schema is not None and schema.is_mutable and node.args else None
        if not isinstance(changed, Node) or not self.names.get(node):
            return
        if self.program.shape(self.name(node)) == self._shape_of(changed):
            self.names[changed] = self.names[node]

    def _shape_of(self, node: Node) -> Optional[Tuple[int, ...]]:
        return self.program.shape(self.name(node)) if node in self.names else None

    # What rows use.

    def values(self, node: Node) -> Dict[str, Any]:
        """The arguments of an operation by name, defaults included."""
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return {f"argument{place}": value for place, value in enumerate(node.args)}
        arguments = {}
        for place, argument in enumerate(schema.arguments):
            if place < len(node.args):
                arguments[argument.name] = node.args[place]
            elif argument.name in node.kwargs:
                arguments[argument.name] = node.kwargs[argument.name]
            elif argument.has_default_value():
                arguments[argument.name] = argument.default_value
        return arguments

    def _tensors(self, node: Node, only: Optional[Sequence[str]] = None) -> List[str]:
        """The tensors that an operation reads, or those of its arguments that are named, in that order."""
        if only is None:
            return [self.name(source) for source in node.all_input_nodes if source in self.names]
        values = self.values(node)
        operands = [values.get(name) for name in only]
        while operands and not isinstance(operands[-1], Node):
            operands.pop()
        return [self.name(value) if isinstance(value, Node) and value in self.names else "" for value in operands]

    def _scope(self, node: Node) -> str:
        parts: List[str] = []
        if self.scopes:
            stack = list((node.meta.get("nn_module_stack") or {}).values())
            path = stack[-1][0] if stack else ""
            parts = [part for part in path.split(".")[1:] if part]
        return "/".join([*parts, *(blocks.tag_of(node, blocks.SCOPE) or ())])

    def _add(self, node: Node, type: str, inputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
        """Add the op that makes the results of a node."""
        several = isinstance(node.meta["val"], (list, tuple))
        outputs = [
            _described(f"{node.name}_{place}" if several else node.name, value)
            for place, value in enumerate(_results(node))
        ]
        self.names[node] = self._emit(node, type, inputs, outputs, attributes)

    def _between(
        self,
        node: Node,
        type: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attributes: Optional[Mapping[str, Any]] = None,
    ) -> str:
        """Add an op that makes a value on the way to the result of a node, of the dtype of its first input."""
        output = _tensor(f"{node.name}/{type}", self.program.dtype(inputs[0]), shape)
        return self._emit(node, type, inputs, [output], attributes or {})[0]

    def _emit(
        self, node: Node, type: str, inputs: Sequence[str], outputs: Sequence[Tensor], attributes: Mapping[str, Any]
    ) -> Tuple[str, ...]:
        stage = self.stage_of[node]
        ipu = self.ipus[stage]
        tagged = dict(blocks.tag_of(node, blocks.ATTRIBUTES) or {})
        if type in PRODUCTS:
            tagged.update(_own_share(node))
            if ipu in self.shares:
                tagged.setdefault(MEMORY_SHARE, self.shares[ipu])
        scope, bare = self._scope(node), type.rpartition("::")[2]
        name = f"{scope}/{bare}" if scope else bare
        return self.program.add(
            type, inputs, outputs, Place(ipu, stage), name=name, attributes={**attributes, **tagged}
        )

    def _cast(self, node: Node, name: str, dtype: str) -> str:
        """The tensor in another type."""
        if self.program.dtype(name) == dtype:
            return name
        output = _tensor(f"{node.name}/Cast", dtype, self.program.shape(name))
        return self._emit(node, "Cast", [name], [output], {"to": dtype})[0]

    # The kinds of rows.

    def plain(self, node: Node, row: Row) -> None:
        """One op after the other; the last makes the result."""
        inputs = self._tensors(node, row.inputs)
        shape = self.program.shape(inputs[0]) if inputs and inputs[0] else ()
        attributes = row.attributes(self.values(node), shape)
        mark = blocks.tag_of(node, blocks.OPERATION)
        if mark and mark[0] == groups.TYPE and row.types == ("Conv",):
            self._grouped(node, inputs, attributes, mark[1])
            return
        for type in row.types[:-1]:
            inputs = [self._between(node, type, inputs, self.program.shape(inputs[0]), attributes)]
        self._add(node, row.types[-1], inputs, attributes)

    def _grouped(
        self, node: Node, inputs: Sequence[str], attributes: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        """A convolution of a MultiConv, whose bias is added by an op of its own."""
        words = {name: value for name, value in settings.items() if name != "group"}
        outputs = self._groups.setdefault(settings["group"], (words, []))[1]
        if len(inputs) < 3 or not inputs[2]:
            self._add(node, groups.TYPE, inputs[:2], attributes)
            outputs.append(self.name(node))
            return
        shape = tuple(int(length) for length in node.meta["val"].shape)
        convolved = self._between(node, groups.TYPE, inputs[:2], shape, attributes)
        outputs.append(convolved)
        self._add(node, "AddBias", [convolved, inputs[2]], {})

    def window(self, node: Node, row: Row) -> None:
        """A convolution or pool; a single image is a batch of one in between."""
        rank = int(_base(node)[-2])
        inputs = self._tensors(node, row.inputs)
        shape = self.program.shape(inputs[0])
        if len(shape) == rank + 2:
            self.plain(node, row)
            return
        batch = (1, *shape)
        inputs[0] = self._between(node, "Reshape", [inputs[0]], batch, {"shape": batch})
        attributes = row.attributes(self.values(node), batch)
        result = tuple(int(length) for length in node.meta["val"].shape)
        pooled = self._between(node, row.types[0], inputs, (1, *result), attributes)
        self._add(node, "Reshape", [pooled], {"shape": result})

    def softmax(self, node: Node, row: Row) -> None:
        """A softmax, of values in the type of its result."""
        name = self._cast(node, self._tensors(node)[0], TYPES[node.meta["val"].dtype])
        self._add(node, row.types[0], [name], row.attributes(self.values(node), self.program.shape(name)))

    def broadcast(self, node: Node, row: Row) -> None:
        """Every tensor in the shape of all; those that have it already are left alone."""
        names = []
        for value in self.values(node)["tensors"]:
            name, shape = self.name(value), tuple(node.meta["val"][0].shape)
            names.append(name if self.program.shape(name) == shape else self._between(node, "Expand", [name], shape))
        self.names[node] = tuple(names)

    def binary(self, node: Node, row: Row) -> None:
        """Two operands of one type; numbers become constants."""
        values = self.values(node)
        operands = [values[name] for name in row.inputs or () if values.get(name) is not None]
        result = node.meta["val"]
        kind = TYPES[result.dtype]
        if kind == "BOOL" and row.types[0] in ("Equal", "Greater", "Less"):
            kind = TYPES[_common([value.meta["val"] if isinstance(value, Node) else value for value in operands])]
        names = [
            self._cast(node, self.name(value), kind)
            if isinstance(value, Node)
            else self.program.constant(f"{node.name}/constant", kind, value)
            for value in operands
        ]
        alpha = values.get("alpha", 1)
        if alpha != 1 and not isinstance(alpha, Node):
            last = 0 if row.inputs and row.inputs[0] == "other" else 1
            names[last] = self._between(node, "Scale", [names[last]], self.program.shape(names[last]), {"scale": alpha})
        if len(row.types) > 1:
            compared = _tensor(f"{node.name}/{row.types[0]}", "BOOL", result.shape)
            names = [self._emit(node, row.types[0], names, [compared], {})[0]]
        self._add(node, row.types[-1], names, {})

    def linear(self, node: Node, row: Row) -> None:
        """The transposed weight times the input, and the bias added."""
        values = self.values(node)
        x, weight = self.name(values["input"]), self.name(values["weight"])
        shape = self.program.shape(weight)
        turned = self._between(node, "Transpose", [weight], shape[::-1], {"perm": tuple(range(len(shape)))[::-1]})
        if values.get("bias") is None:
            self._add(node, "MatMul", [x, turned], {})
            return
        product = self._between(node, "MatMul", [x, turned], (*self.program.shape(x)[:-1], shape[0]))
        self._add(node, "Add", [product, self.name(values["bias"])], {})

    def reshape(self, node: Node, row: Row) -> None:
        """Other dimensions for the same values."""
        result = tuple(int(length) for length in node.meta["val"].shape)
        self._add(node, "Reshape", self._tensors(node, ("self",)), {"shape": result})

    def select(self, node: Node, row: Row) -> None:
        """A slice of length one, and its dimension taken away."""
        values = self.values(node)
        name = self.name(values["self"])
        shape = list(self.program.shape(name))
        attributes = row.attributes(values, shape)
        shape[attributes["axes"][0]] = 1
        cut = self._between(node, "Slice", [name], shape, attributes)
        self._add(node, "Reshape", [cut], {"shape": tuple(int(length) for length in node.meta["val"].shape)})

    def stack(self, node: Node, row: Row) -> None:
        """The tensors with a dimension more, joined along it."""
        axis = row.attributes(self.values(node), node.meta["val"].shape)["axis"]
        names = []
        for value in self.values(node)["tensors"]:
            shape = list(self.program.shape(self.name(value)))
            shape.insert(axis, 1)
            names.append(self._between(node, "Reshape", [self.name(value)], shape, {"shape": tuple(shape)}))
        self._add(node, "Concat", names, {"axis": axis})

    def extremum(self, node: Node, row: Row) -> None:
        """A reduction; with its positions, or of two tensors, it is another op."""
        values = self.values(node)
        if isinstance(node.meta["val"], (list, tuple)):
            shape = self.program.shape(self.name(values["self"]))
            self._add(node, "TopK", self._tensors(node), {"axis": int(values["dim"]) % max(len(shape), 1), "k": 1})
        elif "other" in values:
            self._add(node, row.types[0][len("Reduce") :], self._tensors(node), {})
        else:
            self.plain(node, row)

    def adaptive_pool(self, node: Node, row: Row) -> None:
        """A pool whose windows follow from the size of its result."""
        inputs = self._tensors(node)
        type, attributes = adaptive(self.program.shape(inputs[0]), node.meta["val"].shape)
        self._add(node, type, inputs, attributes)

    def cast(self, node: Node, row: Row) -> None:
        """Another type, or the tensor as it is."""
        inputs = self._tensors(node, ("self",))
        kind = TYPES[node.meta["val"].dtype]
        if self.program.dtype(inputs[0]) == kind:
            self._add(node, "Identity", inputs, {})
        else:
            self._add(node, "Cast", inputs, {"to": kind})

    def dropout(self, node: Node, row: Row) -> None:
        """Dropout where it drops, else nothing."""
        values = self.values(node)
        if values.get("train", True):
            self._add(node, "Dropout", self._tensors(node), row.attributes(values, ()))
        else:
            self._add(node, "Identity", self._tensors(node), {})

    def filled(self, node: Node, row: Row) -> None:
        """A constant of one number, which is a tensor with its values and no op."""
        values = self.values(node)
        number = values["fill_value"] if "fill_value" in values else float("ones" in _base(node))
        if isinstance(number, Node):
            self._add(node, row.types[0], (), {})
        else:
            self.names[node] = (self.program.filled(_described(node.name, node.meta["val"]), number),)

    def masked(self, node: Node, row: Row) -> None:
        """A choice between a number and the tensor."""
        values = self.values(node)
        kind = TYPES[node.meta["val"].dtype]
        filled = values["value"]
        value = self.name(filled) if isinstance(filled, Node) else self.program.constant(
            f"{node.name}/constant", kind, filled
        )  # fmt: skip
        self._add(node, "Where", [self.name(values["mask"]), value, self.name(values["self"])], {})

    def cross_entropy(self, node: Node, row: Row) -> None:
        """The logarithm of the softmax, and its negative log likelihood, for which classes are the last axis."""
        values = self.values(node)
        name = self.name(values["self"])
        shape = self.program.shape(name)
        if len(shape) > 2:
            order = (0, *range(2, len(shape)), 1)
            shape = tuple(shape[axis] for axis in order)
            name = self._between(node, "Transpose", [name], shape, {"perm": order})
        logs = self._between(node, "LogSoftmax", [name], shape, {"axis": len(shape) - 1})
        self._add(node, "Nll", [logs, *self._tensors(node, row.inputs)[1:]], row.attributes(values, shape))

    def lstm(self, node: Node, row: Row) -> None:
        """ONNX's LSTM for one layer in one direction; any other is an op of its own."""
        values = self.values(node)
        if not recurrent.fits(values):
            self._add(node, _generic(node), self._tensors(node), {})
            return

        def between(
            type: str, inputs: Sequence[str], shapes: Sequence[Sequence[int]], attributes: Mapping[str, Any]
        ) -> Tuple[str, ...]:
            outputs = [_tensor(f"{node.name}/{type}", self.program.dtype(inputs[0]), shape) for shape in shapes]
            return self._emit(node, type, inputs, outputs, attributes)

        x = self.name(values["input"])
        if values["batch_first"]:
            x = recurrent.turned(between, x, self.program.shape(x))
        weights = [self.name(each) for each in values["params"]]
        ordered = [recurrent.gates(between, name, self.program.shape(name)) for name in weights]
        hidden = self.program.shape(weights[1])[1]
        (bias,) = between("Concat", ordered[2:], [(8 * hidden,)], {"axis": 0})
        stacked = [
            between("Unsqueeze", [name], [(1, *self.program.shape(name))], {"axes": (0,)})[0]
            for name in (*ordered[:2], bias)
        ]
        steps, batch, _ = self.program.shape(x)
        state = (1, batch, hidden)
        states = [self.name(each) for each in values["hx"]]
        sequence, *ends = between(
            "LSTM", [x, *stacked, "", *states], [(steps, 1, batch, hidden), state, state], {"hidden_size": hidden}
        )
        (flat,) = between("Squeeze", [sequence], [(steps, batch, hidden)], {"axes": (1,)})
        self.names[node] = (recurrent.turned(between, flat, (steps, batch, hidden)) if values["batch_first"] else flat,
                            *ends)  # fmt: skip

    def distance(self, node: Node, row: Row) -> None:
        """A function of the difference, and its mean or sum."""
        values = self.values(node)
        first, second = (self.name(values[name]) for name in ("self", "target"))
        shape = torch.broadcast_shapes(self.program.shape(first), self.program.shape(second))
        second = self._cast(node, second, self.program.dtype(first))
        reduced = _REDUCED[int(values.get("reduction", 1))]
        difference = self._between(node, "Sub", [first, second], shape)
        if not reduced:
            self._add(node, row.types[1], [difference], {})
            return
        distances = self._between(node, row.types[1], [difference], shape)
        self._add(node, reduced, [distances], {"axes": tuple(range(len(shape))), "keepdims": 0})


_KINDS: Mapping[str, Callable[[Forward, Node, Row], None]] = {
    "plain": Forward.plain,
    "window": Forward.window,
    "softmax": Forward.softmax,
    "broadcast": Forward.broadcast,
    "binary": Forward.binary,
    "linear": Forward.linear,
    "reshape": Forward.reshape,
    "select": Forward.select,
    "stack": Forward.stack,
    "extremum": Forward.extremum,
    "adaptive_pool": Forward.adaptive_pool,
    "cast": Forward.cast,
    "dropout": Forward.dropout,
    "filled": Forward.filled,
    "masked": Forward.masked,
    "cross_entropy": Forward.cross_entropy,
    "distance": Forward.distance,
    "lstm": Forward.lstm,
}


def _results(node: Node) -> List[torch.Tensor]:
    """What an operation makes, as the tracer describes it."""
    result = node.meta.get("val")
    results = result if isinstance(result, (list, tuple)) else [result]
    return [value for value in results if isinstance(value, torch.Tensor)]


def _described(name: str, value: torch.Tensor) -> Tensor:
    return _tensor(name, TYPES[value.dtype], value.shape)


def _tensor(name: str, dtype: str, shape: Sequence[int]) -> Tensor:
    return Tensor(name, dtype, tuple(int(length) for length in shape))


def _base(node: Node) -> str:
    """The name of an operation of ATen without the underscore of its in-place form; empty for any other."""
    schema = getattr(node.target, "_schema", None)
    namespace, _, name = (schema.name if schema is not None else "").partition("::")
    if namespace != "aten":
        return ""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


_OWN = {"print_tensor": "PrintTensor", "ctc_loss": "Ctc"}
"""The types of operations that the emulator defines itself."""


def _generic(node: Node) -> str:
    """The type of an operation without a row."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        namespace, _, name = schema.name.partition("::")
        if namespace == "ipu_poptorch" and name in _OWN:
            return _OWN[name]
        return f"{namespace}::{name.rstrip('_')}"
    return f"torch::{getattr(node.target, '__name__', str(node.target))}"


def _own_share(node: Node) -> Dict[str, float]:
    """The share of memory that set_available_memory gives to the product behind a tensor."""
    marks = (blocks.tag_of(user, blocks.OPERATION) for user in node.users)
    shares = [mark[1]["proportion"] for mark in marks if mark and mark[0] == "set_available_memory"]
    return {MEMORY_SHARE: shares[-1]} if shares else {}


def _reduction(settings: Mapping[str, Any]) -> str:
    return {"none": "NoReduction", "mean": "Mean", "sum": "Sum"}[settings["reduction"]]


def _common(operands: Sequence[Any]) -> torch.dtype:
    if len(operands) < 2:
        return torch.float32
    return torch.result_type(operands[0], operands[1])

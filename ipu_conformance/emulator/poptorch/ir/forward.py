"""The forward pass: a captured graph's operations as ops, with their module's name and their place."""

from __future__ import annotations

import json
import operator
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.utils._pytree as pytree
from torch.fx import Node

from ipu_conformance.emulator.popart.program import MEMORY_SHARE, RECOMPUTE, Place, Program
from ipu_conformance.emulator.poptorch.compile import blocks
from ipu_conformance.emulator.poptorch.compile.capture import Captured
from ipu_conformance.emulator.poptorch.ir import groups
from ipu_conformance.emulator.poptorch.ir.kinds import KINDS, described, tensor
from ipu_conformance.emulator.poptorch.ir.rows import MARKS, ROWS, Row
from ipu_conformance.ir.tensor import Tensor

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "MultiConv")
"""Ops that trade memory for speed."""


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
                self.names[node] = (program.host_input(described(node.name, node.meta["val"])),)
        for name, value in weights.items():
            self.weights[name] = program.held(described(name, value))

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
            self.names[node] = (self.program.held(described(node.name, node.meta["val"])),)

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
            self.add(node, MARKS[mark[0]], self.tensors(node), settings)
        elif row is None:
            self.add(node, self.generic(node), self.tensors(node), {})
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

    def tensors(self, node: Node, only: Optional[Sequence[str]] = None) -> List[str]:
        """The tensors that an operation reads, or those of its arguments that are named, in that order."""
        if only is None:
            # torch.cat([x, x]) reads x twice.
            sources = [each for each in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(each, Node)]
            return [self.name(source) for source in sources if source in self.names]
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

    def add(self, node: Node, type: str, inputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
        """Add the op that makes the results of a node."""
        several = isinstance(node.meta["val"], (list, tuple))
        outputs = [
            described(f"{node.name}_{place}" if several else node.name, value)
            for place, value in enumerate(_results(node))
        ]
        self.names[node] = self.emit(node, type, inputs, outputs, attributes)

    def between(
        self,
        node: Node,
        type: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        attributes: Optional[Mapping[str, Any]] = None,
    ) -> str:
        """Add an op that makes a value on the way to the result of a node, of the dtype of its first input."""
        output = tensor(f"{node.name}/{type}", self.program.dtype(inputs[0]), shape)
        return self.emit(node, type, inputs, [output], attributes or {})[0]

    def emit(
        self, node: Node, type: str, inputs: Sequence[str], outputs: Sequence[Tensor], attributes: Mapping[str, Any]
    ) -> Tuple[str, ...]:
        stage = self.stage_of[node]
        ipu = self.ipus[stage]
        attributed = blocks.tag_of(node, blocks.ATTRIBUTES) or {}
        tagged: Dict[str, Any] = {key: json.dumps(value, sort_keys=True) for key, value in attributed.items()}
        if type in PRODUCTS:
            tagged.update(_own_share(node))
            if ipu in self.shares:
                tagged.setdefault(MEMORY_SHARE, self.shares[ipu])
        scope, bare = self._scope(node), type.rpartition("::")[2]
        name = f"{scope}/{bare}" if scope else bare
        return self.program.add(
            type, inputs, outputs, Place(ipu, stage), name=name, attributes={**attributes, **tagged}
        )

    def cast(self, node: Node, name: str, dtype: str) -> str:
        """The tensor in another type."""
        if self.program.dtype(name) == dtype:
            return name
        output = tensor(f"{node.name}/Cast", dtype, self.program.shape(name))
        return self.emit(node, "Cast", [name], [output], {"to": dtype})[0]

    # The kinds of rows.

    def plain(self, node: Node, row: Row) -> None:
        """One op after the other; the last makes the result."""
        inputs = self.tensors(node, row.inputs)
        shape = self.program.shape(inputs[0]) if inputs and inputs[0] else ()
        attributes = row.attributes(self.values(node), shape)
        mark = blocks.tag_of(node, blocks.OPERATION)
        if mark and mark[0] == groups.TYPE and row.types == ("Conv",):
            self._grouped(node, inputs, attributes, mark[1])
            return
        for type in row.types[:-1]:
            inputs = [self.between(node, type, inputs, self.program.shape(inputs[0]), attributes)]
        self.add(node, row.types[-1], inputs, attributes)

    def _grouped(
        self, node: Node, inputs: Sequence[str], attributes: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        """A convolution of a MultiConv, whose bias is added by an op of its own."""
        words = {name: value for name, value in settings.items() if name != "group"}
        outputs = self._groups.setdefault(settings["group"], (words, []))[1]
        if len(inputs) < 3 or not inputs[2]:
            self.add(node, groups.TYPE, inputs[:2], attributes)
            outputs.append(self.name(node))
            return
        shape = tuple(int(length) for length in node.meta["val"].shape)
        convolved = self.between(node, groups.TYPE, inputs[:2], shape, attributes)
        outputs.append(convolved)
        self.add(node, "AddBias", [convolved, inputs[2]], {})

    @staticmethod
    def base(node: Node) -> str:
        """The name of an operation without its overload."""
        return _base(node)

    @staticmethod
    def generic(node: Node) -> str:
        """The type of an op that has no row."""
        return _generic(node)


_KINDS: Mapping[str, Callable[[Forward, Node, Row], None]] = {"plain": Forward.plain, **KINDS}


def _results(node: Node) -> List[torch.Tensor]:
    """What an operation makes, as the tracer describes it."""
    result = node.meta.get("val")
    results = result if isinstance(result, (list, tuple)) else [result]
    return [value for value in results if isinstance(value, torch.Tensor)]


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

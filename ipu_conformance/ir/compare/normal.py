"""The normal form of a graph, in which the same network from different frameworks is the same graph.

What is unified, and nothing else:

- Identity, and reshapes, transposes, expansions and casts that change nothing, are left out; so are ops that nothing
  needs.
- Reshape, Flatten, Squeeze and Unsqueeze are Reshape with one input: the shape of the output holds the rest. One after
  the other they are one. A reshaped or transposed weight is a weight of that shape.
- Expansions in front of an op that broadcasts by itself are left out.
- A Transpose moves behind ops that work element by element, and two Transposes are one or none.
- Gemm has no transposed inputs and no factors; without a bias it is MatMul. A MatMul of matrices and the Add of a bias
  are Gemm, and a Conv and the Add of a bias are a Conv of three inputs.
- A Transpose before a flattening before a product with a weight is a matter of the order of the weight's rows, which
  are taken to be in the other order.
- A Constant is a weight with its values; bounds of a Slice and widths of a Pad that are constants are attributes. A Pad
  before a convolution is the convolution's.
- A product with a number, or a quotient by one, is a Scale, and moves behind transposes and products.
- A layer norm is one of the whole value, not of its rows below one another. Resizing to the nearest value by whole
  factors is one op. TensorFlow's gradient of a convolution by its input is a transposed convolution.
- Windows have kernel_shape, strides, dilations and pads in full; an axis counts from the front.

Values of weights that are rearranged are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ipu_conformance.ir.compare import normal_attributes, normal_rules
from ipu_conformance.ir.compare.normal_rules import order_of
from ipu_conformance.ir.graph import Graph, Op, in_order
from ipu_conformance.ir.shapes import MismatchError, broadcast, completed
from ipu_conformance.ir.tensor import Shape, Tensor, count

ELEMENTWISE = frozenset((
    "Abs", "Add", "And", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater",
    "HardSigmoid", "LeakyRelu", "Less", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor",
    "Detach",
))  # fmt: skip
"""The types that work element by element and broadcast their inputs."""

_RESHAPES = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze"))
_ROUNDS = 20
"""How often the rules are gone through at most: what one leaves out, another can see through."""


def normal(graph: Graph, *, turn_inputs: bool = False, unplaced: bool = False) -> Graph:
    """The normal form of a graph.

    With ``turn_inputs``, an input that is only ever read through one Transpose is taken to be given in that order, as
    images are whose channels come last, and an output before the Transpose that makes it. With ``unplaced``, where ops
    run and how a compiler has marked them is left out, and copies with it: what is left is what is computed.
    """
    if unplaced:
        graph = normal_attributes.unplaced(graph)
    work = _Work(completed(graph))
    for _ in range(_ROUNDS):
        before = work.ops
        work.simplify()
        work.fuse()
        work.prune()
        if work.ops == before:
            break
    if turn_inputs:
        work.turn_inputs()
    return work.finish(graph)


class _Work:
    """A graph that is being rewritten."""

    def __init__(self, graph: Graph) -> None:
        constants = normal_rules.constants(graph.ops)
        self.ops: List[Op] = [
            replace(op, attributes=normal_attributes.attributes(op, graph))
            for op in graph.ops
            if op.type != "Constant" or not constants.keys() & op.outputs
        ]
        self.tensors: Dict[str, Tensor] = dict(graph.tensors)
        self.weights: Dict[str, Optional[bytes]] = dict(graph.initializers)
        for name, value in constants.items():
            self.tensors[name] = Tensor(name, value.dtype, value.shape)
            self.weights[name] = value.data
        self.inputs = list(graph.inputs)
        self.outputs = list(graph.outputs)
        self.alias: Dict[str, str] = {}
        self.makers: Dict[str, Op] = {}
        self.turned: Dict[Tuple[str, Tuple[int, ...]], str] = {}

    def shape(self, name: str) -> Optional[Shape]:
        """The shape of a tensor, None where there is none or it is unknown."""
        return self.tensors[name].shape if name in self.tensors else None

    def fresh(self, stem: str, dtype: str, shape: Optional[Shape]) -> str:
        """A new tensor."""
        name, number = f"{stem}/normal", 0
        while name in self.tensors:
            number += 1
            name = f"{stem}/normal_{number}"
        self.tensors[name] = Tensor(name, dtype, shape)
        return name

    def emit(self, op: Op) -> None:
        """Add an op to those that are kept."""
        self.ops.append(op)
        if _is_whole(op):
            self.makers[op.outputs[0]] = op

    def simplify(self) -> None:
        """Go through the ops once: each is left out, rewritten or kept."""
        ops, self.ops, self.alias, self.makers = self.ops, [], {}, {}
        for op in ops:
            op = replace(op, inputs=tuple(self.alias.get(name, name) for name in op.inputs))
            rule = _RULES.get(op.type, _sink if op.type in ELEMENTWISE else None)
            if rule is None or not _is_whole(op) or not rule(self, op):
                self.emit(op)
        self.outputs = list(dict.fromkeys(self.alias.get(name, name) for name in self.outputs))

    def fuse(self) -> None:
        """Take biases into the ops before them."""
        readers: Dict[str, int] = {}
        for op in self.ops:
            for name in op.inputs:
                readers[name] = readers.get(name, 0) + 1
        for name in self.outputs:
            readers[name] = readers.get(name, 0) + 1
        makers = {op.outputs[0]: op for op in self.ops if len(op.outputs) == 1}
        gone: Dict[str, None] = {}
        kept: List[Op] = []
        for op in self.ops:
            is_sum = op.type == "Add" and len(op.inputs) == 2 and len(op.outputs) == 1
            fused = _with_bias(self, op, makers, readers) if is_sum else None
            if fused is not None:
                gone[fused[1]] = None
            kept.append(op if fused is None else fused[0])
        self.ops = [op for op in kept if not op.outputs or op.outputs[0] not in gone]

    def prune(self) -> None:
        """Leave out what no output depends on; a graph without outputs keeps all."""
        if not self.outputs:
            return
        wanted = set(self.outputs)
        kept: List[Op] = []
        for op in reversed(in_order(self.ops)):
            if wanted.intersection(op.outputs):
                kept.append(op)
                wanted.update(op.inputs)
        self.ops = kept[::-1]
        self.weights = {name: data for name, data in self.weights.items() if name in wanted}

    def turn_inputs(self) -> None:
        """Give inputs in the order in which they are read, and outputs in that in which they are made."""
        for name in self.inputs:
            readers = [op for op in self.ops if name in op.inputs]
            turned = all(op.type == "Transpose" and _is_whole(op) for op in readers)
            if not turned or len({order_of(op) for op in readers}) != 1 or name in self.outputs:
                continue
            self.tensors[name] = replace(self.tensors[name], shape=self.shape(readers[0].outputs[0]))
            gone = {op.outputs[0]: name for op in readers}
            self.ops = [
                replace(op, inputs=tuple(gone.get(source, source) for source in op.inputs))
                for op in self.ops
                if op not in readers
            ]
            self.outputs = [gone.get(output, output) for output in self.outputs]
        makers = {op.outputs[0]: op for op in self.ops if op.type == "Transpose" and _is_whole(op)}
        self.outputs = [makers[name].inputs[0] if name in makers else name for name in self.outputs]
        self.prune()

    def finish(self, graph: Graph) -> Graph:
        """The rewritten graph."""
        produced = [name for op in self.ops for name in op.outputs if name]
        used = dict.fromkeys([*self.inputs, *self.weights, *produced])
        return Graph(
            name=graph.name,
            ops=in_order(self.ops),
            inputs=self.inputs,
            outputs=dict.fromkeys(self.outputs),
            tensors=[self.tensors[name] for name in used],
            initializers=self.weights,
            opset=graph.opset,
        )

    def turned_weight(self, stem: str, source: str, order: Tuple[int, ...]) -> str:
        """A weight with its axes in another order; two that are turned alike are one."""
        known = self.turned.get((source, order))
        if known is None or known not in self.weights:
            known = self.turned[source, order] = self.weight(stem, source, self.shape(stem), None)
        return known

    def turn(self, op: Op, source: str, order: Tuple[int, ...], output: str = "") -> str:
        """A Transpose of a value in the place of an op, or what it comes to."""
        shape = self.shape(source)
        turned = None if shape is None else tuple(shape[axis] for axis in order)
        made = output or self.fresh(source, self.tensors[source].dtype, turned)
        transpose = replace(op, type="Transpose", inputs=(source,), outputs=(made,), attributes={"perm": order})
        if not _transpose(self, transpose):
            self.emit(transpose)
        return self.alias.get(made, made)

    def weight(self, stem: str, like: str, shape: Optional[Shape], data: Optional[bytes]) -> str:
        """A new weight of the dtype of another."""
        name = self.fresh(stem, self.tensors[like].dtype, shape)
        self.weights[name] = data
        return name


Rule = Callable[[_Work, Op], bool]


def _is_whole(op: Op) -> bool:
    """Whether an op has the inputs and the one output that all ops of a type with a rule have."""
    needed = 2 if op.type in ("MatMul", "Gemm", "Mul", "Div") else 1
    return len(op.outputs) == 1 and bool(op.outputs[0]) and len(op.inputs) >= needed and all(op.inputs[:needed])


def _same_shape(one: Optional[Shape], other: Optional[Shape]) -> bool:
    """Whether two shapes are surely the same where both have the same number of elements."""
    return one is not None and one == other and sum(length is None for length in one) <= 1


def _pass(work: _Work, op: Op) -> bool:
    if len(op.inputs) != 1 or len(op.outputs) != 1:
        return False
    work.alias[op.outputs[0]] = op.inputs[0]
    return True


def _cast(work: _Work, op: Op) -> bool:
    same = work.tensors[op.inputs[0]].dtype == work.tensors[op.outputs[0]].dtype != "UNDEFINED"
    return same and _pass(work, op)


def _reshape(work: _Work, op: Op) -> bool:
    source, output = op.inputs[0], op.outputs[0]
    before = work.makers.get(source)
    if before is not None and before.type == "Reshape" and len(before.inputs) == 1:
        source = before.inputs[0]
    shape = work.shape(output)
    if _same_shape(work.shape(source), shape):
        work.alias[output] = source
    elif source in work.weights and shape is not None and count(shape) == count(work.shape(source) or ()):
        work.alias[output] = work.weight(output, source, shape, work.weights[source])
    elif shape is None:
        return False
    else:
        work.emit(replace(op, type="Reshape", inputs=(source,), attributes={}))
    return True


def _expand(work: _Work, op: Op) -> bool:
    if not _same_shape(work.shape(op.inputs[0]), work.shape(op.outputs[0])):
        return False
    work.alias[op.outputs[0]] = op.inputs[0]
    return True


def _transpose(work: _Work, op: Op) -> bool:
    if normal_rules.scaled_behind(work, op):
        return True
    source, made, order = op.inputs[0], op.outputs[0], order_of(op)
    before = work.makers.get(source)
    if before is not None and before.type == "Transpose" and len(order_of(before)) == len(order):
        inner = order_of(before)
        order, source = tuple(inner[axis] for axis in order), before.inputs[0]
    if order and order == tuple(range(len(order))):
        work.alias[made] = source
    elif source in work.weights and order:
        work.alias[made] = work.turned_weight(made, source, order)
    elif order:
        work.emit(replace(op, inputs=(source,), attributes={"perm": order}))
    else:
        return False
    return True


def _sink(work: _Work, op: Op) -> bool:
    """Take expansions from in front of an op, and put a Transpose of all that it reads behind it."""
    op = _unexpanded(work, op)
    output = op.outputs[0]
    makers = [work.makers.get(name) for name in op.inputs]
    turns = {order_of(maker) for maker in makers if maker is not None and maker.type == "Transpose"}
    shape = work.shape(output)
    if len(turns) != 1 or shape is None:
        work.emit(op)
        return True
    order = next(iter(turns))
    untransposed = [_untransposed(work, name, maker, order) for name, maker in zip(op.inputs, makers)]
    if any(name is None for name in untransposed) or len(order) != len(shape):
        work.emit(op)
        return True
    back: List[Optional[int]] = [None] * len(order)
    for place, axis in enumerate(order):
        back[axis] = shape[place]
    inner = work.fresh(output, work.tensors[output].dtype, tuple(back))
    work.emit(replace(op, inputs=tuple(name or "" for name in untransposed), outputs=(inner,)))
    work.emit(replace(op, type="Transpose", inputs=(inner,), outputs=(output,), attributes={"perm": order}))
    return True


def _untransposed(work: _Work, name: str, maker: Optional[Op], order: Sequence[int]) -> Optional[str]:
    """An input as it is before the Transpose: the Transpose's own input, a scalar, or a weight of turned shape."""
    if not name:
        return ""
    if maker is not None and maker.type == "Transpose":
        return maker.inputs[0]
    shape = work.shape(name)
    if shape is not None and count(shape) == 1:
        return name
    if name not in work.weights or shape is None or len(shape) > len(order):
        return None
    full = (*(1 for _ in range(len(order) - len(shape))), *shape)
    turned: List[Optional[int]] = [None] * len(order)
    for place, axis in enumerate(order):
        turned[axis] = full[place]
    whole = sum(length != 1 for length in full) <= 1  # then the values stay in their order
    return work.weight(name, name, tuple(turned), work.weights[name] if whole else None)


def _unexpanded(work: _Work, op: Op) -> Op:
    inputs = list(op.inputs)
    for place, name in enumerate(inputs):
        maker = work.makers.get(name)
        if maker is None or maker.type != "Expand":
            continue
        shape: Optional[Shape] = ()
        try:
            for other in (*inputs[:place], maker.inputs[0], *inputs[place + 1 :]):
                shape = broadcast(shape, work.shape(other)) if other else shape
        except MismatchError:
            continue
        if _same_shape(shape, work.shape(op.outputs[0])):
            inputs[place] = maker.inputs[0]
    return replace(op, inputs=tuple(inputs))


def _product(work: _Work, op: Op) -> bool:
    """A product with a weight, of something that was transposed and flattened: the weight has its rows in order."""
    first = work.makers.get(op.inputs[0])
    turned = work.makers.get(first.inputs[0]) if first is not None and first.type == "Reshape" else None
    weight = op.inputs[1]
    if first is None or turned is None or turned.type != "Transpose" or weight not in work.weights:
        return False
    flat, shape = work.shape(first.outputs[0]), work.shape(turned.outputs[0])
    if flat is None or shape is None or len(flat) != 2 or order_of(turned)[:1] != (0,) or flat[1] != count(shape[1:]):
        return False
    straight = work.fresh(first.outputs[0], work.tensors[first.outputs[0]].dtype, flat)
    rows = work.weight(weight, weight, work.shape(weight), None)
    work.emit(replace(first, inputs=(turned.inputs[0],), outputs=(straight,)))
    work.emit(replace(op, inputs=(straight, rows, *op.inputs[2:])))
    return True


def _gemm(work: _Work, op: Op) -> bool:
    """A Gemm without transposed inputs and factors; one with factors stays as it is."""
    if op.attributes.get("alpha", 1.0) != 1 or (len(op.inputs) > 2 and op.attributes.get("beta", 1.0) != 1):
        return False
    sides = list(op.inputs[:2])
    for place, key in ((0, "transA"), (1, "transB")):
        shape = work.shape(sides[place])
        if not op.attributes.get(key, 0):
            continue
        if shape is None or len(shape) != 2:
            return False
        turned = work.fresh(f"{op.outputs[0]}/{key}", work.tensors[sides[place]].dtype, shape[::-1])
        turn = replace(op, type="Transpose", inputs=(sides[place],), outputs=(turned,), attributes={"perm": (1, 0)})
        if not _transpose(work, turn):
            work.emit(turn)
        sides[place] = work.alias.get(turned, turned)
    bias = [name for name in op.inputs[2:3] if name]
    plain = replace(op, type="Gemm" if bias else "MatMul", inputs=(*sides, *bias), attributes={})
    if not _product(work, plain):
        work.emit(plain)
    return True


def _with_bias(work: _Work, op: Op, makers: Mapping[str, Op], readers: Mapping[str, int]) -> Optional[Tuple[Op, str]]:
    """A product or convolution that takes the Add of a bias in, and the output that it had before."""
    for name, other in (op.inputs, op.inputs[::-1]):
        maker = makers.get(name)
        shape, added = work.shape(name), work.shape(other)
        if maker is None or other not in work.weights or readers.get(name) != 1 or shape is None or added is None:
            continue
        if len(shape) < 2:
            continue
        matrices = maker.type == "MatMul" and len(shape) == 2 and all(_is_matrix(work, side) for side in maker.inputs)
        if len(maker.inputs) != 2 or not (matrices or maker.type in ("Conv", "ConvTranspose")):
            continue
        channels = shape[1]
        wanted = [1] * len(shape)
        wanted[1] = channels or 0
        full = [*[1] * (len(shape) - len(added)), *added]
        if channels is None or full != wanted:
            continue
        bias = other if added == (channels,) else work.weight(other, other, (channels,), work.weights[other])
        type = "Gemm" if matrices else maker.type
        return replace(maker, type=type, inputs=(*maker.inputs, bias), outputs=op.outputs), name
    return None


def _is_matrix(work: _Work, name: str) -> bool:
    shape = work.shape(name)
    return shape is not None and len(shape) == 2


_RULES: Mapping[str, Rule] = {
    "Identity": _pass,
    "Cast": _cast,
    **dict.fromkeys(_RESHAPES, _reshape),
    "Expand": _expand,
    "Transpose": _transpose,
    "MatMul": lambda work, op: normal_rules.scaled_behind(work, op) or _product(work, op),
    "Gemm": _gemm,
    **dict.fromkeys(("Mul", "Div"), lambda work, op: normal_rules.scaled(work, op) or _sink(work, op)),
    **normal_rules.RULES,
}

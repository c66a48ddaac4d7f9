"""The row for Paddle's recurrent layers: LSTM, GRU and plain cells, of several layers and in both directions.

PopART's recurrent ops run forwards through one layer. Each layer and each direction becomes one of them; backwards
is forwards through the turned sequence. Gates are in ONNX's order, which is not Paddle's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ipu_conformance.ir.readers.op_writer import length_of
from ipu_conformance.ir.readers.paddle.ops import Call, Writer, row
from ipu_conformance.ir.tensor import IRError

_FAR = 2**31 - 1


@dataclass(frozen=True)
class _Kind:
    """A kind of cell: its op, where ONNX's gates are among Paddle's, and the attributes of the op."""

    type: str
    gates: Tuple[int, ...]
    attributes: Mapping[str, Any]

    @property
    def states(self) -> int:
        """How many states pass from step to step."""
        return 2 if self.type == "LSTM" else 1


KINDS: Mapping[str, _Kind] = {
    "LSTM": _Kind("LSTM", (0, 3, 1, 2), {}),
    "GRU": _Kind("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "RNN_TANH": _Kind("RNN", (0,), {"activations": ("Tanh",)}),
    "RNN_RELU": _Kind("RNN", (0,), {"activations": ("Relu",)}),
}
"""The kinds of cells by the names that Paddle has for them."""


@row("rnn")
def _recurrent(call: Call, to: Writer) -> None:
    mode = str(call.get("mode", "LSTM"))
    if mode not in KINDS:
        raise IRError(f"rnn has cells of the kind {mode!r}; the kinds are {', '.join(KINDS)}")
    kind, layers, directions = KINDS[mode], int(call.get("num_layers", 1)), 1 + bool(call.get("is_bidirec", False))
    lengths = call.optional("SequenceLength")
    if lengths and directions == 2:
        raise IRError(
            f"rnn of {call.read('Input')!r} has lengths of sequences that it reads backwards, too; use one direction"
        )
    cells = layers * directions
    weights, starts = call.inputs.get("WeightList", ()), call.inputs.get("PreState", ())
    if len(weights) != 4 * cells or len(starts) != kind.states:
        raise IRError(f"rnn has {len(weights)} weights and {len(starts)} states for {cells} cells of the kind {mode}")
    first = [_apart(to, state, cells) for state in starts]
    last: List[List[str]] = [[] for _ in starts]
    source = call.read("Input")
    lengths = lengths if not lengths or to.dtype(lengths) == "INT32" else to.cast(lengths, "INT32")
    ratio = 0.0 if call.get("is_test", False) else float(call.get("dropout_prob", 0.0))
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            cell = layer * directions + direction
            cell_weights = [*weights[2 * cell : 2 * cell + 2], *weights[2 * (cells + cell) : 2 * (cells + cell) + 2]]
            states = [parts[cell] for parts in first]
            output, ends = _cell(to, kind, source, cell_weights, (lengths, *states), backwards=direction == 1)
            outputs.append(output)
            for parts, end in zip(last, ends):
                parts.append(end)
        source = outputs[0] if directions == 1 else _joined(to, outputs)
        if ratio and layer < layers - 1:
            source = to.add("Dropout", (source,), None, {"ratio": ratio})
    to.add("Identity", (source,), call.output())
    for parts, output in zip(last, call.outputs.get("State", ())):
        to.add("Concat", parts, output, {"axis": 0})


def _apart(to: Writer, state: str, cells: int) -> Sequence[str]:
    """The state of every cell."""
    if cells == 1:
        return (state,)
    shape = (1, *to.shape(state)[1:])
    parts = [to.fresh("Split", to.dtype(state), shape) for _ in range(cells)]
    to.add("Split", (state,), parts, {"axis": 0, "split": (1,) * cells})
    return parts


def _cell(
    to: Writer, kind: _Kind, source: str, weights: Sequence[str], given: Sequence[str], *, backwards: bool
) -> Tuple[str, List[str]]:
    """What one cell makes of sequences, and the states in which it ends; given are their lengths, and states."""
    turned = _turned(to, source) if backwards else source
    steps, batch, _ = to.shape(source)
    hidden = length_of(to.shape(weights[1])[1], weights[1])
    one, other = (_stacked(to, _gates(to, kind, name)) for name in weights[:2])
    ordered = [_gates(to, kind, name) for name in weights[2:]]
    width = 2 * len(kind.gates) * hidden
    bias = _stacked(to, to.add("Concat", ordered, None, {"axis": 0}, shape=(width,)))
    dtype = to.dtype(source)
    sequence = to.fresh(kind.type, dtype, (steps, 1, batch, hidden))
    ends = [to.fresh(f"{kind.type}End", dtype, (1, batch, hidden)) for _ in given[1:]]
    attributes: Dict[str, Any] = {"hidden_size": hidden, **kind.attributes}
    to.add(kind.type, (turned, one, other, bias, *given), (sequence, *ends), attributes)
    flat = to.add("Squeeze", (sequence,), None, {"axes": (1,)}, shape=(steps, batch, hidden))
    return _turned(to, flat) if backwards else flat, ends


def _gates(to: Writer, kind: _Kind, name: str) -> str:
    """A weight or a bias with its gates in ONNX's order."""
    if len(kind.gates) == 1:
        return name
    whole, *rest = to.shape(name)
    size = length_of(whole, name) // len(kind.gates)
    parts = [to.fresh("Split", to.dtype(name), (size, *rest)) for _ in kind.gates]
    to.add("Split", (name,), parts, {"axis": 0, "split": (size,) * len(parts)})
    return to.add("Concat", [parts[gate] for gate in kind.gates], None, {"axis": 0}, shape=to.shape(name))


def _stacked(to: Writer, name: str) -> str:
    """A weight with the dimension for directions."""
    return to.add("Unsqueeze", (name,), None, {"axes": (0,)}, shape=(1, *to.shape(name)))


def _turned(to: Writer, name: str) -> str:
    """A sequence from its end to its beginning."""
    bounds = ([-1], [-_FAR], [0], [-1])
    return to.add("Slice", (name, *(to.constant(values, "INT64") for values in bounds)))


def _joined(to: Writer, made: Sequence[str]) -> str:
    """What both directions make, side by side."""
    steps, batch, hidden = to.shape(made[0])
    shape = (steps, batch, len(made) * length_of(hidden, made[0]))
    return to.add("Concat", made, None, {"axis": 2}, shape=shape)

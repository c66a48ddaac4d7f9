"""Recurrent layers of one direction: LSTM, GRU and the plain cell with tanh.

Inputs are the sequence (steps, batch, features), the states (1, batch, hidden), the weights (gates * hidden, features)
and (gates * hidden, hidden), and a bias for each. Gates are in the order input, forget, cell, output (LSTM) and reset,
update, new (GRU); the reset of a GRU multiplies after the recurrent product. Outputs are the hidden state after every
step and the states after the last.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.ops.tracked import Tracked, joined, sigmoid, stacked, tanh, tracked, tracked_op
from ipu_conformance.oracle.sample import Chooser, Sample

Parts = Tuple[Tracked, ...]
Cell = Callable[..., Tuple[Parts, Any]]
"""``cell(projected, recurrent, *states)`` gives the next states and what its gradient needs.

``projected`` and ``recurrent`` are the products with the inputs and with the state, each with a bias.
"""


def _split(gates: Tracked, count: int) -> List[Tracked]:
    width = gates.shape[-1] // count
    return [gates[..., place * width : (place + 1) * width] for place in range(count)]


def _lstm(projected: Tracked, recurrent: Tracked, hidden: Tracked, cell: Tracked) -> Tuple[Parts, Any]:
    inward, forget, new, outward = _split(projected + recurrent, 4)
    gates = sigmoid(inward), sigmoid(forget), tanh(new), sigmoid(outward)
    kept = gates[1] * cell + gates[0] * gates[2]
    return (gates[3] * tanh(kept), kept), (gates, tanh(kept), cell)


def _lstm_pull(held: Any, g_hidden: Tracked, g_cell: Tracked) -> Tuple[Tracked, Tracked, Parts]:
    """The cotangents of both products, and those of the states beside what passes through the product."""
    (inward, forget, new, outward), bent, cell = held
    g_kept = g_cell + g_hidden * outward * (1.0 - bent * bent)
    slopes = (
        g_kept * new * inward * (1.0 - inward),
        g_kept * cell * forget * (1.0 - forget),
        g_kept * inward * (1.0 - new * new),
        g_hidden * bent * outward * (1.0 - outward),
    )
    g = joined(slopes, -1)
    return g, g, (tracked(np.zeros(cell.shape)), g_kept * forget)


def _gru(projected: Tracked, recurrent: Tracked, hidden: Tracked) -> Tuple[Parts, Any]:
    one, other = _split(projected, 3), _split(recurrent, 3)
    reset, update = sigmoid(one[0] + other[0]), sigmoid(one[1] + other[1])
    new = tanh(one[2] + reset * other[2])
    return (update * hidden + (1.0 - update) * new,), (reset, update, new, other[2], hidden)


def _gru_pull(held: Any, g_hidden: Tracked) -> Tuple[Tracked, Tracked, Parts]:
    reset, update, new, other, hidden = held
    g_new = g_hidden * (1.0 - update) * (1.0 - new * new)
    g_update = g_hidden * (hidden - new) * update * (1.0 - update)
    g_reset = g_new * other * reset * (1.0 - reset)
    return joined((g_reset, g_update, g_new), -1), joined((g_reset, g_update, g_new * reset), -1), (g_hidden * update,)


def _plain(projected: Tracked, recurrent: Tracked, before: Tracked) -> Tuple[Parts, Any]:
    hidden = tanh(projected + recurrent)
    return (hidden,), hidden


def _plain_pull(held: Any, g_hidden: Tracked) -> Tuple[Tracked, Tracked, Parts]:
    g = g_hidden * (1.0 - held * held)
    return g, g, (tracked(np.zeros(held.shape)),)


def _unrolled(cell: Cell, x: Tracked, inputs: Sequence[Tracked]) -> Tuple[List[Parts], List[Any]]:
    """The states before, between and after all steps, and what the gradient of each step needs."""
    *states, kernel, recurrent, bias, more = inputs
    between: List[Parts] = [tuple(state[0] for state in states)]
    held = []
    for step in range(x.shape[0]):
        following, needed = cell(x[step] @ kernel.T + bias, between[-1][0] @ recurrent.T + more, *between[-1])
        between.append(following)
        held.append(needed)
    return between, held


def _row(name: str, gates: int, cell: Cell, pull: Callable[..., Tuple[Tracked, Tracked, Parts]]) -> None:
    count = 2 if name == "lstm" else 1

    def forward(x: Tracked, *inputs: Tracked) -> Sequence[Tracked]:
        between, _ = _unrolled(cell, x, inputs)
        last = [state.reshape(1, *state.shape) for state in between[-1]]
        return [stacked([states[0] for states in between[1:]]), *last]

    def backward(cotangents: Parts, x: Tracked, *inputs: Tracked) -> Sequence[Optional[Tracked]]:
        *_, kernel, recurrent, _, _ = inputs
        between, held = _unrolled(cell, x, inputs)
        states: Parts = tuple(g[0] for g in cotangents[1:])
        totals = [tracked(np.zeros(each.shape)) for each in inputs[count:]]
        g_x = []
        for step in reversed(range(x.shape[0])):
            g_projected, g_recurrent, passed = pull(held[step], states[0] + cotangents[0][step], *states[1:])
            parts = g_projected.T @ x[step], g_recurrent.T @ between[step][0], g_projected.sum(0), g_recurrent.sum(0)
            totals = [total + part for total, part in zip(totals, parts)]
            g_x.append(g_projected @ kernel)
            states = (passed[0] + g_recurrent @ recurrent, *passed[1:])
        first = [state.reshape(1, *state.shape) for state in states]
        return [stacked(g_x[::-1]), *first, *totals]

    def draw(chooser: Chooser) -> Sample:
        steps, batch, features, hidden = (chooser.integer(1, 3) for _ in range(4))
        shapes = [(steps, batch, features), *[(1, batch, hidden)] * count]
        weights = [(gates * hidden, features), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
        return Sample(tuple(chooser.array(shape, -1.0, 1.0) for shape in (*shapes, *weights)))

    tracked_op(name, "recurrent", forward, draw, backward)


_row("lstm", 4, _lstm, _lstm_pull)
_row("gru", 3, _gru, _gru_pull)
_row("simple_rnn", 1, _plain, _plain_pull)

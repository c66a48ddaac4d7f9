"""Recurrent layers: LSTM, GRU and the plain cell."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import OpCase, case, forward_and_gradient, values

STEPS, BATCH, FEATURES, HIDDEN = 3, 2, 4, 5
MODES = {"lstm": ("LSTM", 4), "gru": ("GRU", 3), "simple_rnn": ("RNN_TANH", 1)}


def _layer(name: str) -> OpCase:
    """A layer whose states and weights are fed, so that their gradients are seen, too."""
    mode, gates = MODES[name]
    states = 2 if mode == "LSTM" else 1
    width = gates * HIDDEN
    shapes = [(STEPS, BATCH, FEATURES), *[(1, BATCH, HIDDEN)] * states, (width, FEATURES), (width, HIDDEN), (width,)]

    def build(paddle: Any, x: Any, *rest: Any) -> Any:
        block = paddle.static.default_main_program().current_block()
        made = [block.create_var(dtype=x.dtype, shape=x.shape) for _ in range(1 + states)]
        kept, dropped = (block.create_var(dtype="uint8", persistable=False) for _ in range(2))
        block.append_op(
            type="rnn",
            inputs={"Input": x, "PreState": list(rest[:states]), "WeightList": list(rest[states:])},
            outputs={"Out": made[0], "State": made[1:], "Reserve": kept, "DropoutState": dropped},
            attrs={"mode": mode, "num_layers": 1, "is_bidirec": False, "hidden_size": HIDDEN, "input_size": FEATURES},
        )
        return made

    draws = [values(*shape, low=-1.0, high=1.0) for shape in (*shapes, shapes[-1])]
    return case(name, build, *draws, declared=True)


CASES = tuple(_layer(name) for name in MODES)

test_forward, test_gradient = forward_and_gradient(CASES)

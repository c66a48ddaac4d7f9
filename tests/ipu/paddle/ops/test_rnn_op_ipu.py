"""Recurrent layers: LSTM, GRU and the plain cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.op import OPS
from ipu_conformance.oracle.sample import Sample
from ipu_conformance.oracle.tolerance.ops import for_outputs

from ..device import compiled, held, started
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
        outputs = [block.create_var(dtype=x.dtype, shape=x.shape) for _ in range(1 + states)]
        kept, dropped = (block.create_var(dtype="uint8", persistable=False) for _ in range(2))
        block.append_op(
            type="rnn",
            inputs={"Input": x, "PreState": list(rest[:states]), "WeightList": list(rest[states:])},
            outputs={"Out": outputs[0], "State": outputs[1:], "Reserve": kept, "DropoutState": dropped},
            attrs={"mode": mode, "num_layers": 1, "is_bidirec": False, "hidden_size": HIDDEN, "input_size": FEATURES},
        )
        return outputs

    draws = [values(*shape, low=-1.0, high=1.0) for shape in (*shapes, shapes[-1])]
    return case(name, build, *draws, declared=True)


CASES = tuple(_layer(name) for name in MODES)

test_forward, test_gradient = forward_and_gradient(CASES)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_a_layer_runs_and_trains(paddle: Any, static: Any, name: str) -> None:
    """A layer of Paddle's makes of every sequence what is specified, and a step changes all of its weights."""
    x = static.data("x", [BATCH, STEPS, FEATURES], "float32")
    layer = getattr(paddle.nn, name)(FEATURES, HIDDEN)
    out, _ = layer(x)
    paddle.optimizer.SGD(1.0).minimize(paddle.mean(paddle.square(out)))
    started(paddle)
    weights = [weight.name for weight in layer.parameters()]
    before = [held(paddle, weight).astype(np.float64) for weight in weights]
    device = compiled(paddle, [out], size=BATCH, training=True)
    fed = np.random.default_rng(7).uniform(-1, 1, (BATCH, STEPS, FEATURES)).astype(np.float32)
    (got,) = device.run(fed)
    device.sync()

    op = OPS[name.lower()]
    states = [np.zeros((1, BATCH, HIDDEN))] * (2 if name == "LSTM" else 1)
    sample = Sample((fed.swapaxes(0, 1).astype(np.float64), *states, *before))
    expected, *_ = op.forward(*sample.inputs)
    limit, *_ = for_outputs(op, sample)
    check.close(actual=got.swapaxes(0, 1), expected=expected, tolerance=limit, what="the outputs", dtype="float32")
    assert all(np.any(held(paddle, weight) != start) for weight, start in zip(weights, before))

"""The interpreter's LSTM against torch's, and its gradients against torch's and against differences."""

from __future__ import annotations

from typing import Dict, Tuple

import numpy as np
import pytest

from ipu_conformance.interpreter import ExecutionError, execute
from ipu_conformance.ir import Graph, Op, Tensor
from ipu_conformance.oracle.tolerance.ops import FORMATS

STEPS, BATCH, INPUTS, UNITS = 5, 2, 3, 4
SHAPES: Dict[str, Tuple[int, ...]] = {
    "x": (STEPS, BATCH, INPUTS),
    "kernel": (1, 4 * UNITS, INPUTS),
    "recurrent": (1, 4 * UNITS, UNITS),
    "bias": (1, 8 * UNITS),
    "hidden": (1, BATCH, UNITS),
    "cell": (1, BATCH, UNITS),
}
RESULTS = {"y": (STEPS, 1, BATCH, UNITS), "last": (1, BATCH, UNITS), "end": (1, BATCH, UNITS)}
FROM_ONNX = (0, 2, 3, 1)
"""Where torch's gates (input, forget, cell, output) stand among ONNX's (input, output, forget, cell)."""


def values() -> Dict[str, np.ndarray]:
    """Numbers of the size of trained weights, no two of them the same."""
    random = np.random.default_rng(7)
    return {name: random.uniform(-1, 1, shape) for name, shape in SHAPES.items()}


def graph(**changes: str) -> Graph:
    """An LSTM of one direction and its gradient by all that it reads."""
    forward = Op("LSTM", "lstm", ("x", "kernel", "recurrent", "bias", "", "hidden", "cell"), tuple(RESULTS), changes)
    gradients = tuple(f"d_{name}" for name in SHAPES)
    backward = Op("LSTMGrad", "grad", ("dy", *SHAPES), gradients, changes)
    shapes = {**SHAPES, **RESULTS, "dy": RESULTS["y"], **{f"d_{name}": shape for name, shape in SHAPES.items()}}
    tensors = [Tensor(name, "FLOAT", shape) for name, shape in shapes.items()]
    return Graph("g", [forward, backward], [*SHAPES, "dy"], [*RESULTS, *gradients], tensors)


def as_onnx(array: np.ndarray) -> np.ndarray:
    """Rows of torch's gates in ONNX's order, with an axis for directions in front."""
    parts = np.split(array, 4)
    return np.concatenate([parts[place] for place in np.argsort(FROM_ONNX)])[None]


def as_torch(array: np.ndarray) -> np.ndarray:
    """Rows of ONNX's gates in torch's order."""
    parts = np.split(array, 4)
    return np.concatenate([parts[place] for place in FROM_ONNX])


def test_states_and_gradients_are_torch_s() -> None:
    """All hidden states, the last state and cell, and the gradients of everything that is read."""
    torch = pytest.importorskip("torch")
    held, dy = values(), np.random.default_rng(8).uniform(-1, 1, RESULTS["y"])
    layer = torch.nn.LSTM(INPUTS, UNITS).double()
    own = {
        "weight_ih_l0": held["kernel"][0],
        "weight_hh_l0": held["recurrent"][0],
        "bias_ih_l0": held["bias"][0, : 4 * UNITS],
        "bias_hh_l0": held["bias"][0, 4 * UNITS :],
    }
    layer.load_state_dict({name: torch.from_numpy(as_torch(value)) for name, value in own.items()})
    read = {name: torch.from_numpy(held[name]).requires_grad_() for name in ("x", "hidden", "cell")}
    sequence, (last, end) = layer(read["x"], (read["hidden"], read["cell"]))
    sequence.backward(torch.from_numpy(dy[:, 0]))

    found = {name: value[0, 0, 0] for name, value in execute(graph(), {**held, "dy": dy}).outputs.items()}
    gradients = {name: parameter.grad.numpy() for name, parameter in layer.named_parameters()}
    biases = [as_onnx(gradients[name])[0] for name in ("bias_ih_l0", "bias_hh_l0")]
    expected = {
        "y": sequence.detach().numpy()[:, None],
        "last": last.detach().numpy(),
        "end": end.detach().numpy(),
        **{f"d_{name}": value.grad.numpy() for name, value in read.items()},
        "d_kernel": as_onnx(gradients["weight_ih_l0"]),
        "d_recurrent": as_onnx(gradients["weight_hh_l0"]),
        "d_bias": np.concatenate(biases)[None],
    }
    # Both sides compute in float64: sums of at most this many terms, each of size one at most, after as many steps.
    allowed = STEPS * 8 * UNITS * STEPS * FORMATS["float64"].unit
    for name, value in expected.items():
        assert found[name].shape == value.shape
        assert np.abs(found[name] - value).max() <= allowed, name


def test_what_is_left_out_is_zero() -> None:
    """Without a bias and first states an LSTM begins with zeros."""
    held = values()
    zeros = {name: np.zeros(SHAPES[name]) for name in ("bias", "hidden", "cell")}
    whole = execute(graph(), {**held, **zeros, "dy": np.zeros(RESULTS["y"])}).outputs["y"]
    short = Graph(
        "g",
        [Op("LSTM", "lstm", ("x", "kernel", "recurrent"), ("y",))],
        ["x", "kernel", "recurrent"],
        ["y"],
        [Tensor(name, "FLOAT", {**SHAPES, **RESULTS}[name]) for name in ("x", "kernel", "recurrent", "y")],
    )
    alone = execute(short, {name: held[name] for name in ("x", "kernel", "recurrent")}).outputs["y"]

    np.testing.assert_array_equal(alone, whole)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"direction": "reverse"}, "runs backwards"), ({"direction": "bidirectional"}, "runs backwards")],
)
def test_what_is_not_known_is_one_sentence(changes: Dict[str, str], sentence: str) -> None:
    """Another direction is refused with the op's name, never computed as if it were forward."""
    with pytest.raises(ExecutionError, match=f"LSTM 'lstm'.*{sentence}"):
        execute(graph(**changes), {**values(), "dy": np.zeros(RESULTS["y"])})

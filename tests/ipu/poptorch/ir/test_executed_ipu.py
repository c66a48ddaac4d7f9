"""The dump that the vendor's API hands out, executed: it computes what the model returned."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Tuple

import numpy as np
import pytest

from ipu_conformance import check, interpreter, ir

from ...training.executed import executable
from ..lazily import poptorch, torch
from ..on_device import as_model
from .dumped import read


@pytest.mark.emulator
def test_a_difference_is_executed_as_it_was_computed() -> None:
    """The terms of a difference stand in the dump in their order; whole numbers are compared bit for bit."""
    held = {"base": np.array([[5.0, -7.0, 11.0]], np.float32)}
    samples, base = torch.arange(-6.0, 6.0).reshape(4, 3), torch.nn.Parameter(torch.tensor(held["base"]))
    model = poptorch.inferenceModel(as_model(lambda model, x: torch.relu(x * x - model.base), base=base))
    returned = model(samples).numpy()
    graph = read(model)
    fed = {name: samples.numpy() for name in graph.inputs if name not in held}

    outcome = interpreter.execute(graph, {**held, **fed})

    (told,) = outcome.outputs.values()
    check.identical(actual=told[0, 0, 0].astype(np.float32), expected=returned, what="what the dump computes")


FUNCTIONS = (
    "x * y - x",
    "x @ y.transpose(1, 2)",
    "x.sum(1)",
    "x.sum((0, 2), keepdim=True)",
    "x.mean(1, keepdim=True)",
    "x.amax(1)",
    "x[:, :, :3].prod(2)",
    "x.argmin(1, keepdim=True)",
    "x.argmax(2)",
    "torch.cat([x, y, x], 1)",
    "torch.cat([x, y], -1)",
    "torch.stack([x, y, x], 1)",
    "torch.stack([x, y], -1)",
    "x.reshape(5, 12).permute(1, 0)",
    "x.permute(2, 0, 1)",
    "x[:, 1]",
    "x.narrow(2, 1, 3)",
    "x[:, 1::2]",
    "x[:, :, ::3]",
    "torch.addmm(x[0, :, :4], x[1], y[2].t(), beta=0.5, alpha=2.0)",
    "x.unsqueeze(1).squeeze(1)",
    "torch.where(x < y, x, y)",
    "torch.maximum(x, y)",
    "x.int().float()",
    "torch.nn.functional.leaky_relu(x, 0.25)",
    "x.clamp(-1.5, 2.5)",
    "torch.nn.functional.conv1d(x, y[:, :, :2], stride=2, padding=1)",
    "torch.nn.functional.conv1d(x, y[:2, :2, :2], groups=2, dilation=3)",
    "torch.nn.functional.max_pool1d(x, 2, 3)",
)
"""Calls whose attributes, such as axes, are neither the default nor like each other."""


def _eighths(factor: int, step: float) -> np.ndarray:
    """Numbers in no order and of few bits, so that no result is rounded."""
    return ((np.arange(60) * factor % 23 - 11).reshape(3, 4, 5) * step + 0.125).astype(np.float32)


@pytest.mark.emulator
@pytest.mark.parametrize("text", FUNCTIONS)
def test_the_executed_dump_of_a_function_is_what_the_model_returned(text: str) -> None:
    """The attributes of an op say what it computes: its axes, shapes, bounds, windows and slopes."""
    x, y = _eighths(7, 0.25), _eighths(5, 0.5)
    model = poptorch.inferenceModel(as_model(lambda model, x, y: eval(text, {"torch": torch, "x": x, "y": y})))
    returned = model(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    graph = read(model)
    fed = {name: value for name, value in (("tensors_0", x), ("tensors_1", y)) if name in graph.inputs}
    with executable():
        (told,) = interpreter.execute(graph, fed).outputs.values()

    check.identical(actual=told[0, 0, 0].astype(returned.dtype), expected=returned, what=f"the executed dump of {text}")


FILLED = (
    "x * 2.5",
    "x + torch.ones(4, 5)",
    "x * torch.full((4, 5), 3.0)",
    "torch.zeros(3, 4, 5) - x",
    "x - torch.full_like(x, -1.5) * torch.ones_like(x)",
    "torch.where(x > 0, x, torch.zeros_like(x))",
    "x.masked_fill(x > 0, -2.0)",
)
"""Calls with constants, whose values an exported model holds."""


@pytest.mark.emulator
@pytest.mark.parametrize("text", FILLED)
def test_the_executed_export_of_a_function_is_what_the_model_returned(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is exported as ONNX has the values of its constants."""
    path, x = tmp_path / "model.onnx", _eighths(7, 0.25)
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", str(path))
    model = poptorch.inferenceModel(as_model(lambda model, x: eval(text, {"torch": torch, "x": x})))
    returned = model(torch.from_numpy(x)).numpy()
    with executable():
        (told,) = interpreter.execute(ir.read(str(path)), {"tensors_0": x}).outputs.values()

    check.identical(
        actual=told[0, 0, 0].astype(returned.dtype), expected=returned, what=f"the executed export of {text}"
    )


class Counts(NamedTuple):
    """Accumulation and replicas of an update, the IPUs of two layers, and the loss scale."""

    accumulation: int
    replicas: int
    ipus: Tuple[int, int] = (0, 0)
    scale: float = 1.0


WEIGHTS = {
    "first.weight": [[1.0, -2.0, 3.0], [2.0, 1.0, -1.0]],
    "first.bias": [1.0, -1.0],
    "last.weight": [[2.0, -1.0], [1.0, 1.0], [-1.0, 2.0], [1.0, -2.0]],
    "last.bias": [0.0, 1.0, -1.0, 2.0],
}
"""Whole numbers, so that no gradient is rounded."""
RATE = 2.0**-6
SAMPLES = 2


def _trained(counts: Counts) -> Tuple[Any, Tuple[np.ndarray, np.ndarray]]:
    """A model that has run once and returns every gradient of its weights, and what it was fed."""

    def forward(model: Any, x: Any, wanted: Any) -> Any:
        with poptorch.Block("first", ipu_id=counts.ipus[0]):
            hidden = torch.relu(model.first(x))
        with poptorch.Block("last", ipu_id=counts.ipus[1]):
            return torch.nn.functional.mse_loss(model.last(hidden), wanted, reduction="sum")

    model = as_model(forward, first=torch.nn.Linear(3, 2), last=torch.nn.Linear(2, 4))
    model.load_state_dict({name: torch.tensor(value) for name, value in WEIGHTS.items()})
    options = poptorch.Options().replicationFactor(counts.replicas).autoRoundNumIPUs(True)
    options.Training.gradientAccumulation(counts.accumulation)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    for name in WEIGHTS:
        options.anchorTensor(name, f"Gradient___{name}", poptorch.OutputMode.All)
    sgd = poptorch.optim.SGD(model.parameters(), lr=RATE, loss_scaling=counts.scale)
    trainer = poptorch.trainingModel(model, options, sgd)
    size = SAMPLES * counts.accumulation * counts.replicas
    samples = (np.arange(3.0 * size).reshape(size, 3) % 5 - 2).astype(np.float32)
    wanted = (np.arange(4.0 * size).reshape(size, 4) % 3).astype(np.float32)
    trainer(torch.from_numpy(samples), torch.from_numpy(wanted))
    return trainer, (samples, wanted)


@pytest.mark.emulator
@pytest.mark.parametrize(
    "counts",
    [
        pytest.param(Counts(3, 1), id="single"),
        pytest.param(Counts(4, 3), id="accumulated", marks=pytest.mark.ipus(4)),
        pytest.param(Counts(5, 3, ipus=(0, 1)), id="pipelined", marks=pytest.mark.ipus(8)),
        pytest.param(Counts(3, 4, scale=8.0), id="scaled", marks=pytest.mark.ipus(4)),
    ],
)
def test_the_gradients_of_the_executed_dump_are_those_that_the_device_returned(counts: Counts) -> None:
    """Each micro-batch of each replica has the gradients of the dump, bit for bit: whole numbers are not rounded."""
    trainer, fed = _trained(counts)
    graph = read(trainer)
    held = {name: np.array(value) for name, value in WEIGHTS.items()}
    seeds = {name: np.asarray(counts.scale) for name in graph.inputs if name.startswith("Gradient___")}
    state = {name for name in graph.inputs if name.startswith("Acc")}
    streams = [name for name in graph.inputs if name not in {*held, *seeds, *state}]
    axes = (1, counts.accumulation, counts.replicas, SAMPLES)
    given = {name: value.reshape(*axes, -1) for name, value in zip(streams, fed)}

    gradients = [f"Gradient___{name}" for name in WEIGHTS]
    told = interpreter.execute(graph, {**held, **seeds, **given}, fetches=gradients).outputs

    for name, gradient in zip(WEIGHTS, gradients):
        returned = trainer.getAnchoredTensor(name).numpy()
        values = told[gradient].astype(np.float32).reshape(returned.shape)
        check.identical(actual=returned, expected=values, what=f"the gradients of {name}")

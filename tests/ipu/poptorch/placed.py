"""A chain of layers that can be spread over IPUs in every spelling, and what a plain loop makes of it.

Every number is a small multiple of a power of two, so that sums and products have no rounding and any order of
computing them gives the same bits: results are compared exactly. ``trained`` proves it by computing in float32 too.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import pytest

WIDTH = 2
STEP = 2.0**-4
"""The learning rate."""
SPELLINGS = ("begin", "with", "start", "function", "auto")


class Config(NamedTuple):
    """The IPU of every layer, and the counts D, G and R; they and the number of stages differ in pairs."""

    ipus: Tuple[int, ...]
    iterations: int
    accumulation: int
    replicas: int

    def __str__(self) -> str:
        placed = "".join(map(str, self.ipus))
        return f"ipus{placed}-D{self.iterations}-G{self.accumulation}-R{self.replicas}"


def cases(configs: Sequence[Config]) -> List[Any]:
    """The rows with the IPUs that they need on hardware."""
    return [
        pytest.param(row, id=str(row), marks=pytest.mark.ipus(reserved(max(row.ipus) + 1, row.replicas)))
        for row in configs
    ]


def reserved(ipus: int, replicas: int = 1) -> int:
    """The power of two that holds that many IPUs."""
    return 1 << (ipus * replicas - 1).bit_length()


def chain(poptorch: Any, ipus: Sequence[int], spelling: str = "begin", *, loss: bool = True) -> Any:
    """A model with one layer for each of ``ipus``, put there in one of the SPELLINGS; it returns output and loss."""
    import torch

    class Layer(torch.nn.Module):
        """The first multiplies and adds; the others fold at zero and add, so that gradients stay whole numbers."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([2.0, -1.0])) if number == 0 else None
            self.bias = torch.nn.Parameter(torch.tensor([0.5, -0.25]) * (number + 1))

        def forward(self, x: Any) -> Any:
            return (x.abs() if self.weight is None else x * self.weight) + self.bias

    class Chain(torch.nn.Module):
        """The layers one after the other."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(Layer(number) for number in range(len(ipus)))
            if spelling == "begin":
                for number, ipu in enumerate(ipus):
                    poptorch.BeginBlock(self.layers[number], f"layer{number}", ipu_id=ipu)

        def run(self, number: int, x: Any) -> Any:
            x = self.layers[number](x)
            if number + 1 < len(ipus) or not loss:
                return x
            return x, poptorch.identity_loss(x, reduction="sum")

        def forward(self, x: Any) -> Any:
            if spelling == "auto":
                poptorch.Block.useAutoId()
            for number, ipu in enumerate(ipus):
                if spelling == "with":
                    with poptorch.Block(f"layer{number}", ipu_id=ipu):
                        x = self.run(number, x)
                elif spelling == "function":
                    x = poptorch.BlockFunction(f"layer{number}", ipu_id=ipu)(self.run)(number, x)
                else:
                    if spelling == "start":
                        poptorch.Block.start(f"layer{number}", ipu_id=ipu)
                    elif spelling == "auto":
                        poptorch.Block.start(ipu_id=ipu)
                    x = self.run(number, x)
            return x

    return Chain()


def samples(count: int) -> Any:
    """That many samples, each different from all others."""
    import torch

    numbers = torch.arange(count, dtype=torch.float32)
    return torch.stack([(numbers % 7) - 3, numbers * 0.25 - count / 16], dim=1)


def options(poptorch: Any, config: Config, *, training: bool = True) -> Any:
    """The counts of a configuration; gradients are summed, and IPUs are rounded up to what can be reserved."""
    made = poptorch.Options().deviceIterations(config.iterations).replicationFactor(config.replicas)
    made.autoRoundNumIPUs(True)
    if training:
        made.Training.gradientAccumulation(config.accumulation)
        made.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
        made.outputMode(poptorch.OutputMode.All)
    return made


def batch(config: Config, *, training: bool = True, micro: int = 1) -> Any:
    """One combined batch for one call."""
    return samples(micro * config.iterations * config.replicas * (config.accumulation if training else 1))


def trained(model: Any, x: Any, config: Config, calls: int) -> Tuple[Dict[str, Any], List[Any]]:
    """The weights and the outputs after that many calls on ``x``, by a plain loop in float64 and in float32."""
    import torch

    exact, outputs = _loop(copy.deepcopy(model).double(), x.double(), config, calls)
    rounded, _ = _loop(copy.deepcopy(model), x, config, calls)
    for name, value in exact.items():
        assert torch.equal(value.float().double(), rounded[name].double()), f"{name} is not exact; choose other numbers"
    return {name: value.float() for name, value in exact.items()}, [output.float() for output in outputs]


def _loop(model: Any, x: Any, config: Config, calls: int) -> Tuple[Dict[str, Any], List[Any]]:
    import torch

    outputs = []
    for _ in range(calls):
        made = []
        for part in x.chunk(config.iterations):
            model.zero_grad()
            output, loss = model(part)
            loss.backward()
            made.append(output.detach())
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= STEP * weight.grad
        outputs.append(torch.cat(made))
    return {name: value.detach().clone() for name, value in model.named_parameters()}, outputs


def train(poptorch: Any, model: Any, made: Any, x: Any, calls: int) -> Tuple[Dict[str, Any], List[Any]]:
    """The same on the device: a trained model's weights and outputs."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=STEP)
    trainer = poptorch.trainingModel(model, made, optimizer)
    outputs = [trainer(x)[0].clone() for _ in range(calls)]
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    trainer.destroy()
    return weights, outputs


def assert_same_run(actual: Tuple[Any, Any], expected: Tuple[Any, Any]) -> None:
    """Both runs have the same weights and the same outputs, bit for bit."""
    import torch

    assert sorted(actual[0]) == sorted(expected[0])
    for name, value in expected[0].items():
        assert torch.equal(actual[0][name], value), f"{name} is {actual[0][name]}, expected {value}"
    for call, (own, other) in enumerate(zip(actual[1], expected[1])):
        assert torch.equal(own, other), f"output of call {call} is {own}, expected {other}"


def placements(capfd: Any, poptorch: Any, run: Callable[[], Any]) -> List[str]:
    """Where operations are placed while ``run`` compiles a model, as the log says at level DEBUG.

    Each is ``mode(…), ipu(…), stage(…)``; neighbours in the same place are one, since how many operations the compiler
    makes of a line of a model is its own affair.
    """
    capfd.readouterr()
    poptorch.setLogLevel("DEBUG")
    try:
        run()
    finally:
        poptorch.setLogLevel("WARN")
    captured = capfd.readouterr()
    lines = [line for line in (captured.out + captured.err).splitlines() if "mode(" in line]
    return [place for place, _ in itertools.groupby(line[line.index("mode(") :].strip() for line in lines)]

"""A chain of layers that rounds nothing, spread over IPUs in every spelling, and what the oracle makes of it."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance import check
from ipu_conformance.oracle import exact
from ipu_conformance.run import RunConfig

from ...training import configured, reduced, uncut
from ..exact import assert_same
from ..exact import options as scale_options
from ..lazily import torch

STEP = 2.0**-4
"""The learning rate."""
SUMMED = reduced(RunConfig(micro_batch=1), "sum", STEP)
"""Gradients are summed over micro-batches and replicas."""
SPELLINGS = ("begin", "with", "start", "function", "auto")


def placed(ipus: Sequence[int], *counts: int) -> RunConfig:
    """Counts for a chain with a layer on each of ``ipus``; they and the number of stages differ in pairs."""
    return SUMMED.with_counts(*counts, stages=tuple(range(len(ipus))), devices=tuple(ipus))


def cases(configs: Sequence[RunConfig]) -> List[Any]:
    """Configurations as parameters, named by IPUs and counts, with the IPUs that they need on hardware."""
    return configured({f"ipus{''.join(map(str, config.devices))}-{config.counts_id}": config for config in configs})


def chain(poptorch: Any, ipus: Sequence[int], spelling: str = "begin", *, loss: bool = True) -> Any:
    """A model with one layer for each of ``ipus``, put there in one of the SPELLINGS; it returns output and loss."""

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
    """Distinct samples of two features."""
    return torch.tensor(exact.offsets(count))


def options(poptorch: Any, config: RunConfig, *, training: bool = True) -> Any:
    """The counts of a configuration; gradients are summed, and IPUs are rounded up to what can be reserved."""
    chosen = scale_options(poptorch, replace(config, training=training), "All" if training else None)
    if training:
        chosen.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    return chosen


def batch(config: RunConfig, micro: int = 1) -> Any:
    """One combined batch for one call."""
    return samples(micro * config.micro_batches)


def trained(x: Any, config: RunConfig, calls: int) -> Tuple[Dict[str, Any], List[Any]]:
    """The oracle's weights and outputs of the chain after that many calls on ``x``."""
    problem = exact.folds(len(config.devices))
    record = exact.train(problem, np.tile(x.numpy(), (calls, 1)), replace(uncut(config), steps=calls))
    weights = {name: torch.tensor(exact.float32(value)) for name, value in (record.weights or {}).items()}
    return weights, [torch.tensor(exact.float32(output)) for output in record.outputs or ()]


def train(poptorch: Any, model: Any, options: Any, x: Any, calls: int) -> Tuple[Dict[str, Any], List[Any]]:
    """The same on the device: a trained model's weights and outputs."""
    optimizer = torch.optim.SGD(model.parameters(), lr=STEP)
    trainer = poptorch.trainingModel(model, options, optimizer)
    outputs = [trainer(x)[0].clone() for _ in range(calls)]
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    trainer.destroy()
    return weights, outputs


def assert_same_run(actual: Tuple[Any, Any], expected: Tuple[Any, Any]) -> None:
    """Both runs have the same weights and the same outputs, bit for bit."""
    __tracebackhide__ = True
    check.equal(actual=sorted(actual[0]), expected=sorted(expected[0]), what="the list of the parameters")
    check.equal(actual=len(actual[1]), expected=len(expected[1]), what="the number of outputs")
    for call, (output, wanted) in enumerate(zip(actual[1], expected[1])):
        assert_same(output, wanted, f"the output of call {call}")
    for name, value in expected[0].items():
        assert_same(actual[0][name], value, f"{name} after {len(actual[1])} calls")


@contextlib.contextmanager
def accepted(poptorch: Any, ipus: Sequence[int]) -> Iterator[None]:
    """The device does not refuse a chain on these IPUs."""
    __tracebackhide__ = True
    try:
        yield
    except poptorch.Error as error:
        check.holds(False, f"Layers on the IPUs {tuple(ipus)} are refused: {error}")


def assert_trains(
    poptorch: Any, config: RunConfig, chosen: Optional[Any] = None, *, spelling: str = "begin", calls: int = 1
) -> None:
    """The chain, with the options of a configuration or those chosen, trains as a loop over the micro-batches does."""
    __tracebackhide__ = True
    chosen = options(poptorch, config) if chosen is None else chosen
    model, x = chain(poptorch, config.devices, spelling), batch(config)
    with accepted(poptorch, config.devices):
        run = train(poptorch, model, chosen, x, calls)
    assert_same_run(run, trained(x, config, calls))


def assert_infers(poptorch: Any, ipus: Sequence[int], chosen: Any, x: Any) -> None:
    """The chain gives on the device what it gives on the host, in the order of the inputs."""
    __tracebackhide__ = True
    model = chain(poptorch, ipus, loss=False)
    assert_same(poptorch.inferenceModel(model, chosen)(x), model(x), f"the output of layers on the IPUs {ipus}")


def ipus_of(places: Sequence[str]) -> List[int]:
    """The IPUs of ``placements``."""
    return [int(place.split("ipu(")[1].split(")")[0]) for place in places]


def assert_placed(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Operations are in these places, in order."""
    __tracebackhide__ = True
    check.equal(actual=list(actual), expected=list(expected), what="the list of the places of the operations")


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
    lines = [line for line in "".join(capfd.readouterr()).splitlines() if "mode(" in line]
    return [place for place, _ in itertools.groupby(line[line.index("mode(") :].strip() for line in lines)]

"""A chain of layers that rounds nothing, spread over IPUs in every spelling, and what the oracle makes of it."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ipu_conformance import check
from ipu_conformance.oracle import exact
from ipu_conformance.run import RunConfig

from ...training import configured, reduced, uncut
from ..exact import assert_same
from ..exact import options as scale_options
from ..lazily import poptorch, torch

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


def chain(ipus: Sequence[int], spelling: str = "begin", *, loss: bool = True) -> Any:
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
                name = () if spelling == "auto" else (f"layer{number}",)
                if spelling in ("start", "auto"):
                    poptorch.Block.start(*name, ipu_id=ipu)
                if spelling == "function":
                    x = poptorch.BlockFunction(*name, ipu_id=ipu)(self.run)(number, x)
                    continue
                with poptorch.Block(*name, ipu_id=ipu) if spelling == "with" else contextlib.nullcontext():
                    x = self.run(number, x)
            return x

    return Chain()


def samples(count: int) -> Any:
    """Distinct samples of two features."""
    return torch.tensor(exact.offsets(count))


def options(config: RunConfig, *, training: bool = True) -> Any:
    """The counts of a configuration; gradients are summed, and IPUs are rounded up to what can be reserved."""
    chosen = scale_options(poptorch, replace(config, training=training), "All" if training else None)
    if training:
        chosen.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    return chosen


def train(model: Any, options: Any, x: Any) -> Tuple[Dict[str, Any], Any]:
    """The weights and the output of a model on the device that is trained by one call."""
    trainer = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=STEP))
    output = trainer(x)[0].clone()
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    trainer.destroy()
    return weights, output


def assert_trains(config: RunConfig, chosen: Optional[Any] = None, *, spelling: str = "begin") -> None:
    """The chain, with the options of a configuration or those chosen, trains as a loop over the micro-batches does."""
    __tracebackhide__ = True
    model, x = chain(config.devices, spelling), samples(config.micro_batches)
    with check.accepted(f"training with layers on the IPUs {config.devices}"):
        weights, output = train(model, options(config) if chosen is None else chosen, x)
    record = exact.train(exact.folds(len(config.devices)), x.numpy(), replace(uncut(config), steps=1))
    assert_same(output, torch.tensor(exact.float32(record.outputs[0])), "the output")
    check.equal(actual=sorted(weights), expected=sorted(record.weights), what="the list of the parameters")
    for name, value in record.weights.items():
        assert_same(weights[name], torch.tensor(exact.float32(value)), f"{name} after a call")


def assert_infers(ipus: Sequence[int], chosen: Any, x: Any) -> None:
    """The chain gives on the device what it gives on the host, in the order of the inputs."""
    __tracebackhide__ = True
    model = chain(ipus, loss=False)
    assert_same(poptorch.inferenceModel(model, chosen)(x), model(x), f"the output of layers on the IPUs {ipus}")


def assert_ipus(capfd: Any, model: Any, expected: Sequence[int]) -> None:
    """The operations of a model are on these IPUs, in order."""
    __tracebackhide__ = True
    places, _ = placements(capfd, model, samples(3))
    actual = [int(place.split("ipu(")[1].split(")")[0]) for place in places]
    check.equal(actual=actual, expected=list(expected), what="the list of the operations' IPUs")


def placements(capfd: Any, model: Any, x: Any) -> Tuple[List[str], Any]:
    """Where operations are placed while a call compiles a model, as the log says at level DEBUG, and what it returns.

    Each is ``mode(…), ipu(…), stage(…)``; neighbours in the same place are one, since how many operations the compiler
    makes of a line of a model is its own affair.
    """
    capfd.readouterr()
    poptorch.setLogLevel("DEBUG")
    try:
        output = model(x)
    finally:
        poptorch.setLogLevel("WARN")
    lines = [line for line in "".join(capfd.readouterr()).splitlines() if "mode(" in line]
    return [place for place, _ in itertools.groupby(line[line.index("mode(") :].strip() for line in lines)], output

"""The golden graphs of the MNIST network: ``ipu-conformance emulate -m tests.ipu.poptorch.ir.golden`` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple

from ipu_conformance.ir import Graph, write

from ..lazily import poptorch, torch
from .dumped import read

FOLDER = Path(__file__).parents[2] / "golden"


class Golden(NamedTuple):
    """One way to run the workload's network: the module that begins on each further IPU, and replicas."""

    borders: Tuple[str, ...] = ()
    accumulation: int = 1
    replicas: int = 1


GOLDEN: Dict[str, Golden] = {
    "poptorch_mnist_single": Golden(),
    "poptorch_mnist_pipelined_2": Golden(("hidden",), 3),
    "poptorch_mnist_pipelined_4": Golden(("block2", "hidden", "classifier"), 7),
    "poptorch_mnist_replicated": Golden((), 1, 2),
}


def graph(name: str) -> Graph:
    """The graph that the target gives for a golden file."""
    from ipu_conformance.workloads.poptorch_mnist.model import Network

    golden = GOLDEN[name]
    network: Any = Network()
    for number, module in enumerate(golden.borders):
        setattr(network, module, poptorch.BeginBlock(getattr(network, module), ipu_id=number + 1))
    options = poptorch.Options().deviceIterations(2).replicationFactor(golden.replicas)
    options.Training.gradientAccumulation(golden.accumulation)
    model = poptorch.trainingModel(network, options, torch.optim.SGD(network.parameters(), lr=0.03))
    size = 8 * 2 * golden.accumulation * golden.replicas
    model.compile(torch.zeros(size, 1, 28, 28), torch.zeros(size, dtype=torch.int64))
    return read(model)


def path(name: str) -> Path:
    """The file of a golden graph."""
    return FOLDER / f"{name}.json"


if __name__ == "__main__":
    for each in GOLDEN:
        write(graph(each), path(each), "json")
        print(path(each))

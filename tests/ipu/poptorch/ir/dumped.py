"""Models whose IR the cases read, and the reading of a dump."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from ipu_conformance import check
from ipu_conformance.ir import Graph, Op, checks
from ipu_conformance.ir.files import loads

from ..lazily import poptorch, torch
from ..on_device import as_model


def read(model: Any) -> Graph:
    """The graph in the dump of a compiled model."""
    return loads(model._debugGetPopartIR().encode(), "popart")


def plain(op: Op) -> str:
    """The type of an op without the mark of a variant that writes in place."""
    return op.type[: -len("Inplace")] if op.type.endswith("Inplace") else op.type


def count(graph: Graph, *wanted: str) -> int:
    """How many ops are of one of these types."""
    return sum(plain(op) in wanted for op in graph.ops)


def assert_counts(graph: Graph, **wanted: int) -> None:
    """The graph has this many ops of each of these types."""
    __tracebackhide__ = True
    check.equal(actual={kind: count(graph, kind) for kind in wanted}, expected=wanted, what="the number of ops by type")


class Setup(NamedTuple):
    """A way to run the small network."""

    name: str
    training: bool = True
    ipus: Tuple[int, ...] = (0, 0, 0, 0)
    """The IPU of each of the network's four blocks."""
    mode: str = "Pipelined"
    replicas: int = 1
    accumulation: int = 1
    iterations: int = 1

    def __str__(self) -> str:
        return self.name

    @property
    def stages(self) -> int:
        """Forward stages: changes of IPU, counted from IPU 0."""
        return 1 + sum(before != after for before, after in zip((0, *self.ipus), self.ipus))


SETUPS = (
    Setup("inference", training=False),
    Setup("training"),
    Setup("accumulating", accumulation=3, iterations=2),
    Setup("replicated", replicas=2, accumulation=3),
    Setup("pipelined-2", ipus=(0, 0, 1, 1), accumulation=3),
    Setup("pipelined-4", ipus=(0, 1, 2, 3), accumulation=7),
    Setup("pipelined-back", ipus=(0, 1, 1, 0), accumulation=5),
    Setup("pipelined-replicated", ipus=(0, 0, 1, 1), accumulation=3, replicas=2),
    Setup("pipelined-inference", training=False, ipus=(0, 1, 2, 3), iterations=4),
    Setup("sharded", ipus=(0, 0, 1, 1), mode="Sharded"),
    Setup("sharded-back", ipus=(0, 1, 1, 0), mode="Sharded"),
)
BY_NAME = {setup.name: setup for setup in SETUPS}
MICRO = 2
PARAMETERS = 6
SOUND: Dict[str, Callable[[Graph, Setup], Sequence[Any]]] = {
    "shapes": lambda graph, setup: checks.shapes(graph),
    "placement": lambda graph, setup: checks.placement(graph, stages=setup.mode == "Pipelined"),
    "stage_order": lambda graph, setup: checks.stage_order(graph),
    "copies": lambda graph, setup: checks.copies(graph),
    "all_reduce": lambda graph, setup: checks.all_reduce(graph, setup.replicas),
}
"""Checks of a graph: each gives what is wrong with it."""


def assert_sound(graph: Graph, setup: Setup, kind: str = "shapes") -> None:
    """One of the checks of a graph finds nothing wrong with it."""
    __tracebackhide__ = True
    faults = [str(fault) for fault in SOUND[kind](graph, setup)]
    check.equal(actual=faults, expected=[], what=f"the list of what is wrong with the graph ({kind})")


def network(ipus: Sequence[int] = (0, 0, 0, 0)) -> Any:
    """A convolution and three linear layers in four blocks; the fourth also reads what the first made."""

    def forward(model: Any, images: Any, labels: Any = None) -> Any:
        with poptorch.Block("one", ipu_id=ipus[0]):
            first = torch.flatten(model.layer1(images), 1)
        with poptorch.Block("two", ipu_id=ipus[1]):
            x = model.layer2(first)
        with poptorch.Block("three", ipu_id=ipus[2]):
            x = torch.tanh(model.layer3(x))
        with poptorch.Block("four", ipu_id=ipus[3]):
            scores = model.layer4(torch.cat([x, first], 1))
            return scores if labels is None else (scores, model.loss(scores, labels))

    return as_model(
        forward,
        layer1=torch.nn.Conv2d(1, 4, 3),
        layer2=torch.nn.Sequential(torch.nn.Linear(36, 12), torch.nn.ReLU(), torch.nn.Dropout(0.5)),
        layer3=torch.nn.Linear(12, 12, bias=False),
        layer4=torch.nn.Linear(48, 5, bias=False),
        loss=torch.nn.CrossEntropyLoss(),
    )


def options_of(poptorch: Any, setup: Setup) -> Any:
    """The options of a setup."""
    options = poptorch.Options().deviceIterations(setup.iterations).replicationFactor(setup.replicas)
    options.Training.gradientAccumulation(setup.accumulation)
    if setup.mode == "Sharded":
        options.setExecutionStrategy(poptorch.ShardedExecution())
    return options


def executor(setup: Setup, optimizer: Optional[Callable[[Any], Any]] = None, options: Any = None) -> Tuple[Any, Any]:
    """The wrapped network, and the inputs of one call."""
    net = network(setup.ipus)
    chosen = options_of(poptorch, setup) if options is None else options
    size = MICRO * setup.iterations * setup.accumulation * setup.replicas
    images, labels = torch.zeros(size, 1, 5, 5), torch.zeros(size, dtype=torch.int64)
    if not setup.training:
        return poptorch.inferenceModel(net.eval(), chosen), (images,)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1) if optimizer is None else optimizer(net)
    return poptorch.trainingModel(net, chosen, sgd), (images, labels)


def compiled(setup: Setup, optimizer: Optional[Callable[[Any], Any]] = None, options: Any = None) -> Any:
    """The compiled network."""
    model, inputs = executor(setup, optimizer, options)
    with check.accepted(f"compiling the network ({setup})"):
        model.compile(*inputs)
    return model


def inference_graph(poptorch: Any, module: Any, *inputs: Any, options: Any = None) -> Graph:
    """The graph of any module."""
    model = poptorch.inferenceModel(module, options)
    with check.accepted("compiling a model for inference"):
        model.compile(*inputs)
    return read(model)

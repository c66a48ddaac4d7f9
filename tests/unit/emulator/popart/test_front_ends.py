"""PopTorch and Paddle lower one network to one program."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, NamedTuple, Sequence, Set

import pytest

from ipu_conformance.ir import Graph, isomorphic
from ipu_conformance.ir.compare.isomorphism import DIFFERENT, ISOMORPHIC

pytest.importorskip("torch")
pytest.importorskip("paddle")

FEATURES, BATCH = 4, 2


class Setup(NamedTuple):
    """A way to train the network."""

    optimizer: str = "sgd"
    ipus: Sequence[int] = (0, 0)
    """The IPU of either layer."""
    accumulation: int = 1
    replicas: int = 1
    recompute: bool = False

    @property
    def pipelined(self) -> bool:
        return len(set(self.ipus)) > 1


SETUPS: Dict[str, Setup] = {
    "single": Setup(),
    "momentum": Setup("momentum"),
    "adam": Setup("adam"),
    "rmsprop": Setup("rmsprop"),
    "accumulating": Setup(accumulation=3),
    "replicated": Setup(replicas=2),
    "pipelined": Setup("adam", (0, 1), accumulation=3),
    "pipelined and replicated": Setup("momentum", (0, 1), accumulation=3, replicas=2),
    "recomputing": Setup(ipus=(0, 1), accumulation=3, recompute=True),
}


def from_poptorch(setup: Setup) -> Graph:
    """The network as PopTorch lowers it."""
    import torch

    from ipu_conformance.emulator.poptorch import api
    from ipu_conformance.emulator.poptorch.ir import lowering

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w0, self.w1 = (torch.nn.Parameter(torch.rand(FEATURES, FEATURES)) for _ in range(2))
            self.b0, self.b1 = (torch.nn.Parameter(torch.rand(FEATURES)) for _ in range(2))

        def forward(self, x: Any) -> Any:
            with api.Block("one", ipu_id=setup.ipus[0]):
                h = torch.relu(torch.matmul(x, self.w0) + self.b0)
            with api.Block("two", ipu_id=setup.ipus[1]):
                y = torch.tanh(torch.matmul(h, self.w1) + self.b1) + h
                return api.identity_loss(y, reduction="mean")

    network = Network()
    makers: Dict[str, Callable[..., Any]] = {
        "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "momentum": lambda parameters: api.optim.SGD(parameters, lr=0.1, momentum=0.9, use_combined_accum=False),
        "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
        # Paddle's has this rate on a device, whatever the program says, and these settings by default.
        "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, alpha=0.95, eps=1e-6),
    }
    options = api.Options().replicationFactor(setup.replicas)
    options.Training.gradientAccumulation(setup.accumulation)
    if not setup.pipelined:
        # A program of PopTorch's is a pipeline by default, even where it has one stage.
        options.setExecutionStrategy(api.ShardedExecution())
    if setup.recompute:
        options._Popart.set("autoRecomputation", 3)
    model = api.trainingModel(network, options, makers[setup.optimizer](network.parameters()))
    model.compile(torch.zeros(BATCH * setup.accumulation * setup.replicas, FEATURES))
    return lowering.lower(model.compiled, model.options, True)


def from_paddle(setup: Setup) -> Graph:
    """The network as Paddle lowers it."""
    import paddle

    from ipu_conformance.emulator.paddle.ir import lowering
    from tests.unit.emulator.paddle.programs import record_of

    def build() -> Any:
        x = paddle.static.data("x", [None, FEATURES], "float32")

        def layer(value: Any, number: int) -> Any:
            w = paddle.create_parameter([FEATURES, FEATURES], "float32", name=f"w{number}")
            b = paddle.create_parameter([FEATURES], "float32", name=f"b{number}")
            return paddle.add(paddle.matmul(value, w), b)

        def shard(number: int) -> Any:
            return paddle.static.ipu_shard_guard(setup.ipus[number], number if setup.pipelined else 0)

        with shard(0):
            h = paddle.nn.functional.relu(layer(x, 0))
        with shard(1):
            y = paddle.add(paddle.tanh(layer(h, 1)), h)
            return paddle.incubate.identity_loss(y, reduction="mean")

    makers: Dict[str, Callable[[], Any]] = {
        "sgd": lambda: paddle.optimizer.SGD(0.1),
        "momentum": lambda: paddle.optimizer.Momentum(0.1, 0.9),
        "adam": lambda: paddle.optimizer.Adam(0.1),
        "rmsprop": lambda: paddle.optimizer.RMSProp(0.1),
    }
    options = {
        "micro_batch_size": BATCH,
        "num_ipus": len(set(setup.ipus)) * setup.replicas,
        "enable_manual_shard": setup.pipelined,
        "enable_pipelining": setup.pipelined,
        "enable_gradient_accumulation": setup.accumulation > 1,
        "accumulation_factor": setup.accumulation,
        "enable_replicated_graphs": setup.replicas > 1,
        "replicated_graph_count": setup.replicas,
        "auto_recomputation": 3 if setup.recompute else 0,
    }
    return lowering.lower(record_of(build, ["x"], makers[setup.optimizer], **options))


def prefixes(graph: Graph) -> Counter[str]:
    """How often each prefix of PopART's names a tensor, and each suffix of a copy or of a value on the way."""
    rules: Counter[str] = Counter()
    for name in graph.tensors:
        prefix, marked, _ = name.rpartition("___")
        rules[prefix if marked else ""] += 1
        rules["__t"] += "__t" in name
    return rules


@pytest.mark.parametrize("name", SETUPS)
def test_both_front_ends_give_one_program(name: str) -> None:
    """The programs are the same up to names: ops, attributes, stages, copies, reductions and updates."""
    one, other = from_poptorch(SETUPS[name]), from_paddle(SETUPS[name])

    outcome = isomorphic(one, other)

    assert outcome.verdict == ISOMORPHIC, outcome.sentence


@pytest.mark.parametrize("name", ["single", "pipelined and replicated"])
def test_both_front_ends_name_by_one_rule(name: str) -> None:
    """Gradients, states and results of updates carry the same prefixes; gradients of one value are named by edge."""
    one, other = from_poptorch(SETUPS[name]), from_paddle(SETUPS[name])

    edges: Dict[str, Set[str]] = {
        side: {name for op in graph.ops if op.type == "Sum" for name in op.inputs}
        for side, graph in (("poptorch", one), ("paddle", other))
    }
    assert prefixes(one) == prefixes(other)
    assert edges["poptorch"] == edges["paddle"]
    assert all(name.startswith("Gradient___") for name in edges["paddle"])


def test_other_settings_give_other_programs() -> None:
    """The comparison notices another optimizer and another number of micro-batches."""
    single = from_poptorch(SETUPS["single"])

    assert isomorphic(single, from_paddle(SETUPS["momentum"])).verdict == DIFFERENT
    assert isomorphic(single, from_paddle(SETUPS["accumulating"])).verdict == DIFFERENT

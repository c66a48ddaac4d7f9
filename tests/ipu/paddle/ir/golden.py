"""The golden graphs of the MNIST network: ``ipu-conformance emulate -m tests.ipu.paddle.ir.golden`` writes them."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, NamedTuple

from ipu_conformance import ir
from ipu_conformance.ir import Graph

FOLDER = Path(__file__).parents[2] / "golden"


class Golden(NamedTuple):
    """One way to compile the workload's network."""

    training: bool = True
    ipus: int = 1


GOLDEN: Dict[str, Golden] = {
    "paddle_mnist_single": Golden(),
    "paddle_mnist_pipelined_2": Golden(ipus=2),
    "paddle_mnist_inference": Golden(training=False),
}


def graph(name: str) -> Graph:
    """The graph that the target dumps for a golden file, without the values of weights, which are random."""
    import paddle

    from ipu_conformance.workloads.paddle_mnist import model

    golden = GOLDEN[name]
    sharded = golden.ipus > 1

    def shard(part: int) -> Any:
        return paddle.static.ipu_shard_guard(part, part) if sharded else contextlib.nullcontext()

    with tempfile.TemporaryDirectory() as folder, model.static_mode():
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            network = model.build(8, learning_rate=1e-3 if golden.training else 0.0, shard=shard)
            paddle.static.Executor(paddle.CPUPlace()).run(network.startup)
            strategy = paddle.static.IpuStrategy()
            strategy.set_graph_config(golden.ipus, golden.training, 8, sharded)
            if sharded:
                strategy.set_pipelining_config(True, 1, True, 3)
            path_of_dump = str(Path(folder) / "model.onnx")
            strategy.set_options({"onnx_dump_path": path_of_dump})
            program, feeds, fetch = network.main, [network.image.name, "label"], network.cost
            if not golden.training:
                feeds, fetch = feeds[:1], network.prediction
                program = network.main.clone(for_test=True)._prune_with_input(feeds, [fetch.name])
            paddle.static.IpuCompiledProgram(program, ipu_strategy=strategy).compile(feeds, [fetch.name])
        return without_values(ir.read(path_of_dump))


def without_values(graph: Graph) -> Graph:
    """The graph with the weights' names alone; constants, which are whole numbers, keep their values."""
    kept = {name: data if graph.tensors[name].dtype == "INT64" else None for name, data in graph.initializers.items()}
    return replace(graph, initializers=kept)


def path(name: str) -> Path:
    """The file of a golden graph."""
    return FOLDER / f"{name}.json"


if __name__ == "__main__":
    for each in sys.argv[1:] or GOLDEN:
        ir.write(graph(each), path(each), "json")
        print(path(each))

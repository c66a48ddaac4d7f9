"""What the compiler writes to files: the model as ONNX, and drawings of its IR at the checks that PopART names."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Iterable, List, Mapping, Tuple

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import environment
from ipu_conformance.emulator.paddle.errors import InvalidArgument
from ipu_conformance.emulator.paddle.ir import lowering
from ipu_conformance.emulator.popart import onnx
from ipu_conformance.ir import files
from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.tensor import IRError

CHECKS: Mapping[str, str] = {
    "Fwd0": "forward",
    "Fwd1": "forward",
    "Bwd0": "backward",
    "PreAlias": "update",
    "Final": "copies",
}
"""The checks at which the IR can be drawn, in the order of PopART's enumeration, and how far a program is lowered."""

EVERY = "ALL"


def compiled(record: Any) -> None:
    """Write what the strategy and the environment ask for about a program that was just compiled."""
    path = environment.onnx_dump_path(record.strategy)
    if path:
        save_model_proto(record, path)
    for check in checks(record.strategy.value("dot_checks")):
        draw(record, check, str(record.strategy.value("log_dir") or "."))


def checks(asked: Iterable[Any]) -> Tuple[str, ...]:
    """The names of the checks that a strategy asks for by name, by number or all together, each once."""
    numbered = {str(number): check for number, check in enumerate(CHECKS)}
    names: List[str] = []
    for check in map(str, asked):
        names += CHECKS if check == EVERY else [numbered.get(check, check)]
    return tuple(dict.fromkeys(names))


def save_model_proto(record: Any, path: str) -> None:
    """Write the forward pass as ONNX, with its placement and the weights that the host holds."""
    _write(faults.at("ir.graph", lowering.forward(record, values=True)), path, "onnx")


def draw(record: Any, check: str, folder: str) -> None:
    """Draw the IR at a check into a folder, from the first to before the final op that the strategy names."""
    refusals.DOT_CHECK(check=check, known=CHECKS, every=EVERY)
    value = record.strategy.value
    graph = part(lowering.lower(record, CHECKS[check]), int(value("first_dot_op")), int(value("final_dot_op")))
    if not value("dot_op_names"):
        graph = replace(graph, ops=tuple(replace(op, name="") for op in graph.ops))
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"The folder log_dir={folder} cannot be made: {error.strerror}") from error
    _write(graph, os.path.join(folder, f"{check.lower()}.dot"), "dot")


def part(graph: Graph, first: int, final: int) -> Graph:
    """The ops of a graph from one place to before another; what they read from outside becomes an input."""
    ops = graph.ops[max(first, 0) : max(final, 0)]
    if len(ops) == len(graph.ops):
        return graph
    made = {name for op in ops for name in op.outputs if name}
    read = dict.fromkeys(name for op in ops for name in op.inputs if name and name not in made)
    initializers = {name: graph.initializers[name] for name in read if name in graph.initializers}
    return Graph(
        name=graph.name,
        ops=ops,
        inputs=[name for name in read if name not in initializers],
        outputs=[name for name in graph.outputs if name in made],
        tensors=[tensor for name, tensor in graph.tensors.items() if name in made or name in read],
        initializers=initializers,
        opset=graph.opset,
    )


def _write(graph: Graph, path: str, format: str) -> None:
    try:
        if format == "onnx":
            onnx.write(graph, path)
        else:
            files.write(graph, path, format)
    except IRError as error:
        raise InvalidArgument(f"The {format} file {path} cannot be written: {error}") from error

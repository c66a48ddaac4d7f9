"""A saved inference model, loaded and compiled for the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional, Tuple

import paddle
from paddle.base import core

from ipu_conformance.emulator.paddle.compile import custom_ops, subprograms
from ipu_conformance.emulator.paddle.compile.passes.popart import EXECUTABLE
from ipu_conformance.emulator.paddle.errors import InvalidArgument, NotFound, Unimplemented
from ipu_conformance.emulator.paddle.run.device import DEVICE
from ipu_conformance.ir.readers.paddle import messages
from ipu_conformance.ir.readers.paddle.weights import require_weights

PASSES = (
    "inference_process_pass",
    "forward_graph_extract_pass",
    "infer_shape_pass",
    "avg_shard_pass",
    "inference_dtype_transfer_pass",
    "delete_scale_op_pass",
    "popart_canonicalization_pass",
    "ipu_inplace_pass",
    "ipu_graph_builder_pass",
    "ipu_runtime_replacer_pass",
    "inference_postprocess_pass",
)
"""What is done to a loaded program, in this order."""


def load(config: Any, scope: Any) -> Tuple[Any, List[str], List[str]]:
    """The program of a saved model, whose weights go into the scope, and the names of its feeds and fetches."""
    if config.model_from_memory():
        raise Unimplemented("a model in memory was given for the IPU; save it, and give the two files")
    model, weights = files(config)
    written, kept = model.read_bytes(), None if weights is None else weights.read_bytes()
    try:
        # Paddle's readers believe what they are told: a damaged length may keep them for ever.
        messages.parse_blocks(written)
        if kept is not None:
            require_weights(written, kept)
        with paddle.static.scope_guard(scope):
            return _loaded(written, kept)
    except Exception as error:  # Paddle's core and its protobuf raise whatever they stumble over
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
        raise InvalidArgument(f"{model} cannot be read as a saved model: {reason}") from error


def _loaded(written: bytes, kept: Optional[bytes]) -> Tuple[Any, List[str], List[str]]:
    program = paddle.static.io.deserialize_program(written)
    executor = paddle.static.Executor(paddle.CPUPlace())
    if kept is not None:
        paddle.static.io.deserialize_persistables(program, kept, executor)
    ops = program.global_block().ops
    feeds = {op.attr("col"): op.output("Out")[0] for op in ops if op.type == "feed"}
    fetches = {op.attr("col"): op.input("X")[0] for op in ops if op.type == "fetch"}
    return program, [feeds[place] for place in sorted(feeds)], [fetches[place] for place in sorted(fetches)]


def files(config: Any) -> Tuple[Path, Optional[Path]]:
    """The file of the program and, where the model has weights, theirs."""
    if config.prog_file():
        model, weights = Path(config.prog_file()), Path(config.params_file())
    else:
        folder = Path(config.model_dir())
        models = sorted(folder.glob("*.pdmodel"))
        if len(models) != 1:
            raise NotFound(
                f"{folder} holds {len(models)} files *.pdmodel where one is expected; "
                f"give the model's two files to paddle.inference.Config"
            )
        model, weights = models[0], models[0].with_suffix(".pdiparams")
    if not model.is_file():
        raise NotFound(f"Cannot open file {model}, please confirm whether the file is normal.")
    return model, weights if weights.is_file() else None


def compile(program: Any, feeds: List[str], fetches: List[str], strategy: Any, scope: Any) -> Any:
    """The program that runs the model on the device."""
    custom_ops.bind(program, strategy)
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if block.ops[index].type in ("feed", "fetch"):
            block._remove_op(index)
    program.desc.flush()
    DEVICE.set_scope(scope)
    DEVICE.set_ipu_strategy(strategy)
    graph = core.Graph(program.desc)
    for name in PASSES:
        one = core.get_pass(name)
        one.set("feed_list", feeds)
        one.set("fetch_list", fetches)
        if strategy.custom_ops:
            one.set("custom_ops", {row.paddle_op for row in strategy.custom_ops})
        one.apply(graph)
    desc = core.ProgramDesc()
    convert = core.get_pass("graph_to_program_pass")
    convert.set_not_owned("program", desc)
    convert.apply(graph)
    compiled = subprograms.program_of(desc)
    for name in feeds:
        compiled.global_block().var(name).desc.set_need_check_feed(False)
    compiled.org_program = program
    setattr(compiled, EXECUTABLE, DEVICE.executable)
    return compiled

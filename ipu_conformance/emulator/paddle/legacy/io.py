"""``paddle.fluid.io``: variables and inference models in the folders of old: ``__model__``, and a file a variable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import paddle
from paddle.static import io as stock

from ipu_conformance.emulator.paddle.legacy import table

MODEL = "__model__"
batch = paddle.batch
save_vars, load_vars = stock.save_vars, stock.load_vars
DataLoader = paddle.io.DataLoader


def is_parameter(variable: Any) -> bool:
    """Whether a variable is a weight."""
    return isinstance(variable, paddle.base.framework.Parameter)


def is_persistable(variable: Any) -> bool:
    """Whether a variable outlives a run: weights, statistics, the optimizer's state."""
    return bool(variable.persistable) and variable.name not in ("feed", "fetch")


def save_params(executor: Any, dirname: str, main_program: Any = None, filename: Optional[str] = None) -> None:
    """Save the weights of a Program."""
    stock.save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def load_params(executor: Any, dirname: str, main_program: Any = None, filename: Optional[str] = None) -> None:
    """Load the weights of a Program."""
    stock.load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def save_persistables(executor: Any, dirname: str, main_program: Any = None, filename: Optional[str] = None) -> None:
    """Save all of a Program that outlives a run."""
    stock.save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


def load_persistables(executor: Any, dirname: str, main_program: Any = None, filename: Optional[str] = None) -> None:
    """Load all of a Program that outlives a run."""
    stock.load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


def save_inference_model(
    dirname: str, feeded_var_names: Sequence[str], target_vars: Sequence[Any], executor: Any, main_program: Any = None,
    model_filename: Optional[str] = None, params_filename: Optional[str] = None, export_for_deployment: bool = True,
    program_only: bool = False,
) -> List[str]:  # fmt: skip
    """Save the part of a Program that leads from the feeds to the targets, and the names of the targets."""
    main = paddle.static.default_main_program() if main_program is None else main_program
    names = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    targets = list(target_vars) if isinstance(target_vars, (list, tuple)) else [target_vars]
    feeds = [main.global_block().var(name) for name in names]
    inference = paddle.static.normalize_program(main.clone(for_test=True), feeds, targets)
    folder = Path(dirname)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (model_filename or MODEL)
    part = path.with_name(path.name + ".part")
    part.write_bytes(inference.desc.serialize_to_string())
    os.replace(part, path)
    if not program_only:
        save_persistables(executor, dirname, inference, params_filename)
    return [target.name for target in targets]


def load_inference_model(
    dirname: str, executor: Any, model_filename: Optional[str] = None, params_filename: Optional[str] = None,
    pserver_endpoints: Any = None,
) -> List[Any]:  # fmt: skip
    """The Program of a folder, the names of its feeds and its targets, with the weights in the scope."""
    path = Path(dirname) / (model_filename or MODEL)
    if not path.is_file():
        raise ValueError(f"There is no inference model {path}; save one with fluid.io.save_inference_model")
    program = paddle.static.Program.parse_from_string(path.read_bytes())
    load_persistables(executor, dirname, program, params_filename)
    feeds, targets = _ends(program)
    return [program, feeds, targets]


def _ends(program: Any) -> Tuple[List[str], List[Any]]:
    block = program.global_block()
    feeds = [(op.attr("col"), op.output("Out")[0]) for op in block.ops if op.type == "feed"]
    targets = [(op.attr("col"), op.input("X")[0]) for op in block.ops if op.type == "fetch"]
    return [name for _, name in sorted(feeds)], [block.var(name) for _, name in sorted(targets)]


__getattr__ = table.forwarded("paddle.fluid.io", "paddle.static.io")

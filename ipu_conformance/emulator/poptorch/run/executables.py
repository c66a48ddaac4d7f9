"""Compiled models as files: exported, loaded, and kept in a cache by a digest of what was compiled.

The emulator's compilation is a trace of the model, so a file holds what to trace with (the arguments' shapes, types and
constants) and the digest that tracing must give again; a file of another model or of other options is refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.utils._pytree as pytree

from ipu_conformance.emulator.poptorch.options import Options
from ipu_conformance.emulator.poptorch.options.diagnostics import Error, logger
from ipu_conformance.emulator.poptorch.options.enums import ConnectionType
from ipu_conformance.emulator.poptorch.refusals import models as refusals
from ipu_conformance.emulator.poptorch.run import calls, executable_files

if TYPE_CHECKING:
    from ipu_conformance.emulator.poptorch.compile.compiled import Compiled
    from ipu_conformance.emulator.poptorch.run.executor import PoplarExecutor

SUFFIX = ".popef"
IN_A_FOLDER = "model.poptorch"
"""The file that a folder gets when it is named as the file."""

_RUNNING_ONLY = (
    "random_seed", "cache_path", "log_dir", "log_cycle_count", "connection_type", "offline_ipu_version", "ipu_id",
    "use_model", "profile_dir", "max_repeat_logs", "model_name", "show_compilation_progress_bar",
    "relax_optimizer_checks", "source_location_excludes",
)  # fmt: skip
"""Options that compiling does not depend on."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument without its values."""

    dtype: torch.dtype
    shape: Tuple[int, ...]


def digest(compiled: Compiled, options: Options) -> str:
    """A name for what was compiled: its operations, their places, the shapes of its weights, and the options."""
    hashed = hashlib.sha256()
    for node in compiled.captured.module.graph.nodes:
        stage = compiled.placement.stage_of.get(node)
        hashed.update(repr((node.op, str(node.target), str(node.args), str(node.kwargs), stage)).encode())
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            hashed.update(repr((str(value.dtype), tuple(value.shape))).encode())
    for name, value in sorted(compiled.weights.example.items()):
        hashed.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
    compiled_in = [(name, repr(value)) for name, value in options.toDict().items() if name not in _RUNNING_ONLY]
    hashed.update(repr((compiled.training, sorted(compiled_in))).encode())
    return hashed.hexdigest()


def remember(executor: PoplarExecutor) -> None:
    """Put a freshly compiled model into the cache, if the options name one and it is not there."""
    folder = executor.options.cache_path
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / (digest(executor.compiled, executor.options) + SUFFIX)
    if path.exists():
        logger.info("Executable found in the cache: %s", path)
        return
    executable_files.write(path, _contents(executor, export_model=False, save_rng_state=False))
    logger.info("Executable saved to the cache: %s", path)


def save(executor: PoplarExecutor, filename: str, export_model: bool, save_rng_state: bool) -> None:
    """Write a compiled model to a file, whose folder is made, or into a folder under a name of its own."""
    path = Path(filename)
    contents = _contents(executor, export_model, save_rng_state)
    if path.is_dir():
        path = path / IN_A_FOLDER
        logger.warning("save(): %s is a folder, the model is saved to %s", filename, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    executable_files.write(path, contents)


def _contents(executor: PoplarExecutor, export_model: bool, save_rng_state: bool) -> Dict[str, Any]:
    compiled = executor.compiled
    contents: Dict[str, Any] = {
        "training": compiled.training,
        "digest": digest(compiled, executor.options),
        "arguments": _arguments(compiled.expected),
        "rng_state": [compiled.machine.seed, compiled.machine.runs] if save_rng_state else None,
        "model": None,
    }
    if export_model:
        executor.copyWeightsToHostIfNeeded()
        contents.update(model=executor.model, options=executor.options, optimizer=executor._optimizer)
    return contents


def _arguments(expected: calls.Expected) -> Any:
    leaves = [each.value if each.dtype is None else TensorSpec(each.dtype, each.shape) for each in expected.leaves]
    return pytree.tree_unflatten(leaves, expected.structure)


def load_into(executor: PoplarExecutor, filename: str) -> None:
    """Compile an executor from a file that was made with the same model and options."""
    contents = executable_files.read(filename)
    if contents["training"] != executor._training:
        kind = "training" if contents["training"] else "inference"
        raise Error(f"{filename} holds the executable of a model for {kind}: wrap the model for {kind} to load it")
    args, kwargs = _call(contents)
    executor.compile(*args, **kwargs)
    try:
        compiled = digest(executor.compiled, executor.options)
        refusals.OTHER_EXECUTABLE(filename=filename, compiled=compiled, saved=contents["digest"])
    except Error:
        executor.destroy()
        raise
    if contents["rng_state"] is not None:
        executor.rng_state = contents["rng_state"]


def _call(contents: Dict[str, Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    leaves, structure = pytree.tree_flatten(contents["arguments"])
    filled: List[Any] = [
        torch.zeros(leaf.shape, dtype=leaf.dtype) if isinstance(leaf, TensorSpec) else leaf for leaf in leaves
    ]
    args, kwargs = pytree.tree_unflatten(filled, structure)
    return tuple(args), kwargs


def _connected(options: Options) -> Options:
    """What was compiled for a device that was not there is loaded where there is one."""
    if options.connection_type == ConnectionType.Never:
        options.connectionType(ConnectionType.Always)
    return options.set(offline_ipu_version=None)


def load(filename: str, edit_opts_fn: Optional[Callable[[Options], Any]] = None) -> PoplarExecutor:
    """The executor of a file that holds its model too; ``edit_opts_fn`` may change what does not need compiling."""
    from ipu_conformance.emulator.poptorch.run import executor as executors

    contents = executable_files.read(filename)
    refusals.EXPORTED_ALONE(filename=filename, model=contents["model"])
    options = _connected(contents["options"].clone())
    if edit_opts_fn is not None:
        edited = options.clone()
        edit_opts_fn(edited)
        options.set(**{name: getattr(edited, name) for name in _RUNNING_ONLY})
    if contents["training"]:
        executor = executors.trainingModel(contents["model"], options, contents["optimizer"])
    else:
        executor = executors.inferenceModel(contents["model"], options)
    load_into(executor, filename)
    return executor

"""What surrounds the compilation of a program: the device it asks for, its progress, and the cache of executables."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, List, Sequence

from ipu_conformance.atomic_write import replacing
from ipu_conformance.emulator.core.topology import power_of_two
from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import environment, unmodelled
from ipu_conformance.emulator.paddle.compile.options import OPTIONS
from ipu_conformance.emulator.paddle.compile.strategy_options import StrategyOptions
from ipu_conformance.emulator.paddle.errors import Unavailable, Unimplemented

COUNTS = ("num_ipus", "batches_per_step", "micro_batch_size", "accumulation_factor", "replicated_graph_count")
"""Options that are at least 1."""
SUFFIX = ".popef"

_NOT_COMPILED = ("lr", "random_seed", "cache_path", "enable_engine_caching", "log_dir", "onnx_dump_path", "dot_checks")
"""Options that an executable does not depend on."""


def names_of(variables: Sequence[Any]) -> List[str]:
    """The names of variables that are given by name or as themselves."""
    return [variable if isinstance(variable, str) else variable.name for variable in variables]


def check(strategy: StrategyOptions) -> None:
    """Refuse a strategy that no device can be attached for, or that asks for what the emulator does not do."""
    for name in COUNTS:
        refusals.COUNT(name=name, count=strategy.value(name))
    refusals.PROPORTION(proportion=strategy.value("available_memory_proportion"))
    refusals.ATTACHED(
        wanted=power_of_two(strategy.value("num_ipus")),
        there=environment.device_count(),
        model=environment.uses_model(),
    )
    _check_distribution(strategy)


def _check_distribution(strategy: StrategyOptions) -> None:
    """Refuse to train in step with other processes, whose gradients do not arrive."""
    if not strategy.value("is_training"):
        return
    everywhere, here = strategy.value("global_replication_factor"), strategy.value("replicated_graph_count")
    instances = environment.instances()
    if strategy.value("enable_distributed_replicated_graphs") and everywhere > here:
        asked = f"Training {everywhere} replicas in several processes, {here} of them here,"
    elif strategy.value("enable_distribution") and instances > 1:
        asked = f"Training with enable_distribution in {instances} processes"
    else:
        return
    raise Unimplemented(
        f"{asked} needs gradients of the other processes, which the emulator does not exchange: give one process "
        "all replicas, with replicated_graph_count and without enable_distribution and "
        "enable_distributed_replicated_graphs"
    )


def begin(strategy: StrategyOptions) -> None:
    """Check the strategy, report what of it has no effect, and report the start of compiling."""
    check(strategy)
    unmodelled.report(strategy)
    _progress(strategy, 0)


def finish(record: Any) -> None:
    """Keep the executable of a record in the cache, if there is one, and report the end of compiling."""
    folder = environment.cache_path(record.strategy)
    if folder is not None:
        _keep(Path(folder), digest(record))
    _progress(record.strategy, record.strategy.value("compilation_progress_total"))


def _progress(strategy: StrategyOptions, done: int) -> None:
    if strategy.progress_logger is not None:
        strategy.progress_logger(done, strategy.value("compilation_progress_total"))


def digest(record: Any) -> str:
    """A name for what was compiled: the program, its feeds and fetches, and the options that it depends on."""
    hashed = hashlib.sha256(record.original.desc.serialize_to_string())
    options = {name: record.strategy.value(name) for name in sorted(OPTIONS) if name not in _NOT_COMPILED}
    hashed.update(json.dumps([list(record.feeds), list(record.fetches), options], sort_keys=True).encode())
    return hashed.hexdigest()


def _keep(folder: Path, name: str) -> None:
    """Leave an executable's file in the cache unless it is there; two processes may do so at once."""
    file = folder / f"{name}{SUFFIX}"
    if file.exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(file) as part:
            part.write_text(f"ipu-conformance paddle executable 1\n{name}\n", encoding="utf-8")
    except OSError as error:
        raise Unavailable(
            f"The cache of executables {folder} cannot be written: {error.strerror}; name another folder"
        ) from error

"""Options that are accepted and change nothing on the emulator, each with the reason that is logged once."""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, NamedTuple, Sequence, Tuple

from ipu_conformance.emulator.poptorch.options.diagnostics import logger
from ipu_conformance.emulator.poptorch.options.enums import SyncPattern


class Row(NamedTuple):
    """An option, whether it is set, and why it has no effect."""

    option: str
    is_set: Callable[[Any], bool]
    why: str
    level: int = logging.INFO
    """WARNING where values may come out differently than on a device."""


def _located(options: Any) -> bool:
    return any(value not in (None, 0, {}) for value in options.TensorLocations.toDict().values())


MODELLED = ("autoRecomputation", "engineOptions", "automaticLossScalingSettings.")
"""How the names of the session options begin that the emulator follows."""


def _set_below(options: Any) -> bool:
    return not all(name.startswith(MODELLED) for name in options._popart.options)


def _engine(options: Any) -> bool:
    return not all(name.startswith("autoReport.") for name in options._popart.options.get("engineOptions", {}))


ROWS: Sequence[Row] = (
    Row("enableStableNorm", lambda options: options.stable_norm, "variances are always computed from centred values"),
    Row("TensorLocations", _located, "the emulator keeps everything on chip, and its memory estimate says so"),
    Row("syncPattern", lambda options: options.sync_pattern != SyncPattern.Full, "the values do not depend on it"),
    Row("useIpuId", lambda options: options.ipu_id is not None, "an emulated device has no number"),
    Row(
        "useOfflineIpuTarget",
        lambda options: options.offline_ipu_version is not None,
        "all generations of the IPU are emulated alike; the model is compiled and cannot be run",
    ),
    Row("logDir", lambda options: options.log_dir != ".", "the emulator writes no files of its own there"),
    Row("_Popart.set", _set_below, "only autoRecomputation and automatic loss scaling are modelled"),
    Row("_Popart.setEngineOptions", _engine, "of the engine options only those of reports are modelled"),
    Row("_Popart.setPatterns", lambda options: bool(options._popart.patterns), "there is no graph compiler below"),
    Row(
        "Training.setConvolutionDithering",
        lambda options: options.Training.convolution_dithering,
        "where on a chip a convolution begins is not modelled",
    ),
    Row(
        "Distributed.configureProcessId",
        lambda options: options.Distributed.numProcesses > 1,
        "the DataLoader deals its data to the processes, but no gradient passes between them",
        logging.WARNING,
    ),
)


def without_effect(options: Any) -> Tuple[Row, ...]:
    """The rows of the options that are set and have no effect."""
    return tuple(row for row in ROWS if row.is_set(options))


def log(options: Any) -> None:
    """Log, once in a process, each option that has no effect."""
    for row in without_effect(options):
        _log_once(row)


@functools.lru_cache(maxsize=None)
def _log_once(row: Row) -> None:
    logger.log(row.level, "%s has no effect on the emulator: %s", row.option, row.why)

"""What ``paddle.inference.Config`` asks of the IPU, kept beside the stock wheel's own configuration."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.errors import InvalidArgument, NotFound

CUSTOM_OP = ("paddle_op", "popart_op", "domain", "version")
"""What a row about a custom op holds, in this order."""


@dataclass(frozen=True)
class IpuSettings:
    """The settings of one configuration, by the names of the vendor's arguments."""

    enabled: bool = False
    ipu_device_num: int = 1
    ipu_micro_batch_size: int = 1
    ipu_enable_pipelining: bool = False
    ipu_batches_per_step: int = 1
    ipu_enable_fp16: bool = False
    ipu_replica_num: int = 1
    ipu_available_memory_proportion: float = 1.0
    ipu_enable_half_partial: bool = False
    ipu_enable_model_runtime_executor: bool = False
    ipu_custom_ops_info: Tuple[Tuple[str, ...], ...] = ()
    ipu_custom_patterns: Tuple[Tuple[str, bool], ...] = ()

    def strategy(self) -> IpuStrategy:
        """The strategy that a predictor compiles with: one stage per IPU, cut where the ops are evenly many."""
        several = self.ipu_device_num // self.ipu_replica_num > 1
        strategy = IpuStrategy()
        strategy.set_options(
            {
                "is_training": False,
                "num_ipus": self.ipu_device_num,
                "micro_batch_size": self.ipu_micro_batch_size,
                "enable_manual_shard": several,
                "need_avg_shard": several,
                "enable_pipelining": several and self.ipu_enable_pipelining,
                "batches_per_step": self.ipu_batches_per_step,
                "enable_fp16": self.ipu_enable_fp16,
                "replicated_graph_count": self.ipu_replica_num,
                "enable_replicated_graphs": self.ipu_replica_num > 1,
                "available_memory_proportion": float(self.ipu_available_memory_proportion),
                "enable_half_partial": self.ipu_enable_half_partial,
                "enable_model_runtime_executor": self.ipu_enable_model_runtime_executor,
            }
        )
        for row in self.ipu_custom_ops_info:
            strategy.set_options({"custom_op": {**dict(zip(CUSTOM_OP, row)), "version": int(row[-1])}})
        for name, enabled in self.ipu_custom_patterns:
            (strategy.enable_pattern if enabled else strategy.disable_pattern)(name)
        return strategy


_SETTINGS: weakref.WeakKeyDictionary[Any, IpuSettings] = weakref.WeakKeyDictionary()


def settings_of(config: Any) -> IpuSettings:
    """What was set on a configuration, the defaults where nothing was."""
    return _SETTINGS.get(config, IpuSettings())


def _change(config: Any, **values: Any) -> None:
    _SETTINGS[config] = dataclasses.replace(settings_of(config), **values)


def copying(stock: Callable[..., None]) -> Callable[..., None]:
    """The constructor of configurations; a copy of one has its settings of the IPU too."""

    @functools.wraps(stock)
    def construct(self: Any, *args: Any) -> None:
        stock(self, *args)
        if args and isinstance(args[0], type(self)):
            _SETTINGS[self] = settings_of(args[0])

    return construct


def enable_ipu(
    self: Any,
    ipu_device_num: int = 1,
    ipu_micro_batch_size: int = 1,
    ipu_enable_pipelining: bool = False,
    ipu_batches_per_step: int = 1,
) -> None:
    """Predictors of this configuration run on the IPU."""
    _change(
        self,
        enabled=True,
        ipu_device_num=_positive("ipu_device_num", ipu_device_num),
        ipu_micro_batch_size=_positive("ipu_micro_batch_size", ipu_micro_batch_size),
        ipu_enable_pipelining=bool(ipu_enable_pipelining),
        ipu_batches_per_step=_positive("ipu_batches_per_step", ipu_batches_per_step),
    )


def set_ipu_config(
    self: Any,
    ipu_enable_fp16: bool = False,
    ipu_replica_num: int = 1,
    ipu_available_memory_proportion: float = 1.0,
    ipu_enable_half_partial: bool = False,
    ipu_enable_model_runtime_executor: bool = False,
) -> None:
    """Set how the IPU computes; all five are set, those left out to their defaults."""
    _change(
        self,
        ipu_enable_fp16=bool(ipu_enable_fp16),
        ipu_replica_num=_positive("ipu_replica_num", ipu_replica_num),
        ipu_available_memory_proportion=float(ipu_available_memory_proportion),
        ipu_enable_half_partial=bool(ipu_enable_half_partial),
        ipu_enable_model_runtime_executor=bool(ipu_enable_model_runtime_executor),
    )


def set_ipu_custom_info(
    self: Any, ipu_custom_ops_info: Sequence[Sequence[str]] = (), ipu_custom_patterns: Mapping[str, bool] = {}
) -> None:
    """Map custom ops and switch graph rewrites."""
    for row in ipu_custom_ops_info:
        refusals.CUSTOM_OP_ROW(row=row, words=CUSTOM_OP)
    _change(
        self,
        ipu_custom_ops_info=tuple(tuple(str(word) for word in row) for row in ipu_custom_ops_info),
        ipu_custom_patterns=tuple((str(name), bool(on)) for name, on in ipu_custom_patterns.items()),
    )


def load_ipu_config(self: Any, config_path: str) -> None:
    """Set what a file says: a line for each setting, its name, a comma and its value."""
    try:
        with open(config_path, encoding="utf-8") as lines:
            text = lines.read()
    except OSError as error:
        raise NotFound(
            f"Cannot open file {config_path}, please confirm whether the file is normal ({error.strerror})"
        ) from error
    values: Dict[str, Any] = {}
    for line in text.splitlines():
        key, _, value = line.replace(" ", "").partition(",")
        if key not in _READERS:
            raise InvalidArgument(f"invalid key {key} in IPU config: use {', '.join(_READERS)}")
        values[key] = _read(key, value)
    _change(self, **values)


def _read(key: str, text: str) -> Any:
    try:
        return _READERS[key](text)
    except ValueError as error:
        raise InvalidArgument(f"invalid value {text} of {key} in IPU config: {error}") from error


def _flag(text: str) -> bool:
    return text.lower() in ("true", "1")


def _rows(text: str) -> List[List[str]]:
    """``[[a,b],[c,d]]`` as lists of words."""
    inner = text.strip()
    if not (inner.startswith("[[") and inner.endswith("]]")):
        raise ValueError("rows are written [[a,b],[c,d]]")
    return [row.split(",") for row in inner[2:-2].split("],[")]


def _custom_rows(text: str) -> Tuple[Tuple[str, ...], ...]:
    rows = _rows(text)
    if any(len(row) != len(CUSTOM_OP) or not row[-1].isdigit() for row in rows):
        raise ValueError(f"a custom op has {', '.join(CUSTOM_OP)}, the version in digits")
    return tuple(tuple(row) for row in rows)


def _pattern_rows(text: str) -> Tuple[Tuple[str, bool], ...]:
    rows = _rows(text)
    if any(len(row) != 2 for row in rows):
        raise ValueError("a pattern has a name and True or False")
    return tuple((name, _flag(on)) for name, on in rows)


def _count(text: str) -> int:
    return _positive("a count", int(text))


_READERS: Mapping[str, Callable[[str], Any]] = {
    "ipu_device_num": _count,
    "ipu_micro_batch_size": _count,
    "ipu_enable_pipelining": _flag,
    "ipu_batches_per_step": _count,
    "ipu_enable_fp16": _flag,
    "ipu_replica_num": _count,
    "ipu_available_memory_proportion": float,
    "ipu_enable_half_partial": _flag,
    "ipu_enable_model_runtime_executor": _flag,
    "ipu_custom_ops_info": _custom_rows,
    "ipu_custom_patterns": _pattern_rows,
}


def _positive(name: str, value: Any) -> int:
    refusals.POSITIVE(name=name, value=value)
    return int(value)


METHODS = (enable_ipu, set_ipu_config, set_ipu_custom_info, load_ipu_config)
"""What an IPU build's configuration can do; the stock one has these names and refuses them."""

"""``IpuStrategy`` by the names of Paddle's first build for IPUs, which wrote them in capitals.

A program switches them on by using one, which is logged once.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Mapping

from ipu_conformance.emulator.paddle import refusals

_PROPERTIES: Mapping[str, str] = {
    "batch_size": "micro_batch_size",
    "batches_per_step": "batches_per_step",
    "accumulationFactor": "accumulation_factor",
    "enable_manual_shard": "enable_manual_shard",
    "need_avg_shard": "need_avg_shard",
}
"""What could be read of a strategy, and the options that hold it now."""


def _graph(
    strategy: Any, num_ipus: int = 1, is_training: bool = True, batch_size: int = 1, enable_manual_shard: bool = False,
    need_avg_shard: bool = False,
) -> None:  # fmt: skip
    """The IPUs, the mode and the micro-batch; shards may be made by the build itself."""
    strategy.set_graph_config(num_ipus, is_training, batch_size, enable_manual_shard)
    refusals.AVERAGED_SHARDS(averaged=need_avg_shard, sharded=enable_manual_shard)
    strategy.set_options({"need_avg_shard": need_avg_shard})


def _pipelining(
    strategy: Any, enable_pipelining: bool = False, batches_per_step: int = 1, accumulationFactor: int = 1
) -> None:
    """Pipelining, the batches of a run and the micro-batches of an update."""
    refusals.UNPIPELINED_BATCHES(batches=batches_per_step, pipelined=enable_pipelining)
    strategy.set_pipelining_config(enable_pipelining, batches_per_step, accumulationFactor > 1, accumulationFactor)


def _half(strategy: Any, enable_fp16: bool = False) -> None:
    """Whether numbers of 32 bits become numbers of 16."""
    strategy.set_precision_config(enable_fp16)


_METHODS: Mapping[str, Callable[..., None]] = {
    "SetGraphConfig": lambda *arguments, **words: _graph(*arguments, **words),
    "SetPipeliningConfig": lambda *arguments, **words: _pipelining(*arguments, **words),
    "SetHalfConfig": lambda *arguments, **words: _half(*arguments, **words),
}


def old_name(strategy: Any, name: str) -> Any:
    """What a strategy had under a name, for ``IpuStrategy.__getattr__``."""
    if name in _METHODS:
        _log()
        return functools.partial(_METHODS[name], strategy)
    if name in _PROPERTIES:
        _log()
        return strategy.get_option(_PROPERTIES[name])
    raise AttributeError(f"{type(strategy).__name__!r} object has no attribute {name!r}")


@functools.lru_cache(maxsize=None)
def _log() -> None:
    logging.getLogger("ipu_conformance.paddle").warning(
        "IpuStrategy is used by the names of Paddle's first build for IPUs, which the emulator still knows"
    )

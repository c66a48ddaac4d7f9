"""The vendor's optimizers: each wraps another one."""

from __future__ import annotations

import importlib
from typing import Any, List

_WHERE = {
    "AutomaticLossScalingOptimizer": "automatic_loss_scaling_optimizer",
    "CrossReplicaGradientAccumulationOptimizer": "gradient_accumulation_optimizer",
    "CrossReplicaGradientAccumulationOptimizerV2": "gradient_accumulation_optimizer",
    "CrossReplicaOptimizer": "cross_replica_optimizer",
    "GradientAccumulationOptimizer": "gradient_accumulation_optimizer",
    "GradientAccumulationOptimizerV2": "gradient_accumulation_optimizer",
    "IpuOptimizer": "ipu_optimizer",
    "MapGradientOptimizer": "map_gradient_optimizer",
    "MapGradientOptimizerInvertedChaining": "map_gradient_optimizer",
    "ShardedOptimizer": "sharded_optimizer",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE.values():
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> List[str]:
    return sorted({*globals(), *_WHERE, *_WHERE.values()})

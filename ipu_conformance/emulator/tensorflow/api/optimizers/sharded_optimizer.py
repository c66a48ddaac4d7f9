"""The optimizer of a sharded graph: it places what computes a gradient on the IPU of its variable."""

from __future__ import annotations

from typing import Any, List, Optional

from ipu_conformance.emulator.tensorflow.api.ops import sharding
from ipu_conformance.emulator.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer

__all__ = ["ShardedOptimizer"]


class ShardedOptimizer(IpuOptimizer):
    """Lets the wrapped optimizer compute and apply gradients where the shards are."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, "ShardedOptimizer")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> List[Any]:
        """The gradients; each comes from the IPU that the operations it depends on are placed on."""
        pairs = super().compute_gradients(loss, var_list, **kwargs)
        sharding.propagate_sharding(loss.graph)
        return pairs

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables."""
        return super().apply_gradients(grads_and_vars, global_step, name)

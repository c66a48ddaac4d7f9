"""The optimizer that finds by itself how much a loss must be scaled for gradients in float16."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer
from ipu_conformance.emulator.tensorflow.optim.loss_scaling import LossScaling

__all__ = ["AutomaticLossScalingOptimizer"]


class AutomaticLossScalingOptimizer(IpuOptimizer):
    """Multiplies the loss by a factor, and gradients by its inverse before they are applied.

    The factor shrinks when more than ``ratio_threshold`` of the elements of gradients lie near the largest number of
    their type, counted over ``update_frequency`` updates, and grows when they do not.
    """

    def __init__(
        self,
        opt: Any,
        initial_loss_scaling_factor: float = 1,
        update_frequency: int = 8,
        increment_factor: float = 2,
        max_loss_scaling_factor: float = 32768,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = 10e-6,
        captured_grads_only: bool = False,
        name: str = "AutomaticLossScalingOptimizer",
    ) -> None:
        super().__init__(opt, name)
        self._scaling = LossScaling(
            initial_loss_scaling_factor,
            update_frequency,
            increment_factor,
            max_loss_scaling_factor,
            accumulate_statistics_over_update_period,
            ratio_threshold,
            captured_grads_only,
        )

    @property
    def loss_scaling_factor(self) -> Any:
        """The factor that the next loss is multiplied by."""
        return self._scaling.factor.read_value()

    @property
    def update_frequency(self) -> int:
        """After how many updates the factor may change."""
        return self._scaling.update_frequency

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> List[Any]:
        """The gradients of the scaled loss."""
        return super().compute_gradients(self._scaling.scaled(loss), var_list, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables with gradients of the loss itself, and then the factor."""
        pairs = list(grads_and_vars)
        factor = self._scaling.factor.read_value()
        unscaled = [(self._scaling.unscaled(gradient, factor), variable) for gradient, variable in pairs]
        with tf.control_dependencies([factor]):
            applied = super().apply_gradients(unscaled, global_step, name)
        with tf.control_dependencies([applied]):
            return self._scaling.adapted([gradient for gradient, _ in pairs])

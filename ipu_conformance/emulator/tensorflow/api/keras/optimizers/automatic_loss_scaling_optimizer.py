"""The Keras optimizer that finds by itself how much a loss must be scaled for gradients in float16."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.api.keras.optimizers.ipu_wrapper import After, IpuOptimizer, Pairs
from ipu_conformance.emulator.tensorflow.api.ops.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_conformance.emulator.tensorflow.api.optimizers.gradient_accumulation_optimizer import (
    GradientAccumulationOptimizerV2,
)
from ipu_conformance.emulator.tensorflow.optim.loss_scaling import CapturedGradientsError, LossScaling

__all__ = ["ALSOptimizer", "ALSOptimizerGradientAccumulationWrapper"]


class ALSOptimizer(IpuOptimizer):
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
        name: str = "ALSOptimizer",
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
        for number, variable in enumerate(self._scaling.variables):
            self._track_trackable(variable, f"scaling_{number}")

    @property
    def loss_scaling_factor(self) -> Any:
        """The factor that the next loss is multiplied by."""
        return self._scaling.factor.read_value()

    @property
    def initial_loss_scaling_factor(self) -> float:
        """The factor at the beginning."""
        return self._scaling.initial_factor

    @property
    def max_loss_scaling_factor(self) -> float:
        """The largest factor."""
        return self._scaling.max_factor

    @property
    def increment_factor(self) -> float:
        """What the factor is multiplied or divided by."""
        return self._scaling.increment_factor

    @property
    def update_frequency(self) -> int:
        """After how many updates the factor may change."""
        return self._scaling.update_frequency

    @property
    def update_counter(self) -> Any:
        """How many updates there were since the factor might have changed."""
        return self._scaling.steps.read_value()

    @property
    def ratio_threshold(self) -> float:
        """The share of elements near the limit from which on the factor shrinks."""
        return self._scaling.threshold

    @property
    def accumulate_statistics_over_update_period(self) -> bool:
        """Whether all updates count, or the last one before a change."""
        return self._scaling.accumulate

    def get_scaled_loss(self, loss: Any) -> Any:
        """The loss whose gradients ``apply_gradients`` takes; ``minimize`` and ``fit`` scale by themselves."""
        return self._scaling.scaled(loss)

    def get_unscaled_gradients(self, grads: List[Any]) -> List[Any]:
        """The gradients of the loss itself from those of the scaled loss."""
        factor = self._scaling.factor.read_value()
        return [self._scaling.unscaled(gradient, factor) for gradient in grads]

    def reset(self) -> None:
        """Begin again with the first factor."""
        self._scaling.reset()

    def apply_gradients(  # type: ignore[override]  # the vendor has put captured gradients before the name
        self,
        grads_and_vars: Any,
        captured_grads: Any = None,
        name: Optional[str] = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Update the variables with gradients of the loss itself, and then the factor."""
        if captured_grads:
            raise CapturedGradientsError("captured_grads were given, but the emulator captures none: leave them out.")
        return super().apply_gradients(grads_and_vars, name, experimental_aggregate_gradients)

    def _transform_loss(self, loss: Any) -> Any:
        return super()._transform_loss(self.get_scaled_loss(loss))

    def _passed(self, pairs: Pairs) -> Tuple[Pairs, After]:
        scaled = [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient, _ in pairs]
        unscaled = self.get_unscaled_gradients(scaled)
        passed, after = super()._passed([(gradient, variable) for gradient, (_, variable) in zip(unscaled, pairs)])
        return passed, [lambda: self._scaling.adapted(scaled), *after]

    def _own_variables(self) -> List[Any]:
        return self._scaling.variables

    def get_config(self) -> Dict[str, Any]:
        """What the wrapper can be made from again."""
        return {
            **super().get_config(),
            "initial_loss_scaling_factor": self.initial_loss_scaling_factor,
            "update_frequency": self.update_frequency,
            "increment_factor": self.increment_factor,
            "max_loss_scaling_factor": self.max_loss_scaling_factor,
            "accumulate_statistics_over_update_period": self.accumulate_statistics_over_update_period,
            "ratio_threshold": self.ratio_threshold,
        }


class ALSOptimizerGradientAccumulationWrapper(GradientAccumulationOptimizerV2):
    """Accumulates the gradients of the scaled loss in the body of a loop, and lets an ALSOptimizer apply them."""

    def __init__(
        self,
        als_optimizer: Any,
        num_mini_batches: int,
        offload_weight_update_variables: Optional[bool] = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "ALSOptimizerGradientAccumulationWrapper",
    ) -> None:
        if not isinstance(als_optimizer, ALSOptimizer):
            raise ValueError(f"`als_optimizer` is {als_optimizer!r}; pass an ALSOptimizer.")
        super().__init__(
            als_optimizer,
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            reduction_method,
            name,
        )

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> List[Any]:
        """The gradients of the scaled loss."""
        return super().compute_gradients(self._opt._transform_loss(loss), var_list, **kwargs)

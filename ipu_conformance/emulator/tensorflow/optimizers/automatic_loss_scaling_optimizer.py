"""The optimizer that finds by itself how much a loss must be scaled for gradients in float16."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.optimizers.ipu_optimizer import IpuOptimizer

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
        for what, value in (
            ("initial_loss_scaling_factor", initial_loss_scaling_factor),
            ("update_frequency", update_frequency),
        ):
            if value <= 0:
                raise ValueError(f"{what} is {value}; it must be positive.")
        if increment_factor <= 1:
            raise ValueError(f"increment_factor is {increment_factor}; it must be greater than 1.")
        if max_loss_scaling_factor < initial_loss_scaling_factor:
            raise ValueError(
                f"max_loss_scaling_factor is {max_loss_scaling_factor}; it must be at least the initial factor "
                f"{initial_loss_scaling_factor}."
            )
        if not 0 <= ratio_threshold <= 1:
            raise ValueError(f"ratio_threshold is {ratio_threshold}; it must lie between 0 and 1.")
        self._update_frequency = update_frequency
        self._increment_factor = float(increment_factor)
        self._max_factor = float(max_loss_scaling_factor)
        self._accumulate = accumulate_statistics_over_update_period
        self._threshold = ratio_threshold
        with tf.init_scope():
            self._factor = tf.Variable(float(initial_loss_scaling_factor), trainable=False, name="loss_scaling_factor")
            self._counts = tf.Variable([0.0, 0.0], trainable=False, name="near_the_limit_and_all")
            self._steps = tf.Variable(0, trainable=False, name="updates_since_the_factor_changed")

    @property
    def loss_scaling_factor(self) -> Any:
        """The factor that the next loss is multiplied by."""
        return self._factor.read_value()

    @property
    def update_frequency(self) -> int:
        """After how many updates the factor may change."""
        return self._update_frequency

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> List[Any]:
        """The gradients of the scaled loss."""
        return super().compute_gradients(loss * tf.cast(self._factor, loss.dtype), var_list, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables with gradients of the loss itself, and then the factor."""
        pairs = list(grads_and_vars)
        scaled = [gradient for gradient, _ in pairs if gradient is not None]
        factor = self._factor.read_value()
        unscaled = [
            (gradient if gradient is None else gradient / tf.cast(factor, gradient.dtype), variable)
            for gradient, variable in pairs
        ]
        with tf.control_dependencies([factor]):
            applied = super().apply_gradients(unscaled, global_step, name)
        with tf.control_dependencies([applied]):
            return self._adapted(scaled)

    def _adapted(self, gradients: List[Any]) -> Any:
        """The operation that counts, and changes the factor when it is time."""
        half = [gradient for gradient in gradients if gradient.dtype == tf.float16]
        if not half:
            return tf.no_op()
        near = tf.add_n([tf.reduce_sum(tf.cast(tf.abs(g) >= g.dtype.max / 2, tf.float32)) for g in half])
        whole = tf.add_n([tf.cast(tf.size(g), tf.float32) for g in half])
        now = tf.stack([near, whole])
        counts = self._counts.read_value() + now if self._accumulate else now
        steps = self._steps.read_value() + 1
        factor = self._factor.read_value()
        due = steps >= self._update_frequency
        shrunk = tf.maximum(factor / self._increment_factor, 1.0)
        grown = tf.minimum(factor * self._increment_factor, self._max_factor)
        changed = tf.where(counts[0] / counts[1] > self._threshold, shrunk, grown)
        return tf.group(
            self._factor.assign(tf.where(due, changed, factor)),
            self._counts.assign(tf.where(due, tf.zeros_like(counts), counts)),
            self._steps.assign(tf.where(due, 0, steps)),
        )

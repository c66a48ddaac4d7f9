"""Automatic loss scaling: a factor that shrinks when gradients come near the largest number of their type.

It shrinks when more than ``ratio_threshold`` of the elements of gradients lie near that number, counted over
``update_frequency`` updates, and grows when they do not.
"""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from ipu_conformance.errors import ConformanceError

NEAR = 2
"""An element counts as near the limit of its type from the limit divided by this on."""


class ALSDefaults:
    """What Keras' optimizers that scale losses are made with."""

    initial_loss_scaling_factor = 1
    update_frequency = 8
    increase_factor = 2
    max_loss_scaling_factor = 32768
    accumulate_statistics_over_update_period = True
    ratio_threshold = 1e-05
    captured_grads_only = False
    lpf_alpha = 0.0
    histogram_bin_edge = 2**13


SCALING = ", ".join(f"{name}={value!r}" for name, value in vars(ALSDefaults).items() if not name.startswith("_"))
"""The parameters of Keras' optimizers for their loss scaling."""


class CapturedGradientsError(ConformanceError, NotImplementedError):
    """The factor was to follow captured gradients only."""


def arguments(base: Any, default_name: str) -> Any:
    """The constructor of an optimizer on ``base`` that scales losses: the vendor gives all of them these arguments."""

    def __init__(  # noqa: N807 (it becomes a method)
        self: Any,
        opt: Any,
        initial_loss_scaling_factor: float = 1,
        update_frequency: int = 8,
        increment_factor: float = 2,
        max_loss_scaling_factor: float = 32768,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = 10e-6,
        captured_grads_only: bool = False,
        name: str = default_name,
    ) -> None:
        base.__init__(self, opt, name)
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

    return __init__


def shown(attribute: str, doc: str) -> Any:
    """A property of an optimizer that shows an attribute of its loss scaling; a variable is read."""

    def read(self: Any) -> Any:
        value = getattr(self._scaling, attribute)
        return value.read_value() if isinstance(value, tf.Variable) else value

    return property(read, doc=doc)


def keras_arguments(base: Any, default_name: str) -> Any:
    """The constructor of a Keras optimizer on ``base`` that scales losses."""

    def __init__(  # noqa: N807 (it becomes a method)
        self: Any,
        opt: Any,
        initial_loss_scaling_factor: float = ALSDefaults.initial_loss_scaling_factor,
        update_frequency: int = ALSDefaults.update_frequency,
        increase_factor: float = ALSDefaults.increase_factor,
        max_loss_scaling_factor: float = ALSDefaults.max_loss_scaling_factor,
        accumulate_statistics_over_update_period: bool = ALSDefaults.accumulate_statistics_over_update_period,
        ratio_threshold: float = ALSDefaults.ratio_threshold,
        captured_grads_only: bool = ALSDefaults.captured_grads_only,
        lpf_alpha: float = ALSDefaults.lpf_alpha,
        histogram_bin_edge: float = ALSDefaults.histogram_bin_edge,
        name: str = default_name,
    ) -> None:
        if lpf_alpha:
            raise NotImplementedError(f"lpf_alpha is {lpf_alpha}; the emulator filters no histograms: leave it at 0.")
        base.__init__(self, opt, name)
        self._scaling = LossScaling(
            initial_loss_scaling_factor,
            update_frequency,
            increase_factor,
            max_loss_scaling_factor,
            accumulate_statistics_over_update_period,
            ratio_threshold,
            captured_grads_only,
            histogram_bin_edge,
        )
        for number, variable in enumerate(self._scaling.variables):
            self._track_trackable(variable, f"scaling_{number}")

    return __init__


class LossScaling:
    """A factor, what was counted since it may have changed, and for how many updates."""

    def __init__(
        self,
        initial_factor: float,
        update_frequency: int,
        increment_factor: float,
        max_factor: float,
        accumulate: bool,
        ratio_threshold: float,
        captured_only: bool,
        bin_edge: Optional[float] = None,
    ) -> None:
        for what, value in (("initial_loss_scaling_factor", initial_factor), ("update_frequency", update_frequency)):
            if value <= 0:
                raise ValueError(f"{what} is {value}; it must be positive.")
        if increment_factor <= 1:
            raise ValueError(f"increment_factor is {increment_factor}; it must be greater than 1.")
        if max_factor < initial_factor:
            raise ValueError(
                f"max_loss_scaling_factor is {max_factor}; it must be at least the initial factor {initial_factor}."
            )
        if not 0 <= ratio_threshold <= 1:
            raise ValueError(f"ratio_threshold is {ratio_threshold}; it must lie between 0 and 1.")
        if captured_only:
            raise CapturedGradientsError(
                "captured_grads_only is True, but the emulator captures no gradients: leave it out, and the factor "
                "follows all gradients in float16."
            )
        self.initial_factor = float(initial_factor)
        self.update_frequency = update_frequency
        self.increment_factor = float(increment_factor)
        self.max_factor = float(max_factor)
        self.accumulate = accumulate
        self.threshold = ratio_threshold
        self.bin_edge = bin_edge
        """From where on an element counts as near the limit; None is half the largest number of its type."""
        with tf.init_scope():
            self.factor = tf.Variable(self.initial_factor, trainable=False, name="loss_scaling_factor")
            self.counts = tf.Variable([0.0, 0.0], trainable=False, name="near_the_limit_and_all")
            self.steps = tf.Variable(0, trainable=False, name="updates_since_the_factor_changed")
            self.previous = tf.Variable(self.initial_factor, trainable=False, name="previous_loss_scaling_factor")

    @property
    def variables(self) -> List[Any]:
        """All that changes."""
        return [self.factor, self.counts, self.steps, self.previous]

    @property
    def histogram(self) -> Any:
        """How many elements lie below the edge, and from it on."""
        near, whole = tf.unstack(self.counts.read_value())
        return tf.stack([whole - near, near])

    def scaled(self, loss: Any) -> Any:
        """A loss times the factor."""
        return loss * tf.cast(self.factor.read_value(), loss.dtype)

    def unscaled(self, gradient: Any, factor: Any) -> Any:
        """A gradient of the scaled loss as that of the loss itself."""
        return gradient if gradient is None else gradient / tf.cast(factor, gradient.dtype)

    def reset(self) -> None:
        """Begin again with the first factor."""
        self.factor.assign(self.initial_factor)
        self.previous.assign(self.initial_factor)
        self.counts.assign([0.0, 0.0])
        self.steps.assign(0)

    def _edge(self, gradient: Any) -> Any:
        return gradient.dtype.max / NEAR if self.bin_edge is None else tf.cast(self.bin_edge, gradient.dtype)

    def adapted(self, gradients: List[Any]) -> Any:
        """The operation that counts the gradients of a scaled loss, and changes the factor when it is time."""
        half = [gradient for gradient in gradients if gradient is not None and gradient.dtype == tf.float16]
        if not half:
            return tf.no_op()
        near = tf.add_n([tf.reduce_sum(tf.cast(tf.abs(g) >= self._edge(g), tf.float32)) for g in half])
        whole = tf.add_n([tf.cast(tf.size(g), tf.float32) for g in half])
        now = tf.stack([near, whole])
        counts = self.counts.read_value() + now if self.accumulate else now
        steps = self.steps.read_value() + 1
        factor = self.factor.read_value()
        due = steps >= self.update_frequency
        shrunk = tf.maximum(factor / self.increment_factor, 1.0)
        grown = tf.minimum(factor * self.increment_factor, self.max_factor)
        changed = tf.where(counts[0] / counts[1] > self.threshold, shrunk, grown)
        return tf.group(
            self.factor.assign(tf.where(due, changed, factor)),
            self.previous.assign(factor),
            self.counts.assign(tf.where(due, tf.zeros_like(counts), counts)),
            self.steps.assign(tf.where(due, 0, steps)),
        )

"""Automatic loss scaling: a factor that shrinks when too many gradients in float16 are too large, and else grows.

Elements of float16 whose absolute value reaches an edge are counted against all of them. A factor never leaves the
numbers from 1 on and below its maximum: a change that would lead there is left out.
"""

from __future__ import annotations

import math
from typing import Any, Iterable, List, NamedTuple, Optional

import tensorflow as tf

OVERFLOW = float(tf.float16.max)
"""The edge of the optimizer of TensorFlow: what float16 holds no more."""


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


class Settings(NamedTuple):
    """What a factor follows."""

    initial_factor: float
    update_frequency: int
    increase_factor: float
    max_factor: float
    accumulate: bool
    ratio_threshold: float
    decrease_factor: Optional[float] = None
    captured_only: bool = False
    lpf_alpha: float = 0.0
    bin_edge: float = OVERFLOW

    @property
    def shrinking(self) -> float:
        """What a factor that is too large is multiplied by."""
        return 1.0 / self.increase_factor if self.decrease_factor is None else self.decrease_factor


def checked(settings: Settings, *, powers: bool) -> Settings:
    """The settings, or a ValueError that names the one which cannot work; Keras' are powers of two."""
    initial, maximum, increase = settings.initial_factor, settings.max_factor, settings.increase_factor
    names = {"initial_loss_scaling_factor": initial, "increase_factor": increase, "max_loss_scaling_factor": maximum}
    if settings.update_frequency <= 0:
        raise ValueError(f"update_frequency is {settings.update_frequency}; it must be positive.")
    for name, value in names.items():
        if value <= 0:
            raise ValueError(f"{name} is {value}; it must be positive.")
        if powers and math.frexp(value)[0] != 0.5:
            raise ValueError(f"{name} is {value}; it must be a power of two.")
    if settings.shrinking <= 0:
        raise ValueError(f"decrease_factor is {settings.shrinking}; it must be positive.")
    if settings.shrinking >= increase and not powers:
        raise ValueError(f"decrease_factor is {settings.shrinking}; it must be below increase_factor, {increase}.")
    if maximum <= 1:
        raise ValueError(f"max_loss_scaling_factor is {maximum}; it must be above 1.")
    if initial * max(increase, 1) >= maximum:
        raise ValueError(
            f"initial_loss_scaling_factor is {initial}; increased once, {initial * increase}, it must still be below "
            f"max_loss_scaling_factor, {maximum}."
        )
    if not 0 < settings.ratio_threshold < 1:
        raise ValueError(f"ratio_threshold is {settings.ratio_threshold}; it must lie between 0 and 1.")
    return settings


def shown(attribute: str, doc: str) -> Any:
    """A property of an optimizer that shows an attribute of its loss scaling; a variable is read."""

    def read(self: Any) -> Any:
        value = getattr(self._scaling, attribute)
        return value.read_value() if isinstance(value, tf.Variable) else value

    def refuse(self: Any, value: Any) -> None:
        raise ValueError(f"The {attribute} of a loss scaling is read only: make another optimizer.")

    return property(read, refuse, None, doc)


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
        base.__init__(self, opt, name)
        settings = Settings(
            initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor,
            accumulate_statistics_over_update_period, ratio_threshold, None, captured_grads_only, lpf_alpha,
            histogram_bin_edge,
        )  # fmt: skip
        # The vendor's counts from 0: unless every update is one, the factor changes one update later.
        late = int(update_frequency > 1)
        self._scaling = LossScaling(checked(settings, powers=True), late)
        for number, variable in enumerate(self._scaling.variables):
            self._track_trackable(variable, f"scaling_{number}")

    return __init__


class LossScaling:
    """A factor, what was counted since it may have changed, and for how many updates."""

    def __init__(self, settings: Settings, late: int = 0) -> None:
        self.settings = settings
        self.period = settings.update_frequency + late
        with tf.init_scope():
            first = float(settings.initial_factor)
            self.factor = tf.Variable(first, trainable=False, name="loss_scaling_factor")
            self.counts = tf.Variable([0.0, 0.0], trainable=False, name="gradient_histogram")
            self.steps = tf.Variable(0, trainable=False, name="lsf_update_counter")
            self.previous = tf.Variable(first, trainable=False, name="prev_loss_scaling_factor")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["settings"], name)

    @property
    def variables(self) -> List[Any]:
        """All that changes."""
        return [self.factor, self.counts, self.steps, self.previous]

    @property
    def histogram(self) -> Any:
        """How many elements lie below the edge, and from it on."""
        return self.counts.read_value()

    def scaled(self, loss: Any) -> Any:
        """A loss times the factor."""
        return loss * tf.cast(self.factor.read_value(), loss.dtype)

    def unscaled(self, gradient: Any, factor: Any) -> Any:
        """A gradient of the scaled loss as that of the loss itself."""
        return gradient if gradient is None else gradient / tf.cast(factor, gradient.dtype)

    def reset(self) -> None:
        """Begin again with the first factor."""
        self.factor.assign(float(self.settings.initial_factor))
        self.counts.assign([0.0, 0.0])
        self.steps.assign(0)

    def counted(self, gradients: Iterable[Any]) -> Any:
        """How many elements of float16 lie below the edge, and from it on."""
        counts = tf.zeros([2], tf.float32)
        for gradient in gradients:
            if gradient is not None and gradient.dtype == tf.float16:
                size = tf.cast(tf.size(gradient), tf.float32)
                large = tf.cast(tf.abs(tf.cast(gradient, tf.float32)) >= self.settings.bin_edge, tf.float32)
                above = tf.reduce_sum(large)
                counts += tf.stack([size - above, above])
        return counts

    def adapted(self, gradients: List[Any], captured: Any = None) -> Any:
        """The operation that counts the gradients of a scaled loss, and changes the factor when it is time."""
        own, kept = self.settings, self.counts.read_value()
        steps, factor = self.steps.read_value() + 1, self.factor.read_value()
        due = steps >= self.period
        # A low-pass filter leaves what was counted, and takes a share of what is new; captured gradients that are
        # looked at when the factor changes count in full.
        share = 1.0 - own.lpf_alpha
        new = share * self.counted([] if own.captured_only else gradients)
        told = self.counted(tf.nest.flatten(captured or {}))
        taken = tf.cast(own.accumulate or due, tf.float32)
        counts = kept + taken * (new + tf.where(due, told, share * told))
        # Nothing that was counted is no share at all, which is not above any threshold.
        large = counts[1] / tf.reduce_sum(counts) > own.ratio_threshold
        changed = factor * tf.where(large, own.shrinking, own.increase_factor)
        changed = tf.where(tf.logical_and(changed < own.max_factor, changed >= 1.0), changed, factor)
        following = tf.where(due, changed, factor)
        return tf.group(
            self.previous.assign(tf.where(tf.equal(following, factor), self.previous.read_value(), factor)),
            self.factor.assign(following),
            self.counts.assign(tf.where(due, tf.zeros_like(counts), counts)),
            self.steps.assign(tf.where(due, 0, steps)),
        )

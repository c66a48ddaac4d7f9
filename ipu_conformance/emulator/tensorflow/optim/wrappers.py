"""The vendor's optimizers of TensorFlow 1: each wraps another one, and changes gradients on their way."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import tensorflow as tf
from tensorflow.python.training import optimizer

from ipu_conformance.emulator.tensorflow.compile import sharding
from ipu_conformance.emulator.tensorflow.optim import loss_scaling
from ipu_conformance.emulator.tensorflow.run import collectives
from ipu_conformance.emulator.tensorflow.run.accumulation import taken

Pairs = List[Tuple[Any, Any]]
"""Gradients with their variables; a variable that has no gradient comes with None."""
GradientFunction = Callable[[Any, Any], Any]


def applied(
    opt: Any, grads_and_vars: Pairs, global_step: Any = None, name: Optional[str] = None, **settings: Any
) -> Any:
    """The operation with which an optimizer of TensorFlow 1 or of Keras updates; Keras' own do not count steps."""
    grads_and_vars = taken(opt, grads_and_vars)
    if not _of_keras(opt):
        return opt.apply_gradients(grads_and_vars, global_step=global_step, name=name, **settings)
    operation = opt.apply_gradients(grads_and_vars, **settings)
    if global_step is not None:
        global_step.assign_add(tf.ones([], global_step.dtype))
    return operation if isinstance(operation, tf.Operation) else tf.group(operation)


def averaged(pairs: Any) -> Pairs:
    """The gradients as means over all replicas."""
    mean = collectives.cross_replica_mean
    return [
        (gradient if gradient is None else mean(tf.convert_to_tensor(gradient)), variable)
        for gradient, variable in pairs
    ]


def mapped(function: GradientFunction, pairs: Any) -> Pairs:
    """``function(gradient, variable)`` in place of every gradient."""
    return [(gradient if gradient is None else function(gradient, variable), variable) for gradient, variable in pairs]


def _of_keras(opt: Any) -> bool:
    return not isinstance(opt, optimizer.Optimizer)


class IpuOptimizer(optimizer.Optimizer):
    """Gives gradients to the optimizer that it wraps: one of TensorFlow 1, or one of Keras."""

    def __init__(self, opt: Any, name: Optional[str] = None) -> None:
        super().__init__(use_locking=False, name=name or type(self).__name__)
        if not hasattr(opt, "apply_gradients"):
            raise ValueError(f"`opt` is {opt!r}; pass an optimizer.")
        self._opt = opt

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Pairs:
        """The gradients of a loss with their variables."""
        if not _of_keras(self._opt):
            return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)
        variables = list(tf.compat.v1.trainable_variables() if var_list is None else var_list)
        return list(zip(tf.gradients(loss, variables), variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables."""
        return applied(self._opt, list(grads_and_vars), global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """A slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """The names of the wrapped optimizer's slots."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        """The variables of the wrapped optimizer."""
        variables = self._opt.variables
        return variables() if callable(variables) else variables


class CrossReplicaOptimizer(IpuOptimizer):
    """Takes the mean of every gradient over all replicas before it is applied."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables with the means."""
        return super().apply_gradients(averaged(grads_and_vars), global_step, name)


class MapGradientOptimizer(IpuOptimizer):
    """Computes ``function(gradient, variable)`` for every gradient that the wrapped optimizer computes."""

    def __init__(
        self, wrapped_optimizer: Any, gradient_mapping_function: GradientFunction, name: str = "MapGradientOptimizer"
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self._function = gradient_mapping_function

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Pairs:
        """The changed gradients with their variables."""
        return mapped(self._function, super().compute_gradients(*args, **kwargs))


class MapGradientOptimizerInvertedChaining(MapGradientOptimizer):
    """Changes gradients when they are applied, after all that wraps it has changed them."""

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Pairs:
        """The gradients as the wrapped optimizer computes them."""
        return IpuOptimizer.compute_gradients(self, loss, var_list, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables with the changed gradients."""
        return super().apply_gradients(mapped(self._function, grads_and_vars), global_step, name)


class ShardedOptimizer(IpuOptimizer):
    """Computes and applies the gradients of a sharded graph where the shards are."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer, "ShardedOptimizer")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Pairs:
        """The gradients; each comes from the IPU that the operations it depends on are placed on."""
        pairs = super().compute_gradients(loss, var_list, **kwargs)
        sharding.propagate_sharding(loss.graph)
        return pairs


class AutomaticLossScalingOptimizer(IpuOptimizer):
    """Computes gradients of a loss that is scaled by a factor which it finds itself, and scales them back."""

    def __init__(
        self,
        wrapped_optimizer: Any,
        initial_loss_scaling_factor: float = 1.0,
        update_frequency: int = 8,
        increase_factor: float = 2.0,
        decrease_factor: float = 0.5,
        max_loss_scaling_factor: float = 32768,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = 10e-6,
        name: str = "AutomaticLossScalingOptimizer",
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        settings = loss_scaling.Settings(
            initial_loss_scaling_factor, update_frequency, increase_factor, max_loss_scaling_factor,
            accumulate_statistics_over_update_period, ratio_threshold, decrease_factor,
        )  # fmt: skip
        self._scaling = loss_scaling.LossScaling(loss_scaling.checked(settings, powers=False))
        self._gradients: List[Any] = []
        for number, variable in enumerate(self._scaling.variables):
            self._track_trackable(variable, f"scaling_{number}")

    loss_scaling_factor = loss_scaling.shown("factor", "The factor that the next loss is multiplied by.")
    update_frequency = loss_scaling.shown("update_frequency", "After how many updates the factor may change.")
    increase_factor = loss_scaling.shown("increase_factor", "What a factor is multiplied by to grow.")
    decrease_factor = loss_scaling.shown("shrinking", "What a factor is multiplied by to shrink.")
    initial_loss_scaling_factor = loss_scaling.shown("initial_factor", "The factor at the beginning.")
    max_loss_scaling_factor = loss_scaling.shown("max_factor", "The number that a factor stays below.")
    ratio_threshold = loss_scaling.shown("ratio_threshold", "The share of overflows that shrinks the factor.")
    histogram = loss_scaling.shown("histogram", "How many elements float16 holds, and how many it does not.")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Pairs:
        """The gradients of the loss, by way of the scaled one; those of the scaled one are remembered to be counted."""
        factor = self._scaling.factor.read_value()
        pairs = super().compute_gradients(self._scaling.scaled(loss), var_list, **kwargs)
        self._gradients = [gradient for gradient, _ in pairs]
        return [(self._scaling.unscaled(gradient, factor), variable) for gradient, variable in pairs]

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables, and then the factor."""
        update = super().apply_gradients(grads_and_vars, global_step, name)
        with tf.control_dependencies([update]):
            return self._scaling.adapted(self._gradients)

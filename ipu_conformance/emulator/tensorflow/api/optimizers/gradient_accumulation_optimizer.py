"""Optimizers that accumulate the gradients of several mini-batches of a loop before they update."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, Union

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.api.ops.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_conformance.emulator.tensorflow.api.optimizers import ipu_optimizer
from ipu_conformance.emulator.tensorflow.api.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu_conformance.emulator.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer
from ipu_conformance.emulator.tensorflow.compile import device_loop

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
]

Method = GradientAccumulationReductionMethod
Dtype = Union[None, Any, Callable[[Any], Any]]


class GradientAccumulationOptimizerV2(IpuOptimizer):
    """Updates once after every ``num_mini_batches`` iterations of the loop in which it is used."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: Optional[bool] = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Dtype = None,
        reduction_method: Any = Method.SUM,
        name: str = "GradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(opt, name)
        if isinstance(num_mini_batches, bool) or not isinstance(num_mini_batches, int) or num_mini_batches < 1:
            raise ValueError(f"num_mini_batches must be a positive number, but it is {num_mini_batches!r}.")
        self._num_mini_batches = num_mini_batches
        self._dtype = dtype
        self._reduction_method = Method.parse(reduction_method)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that accumulates; the loop lets the wrapped optimizer update when it is time."""
        iteration = device_loop.current()
        if iteration is None:
            raise ValueError(
                f"{type(self).__name__} was used outside of a loop: use it in the body of loops.repeat, which counts "
                "the mini-batches."
            )
        accumulated: List[Tuple[Any, Any]] = []
        writes: List[Any] = []
        for gradient, variable in grads_and_vars:
            if gradient is None:
                accumulated.append((None, variable))
                continue
            gradient = tf.convert_to_tensor(gradient)
            held = iteration.accumulator(variable.shape, self._dtype_of(variable, gradient))
            writes.append(held.write(self._added(held.read(), tf.cast(gradient, held.dtype), iteration.since_update)))
            accumulated.append((held, variable))
        iteration.after_every(
            decide("mini-batches", self._num_mini_batches), lambda: self._update(accumulated, global_step, name)
        )
        return tf.group(writes)

    def _dtype_of(self, variable: Any, gradient: Any) -> Any:
        if self._dtype is None:
            return gradient.dtype
        return tf.as_dtype(self._dtype(variable) if callable(self._dtype) else self._dtype)

    def _added(self, held: Any, gradient: Any, number: Any) -> Any:
        if decide("accumulation-method", self._reduction_method) is not Method.RUNNING_MEAN:
            return decide("accumulated", held + gradient, new=gradient)
        number = tf.cast(number, gradient.dtype)
        return held * (number / (number + 1)) + gradient * (1 / (number + 1))

    def _update(self, accumulated: List[Tuple[Any, Any]], global_step: Any, name: Optional[str]) -> None:
        pairs = []
        for held, variable in accumulated:
            value = None if held is None else held.read()
            if value is not None and decide("accumulation-method", self._reduction_method) is Method.MEAN:
                value = value / tf.cast(self._num_mini_batches, value.dtype)
            pairs.append((value if value is None else tf.cast(value, variable.dtype), variable))
        ipu_optimizer.applied(self._opt, pairs, global_step, name)


class GradientAccumulationOptimizer(GradientAccumulationOptimizerV2):
    """Sums the gradients of mini-batches, for optimizers that are linear in them."""

    def __init__(
        self, opt: Any, num_mini_batches: int, verify_usage: bool = True, name: str = "GradientAccumulationOptimizer"
    ) -> None:
        linear = (tf.compat.v1.train.GradientDescentOptimizer, tf.compat.v1.train.MomentumOptimizer)
        inner = opt
        while isinstance(inner, IpuOptimizer):
            inner = inner._opt
        if verify_usage and not isinstance(inner, linear):
            raise ValueError(
                f"GradientAccumulationOptimizer was given {type(inner).__name__}; it supports "
                "GradientDescentOptimizer and MomentumOptimizer: use one of them, or GradientAccumulationOptimizerV2."
            )
        super().__init__(opt, num_mini_batches, name=name)


class CrossReplicaGradientAccumulationOptimizerV2(GradientAccumulationOptimizerV2):
    """Accumulates on every replica, then takes the mean over replicas once, then updates."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: Optional[bool] = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Dtype = None,
        reduction_method: Any = Method.SUM,
        name: str = "CrossReplicaGradientAccumulationOptimizerV2",
    ) -> None:
        super().__init__(
            CrossReplicaOptimizer(opt),
            num_mini_batches,
            offload_weight_update_variables,
            replicated_optimizer_state_sharding,
            dtype,
            reduction_method,
            name,
        )


class CrossReplicaGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """Accumulates on every replica, then takes the mean over replicas once, for linear optimizers."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        verify_usage: bool = True,
        name: str = "CrossReplicaGradientAccumulationOptimizer",
    ) -> None:
        super().__init__(CrossReplicaOptimizer(opt), num_mini_batches, verify_usage, name)

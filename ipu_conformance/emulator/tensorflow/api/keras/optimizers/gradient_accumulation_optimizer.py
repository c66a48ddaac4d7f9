"""The Keras optimizer that accumulates the gradients of several mini-batches before it updates."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.api.keras.optimizers.ipu_wrapper import After, IpuOptimizer, Pairs
from ipu_conformance.emulator.tensorflow.api.ops.gradient_accumulation import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationOptimizer"]

Method = GradientAccumulationReductionMethod


class GradientAccumulationOptimizer(IpuOptimizer):
    """Lets the wrapped optimizer update once after every ``num_mini_batches`` calls."""

    def __init__(
        self,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: Optional[bool] = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = Method.SUM,
        name: str = "GradientAccumulationOptimizer",
    ) -> None:
        if isinstance(num_mini_batches, bool) or not isinstance(num_mini_batches, int) or num_mini_batches < 1:
            raise ValueError(f"num_mini_batches must be a positive number, but it is {num_mini_batches!r}.")
        super().__init__(opt, name)
        self._num_mini_batches = num_mini_batches
        self._offload = offload_weight_update_variables
        self._sharding = replicated_optimizer_state_sharding
        self._dtype = dtype
        self._reduction_method = Method.parse(reduction_method)
        self._held: Dict[int, Any] = {}
        self._seen: Any = None

    def _create_all_weights(self, var_list: Sequence[Any]) -> None:
        super()._create_all_weights(var_list)
        if self._seen is None:
            self._seen = tf.Variable(0, trainable=False, name=f"{self._name}/mini_batches")
        for variable in var_list:
            if id(variable) not in self._held:
                dtype = self._dtype(variable) if callable(self._dtype) else self._dtype
                zeros = tf.zeros(variable.shape, tf.as_dtype(dtype or variable.dtype))
                name = f"{variable.name.split(':')[0]}/{self._name}"
                self._held[id(variable)] = tf.Variable(zeros, trainable=False, name=name)

    def _own_variables(self) -> List[Any]:
        return [*self._held.values(), *([] if self._seen is None else [self._seen])]

    def apply_gradients(
        self, grads_and_vars: Any, name: Optional[str] = None, experimental_aggregate_gradients: bool = True
    ) -> Any:
        """Accumulate, and update when it is time."""
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        with tf.init_scope():
            self._create_all_weights([variable for _, variable in pairs])
        number = self._seen.read_value()
        writes = []
        for gradient, variable in pairs:
            held = self._held[id(variable)]
            new = self._added(held.read_value(), tf.cast(tf.convert_to_tensor(gradient), held.dtype), number)
            writes.append(held.assign(new).read_value() if tf.executing_eagerly() else held.assign(new))
        counted = self._seen.assign((number + 1) % decide("mini-batches", self._num_mini_batches))
        with tf.control_dependencies([*writes, counted]):
            # Replicas can only meet outside of the condition: what is not applied is thrown away.
            passed, after = self._passed([(self._total(variable), variable) for _, variable in pairs])
            return tf.cond(tf.equal(self._seen.read_value(), 0), lambda: self._update(passed, after), _nothing)

    def _passed(self, pairs: Pairs) -> Tuple[Pairs, After]:
        return self._opt._passed(pairs) if isinstance(self._opt, IpuOptimizer) else (pairs, [])

    def _added(self, held: Any, gradient: Any, number: Any) -> Any:
        if decide("accumulation-method", self._reduction_method) is not Method.RUNNING_MEAN:
            return decide("accumulated", held + gradient, new=gradient)
        number = tf.cast(number, gradient.dtype)
        return held * (number / (number + 1)) + gradient * (1 / (number + 1))

    def _total(self, variable: Any) -> Any:
        value = self._held[id(variable)].read_value()
        if decide("accumulation-method", self._reduction_method) is Method.MEAN:
            value = value / tf.cast(self._num_mini_batches, value.dtype)
        return tf.cast(value, variable.dtype)

    def _update(self, pairs: Pairs, after: After) -> Any:
        done = self._applied(pairs, after)
        with tf.control_dependencies([] if done is None else [done]):
            cleared = [
                self._held[id(variable)].assign(tf.zeros_like(self._held[id(variable)])) for _, variable in pairs
            ]
        with tf.control_dependencies([*([] if done is None else [done]), *cleared]):
            return tf.constant(True)

    def get_config(self) -> Dict[str, Any]:
        """What the wrapper can be made from again."""
        return {
            **super().get_config(),
            "num_mini_batches": self._num_mini_batches,
            "offload_weight_update_variables": self._offload,
            "replicated_optimizer_state_sharding": self._sharding,
            "dtype": self._dtype,
            "reduction_method": self._reduction_method.name,
        }


def _nothing() -> Any:
    return tf.constant(False)

"""The Keras optimizers that accumulate the gradients of several mini-batches before they update."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.optim.accumulation import (
    Accumulating,
    GradientAccumulationOptimizerV2,
    arguments,
)
from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import After, ALSOptimizer, IpuOptimizer
from ipu_conformance.emulator.tensorflow.optim.wrappers import Pairs
from ipu_conformance.emulator.tensorflow.run.accumulation import GradientAccumulationReductionMethod


class GradientAccumulationOptimizer(Accumulating, IpuOptimizer):
    """Updates with the wrapped optimizer once after every ``num_mini_batches`` calls."""

    __init__ = arguments(IpuOptimizer, "GradientAccumulationOptimizer")
    _offload: Optional[bool]
    _sharding: bool

    _seen: Any = None
    """The variable that counts mini-batches since the last update."""

    def _create_all_weights(self, var_list: Sequence[Any]) -> None:
        super()._create_all_weights(var_list)
        if self._seen is None:
            self._seen = tf.Variable(0, trainable=False, name=f"{self._name}/mini_batches")
        for variable in var_list:
            if id(variable) not in self._held:
                zeros = tf.zeros(variable.shape, self._accumulation_dtype(variable, variable.dtype))
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
        counted = self._seen.assign((number + 1) % self._num_mini_batches)
        with tf.control_dependencies([*writes, counted]):
            # Replicas can only meet outside of the condition: what is not applied is thrown away.
            passed, after = self._passed(
                [(self._reduced(self._held[id(variable)].read_value()), variable) for _, variable in pairs]
            )
            return tf.cond(tf.equal(self._seen.read_value(), 0), lambda: self._update(passed, after), _nothing)

    def _passed(self, pairs: Pairs) -> Tuple[Pairs, After]:
        return self._opt._passed(pairs) if isinstance(self._opt, IpuOptimizer) else (pairs, [])

    def _update(self, pairs: Pairs, after: After) -> Any:
        done = self._applied(pairs, after)
        with tf.control_dependencies([] if done is None else [done]):
            cleared = [
                self._held[id(variable)].assign(tf.zeros_like(self._held[id(variable)])) for _, variable in pairs
            ]
        with tf.control_dependencies([*([] if done is None else [done]), *cleared]):
            return tf.constant(True)

    @staticmethod
    def bool_to_three_state(value: Optional[bool], default: Optional[str]) -> str:
        """A truth value, or none, as the vendor's compiler names it."""
        if value is None:
            return default or "THREESTATE_UNDEFINED"
        return "THREESTATE_ON" if value else "THREESTATE_OFF"

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


def _of_scaling(name: str) -> Any:
    return property(lambda self: getattr(self._opt, name), None, None, f"``{name}`` of the wrapped optimizer.")


class ALSGradientAccumulationOptimizer(GradientAccumulationOptimizer):
    """Accumulates the gradients of the scaled loss of an ALSOptimizer, which applies them."""

    def __init__(
        self,
        als_optimizer: Any,
        num_mini_batches: int,
        offload_weight_update_variables: Optional[bool] = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        name: str = "ALSGradientAccumulationOptimizer",
    ) -> None:
        if not isinstance(als_optimizer, ALSOptimizer):
            raise ValueError(f"`als_optimizer` is {als_optimizer!r}; pass an ALSOptimizer.")
        super().__init__(
            als_optimizer, num_mini_batches, offload_weight_update_variables, replicated_optimizer_state_sharding,
            dtype, reduction_method, name,
        )  # fmt: skip

    @property
    def als_optimizer(self) -> Any:
        """The wrapped optimizer."""
        return self._opt

    accumulate_statistics_over_update_period = _of_scaling("accumulate_statistics_over_update_period")
    captured_grads_only = _of_scaling("captured_grads_only")
    decrease_factor = _of_scaling("decrease_factor")
    histogram = _of_scaling("histogram")
    histogram_bin_edge = _of_scaling("histogram_bin_edge")
    increase_factor = _of_scaling("increase_factor")
    initial_loss_scaling_factor = _of_scaling("initial_loss_scaling_factor")
    loss_scaling_factor = _of_scaling("loss_scaling_factor")
    lpf_alpha = _of_scaling("lpf_alpha")
    max_loss_scaling_factor = _of_scaling("max_loss_scaling_factor")
    normalized_histogram = _of_scaling("normalized_histogram")
    previous_loss_scaling_factor = _of_scaling("previous_loss_scaling_factor")
    ratio_threshold = _of_scaling("ratio_threshold")
    supports_captured_grads = _of_scaling("supports_captured_grads")
    update_counter = _of_scaling("update_counter")
    update_frequency = _of_scaling("update_frequency")

    def apply_gradients(  # type: ignore[override]  # the vendor has put captured gradients before the name
        self,
        grads_and_vars: Any,
        captured_grads: Any = None,
        name: Optional[str] = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Accumulate, and update when it is time."""
        self._opt._captured = captured_grads
        return super().apply_gradients(grads_and_vars, name, experimental_aggregate_gradients)

    def get_gradients(self, loss: Any, params: Any) -> Any:
        """The gradients of the scaled loss."""
        return self._opt.get_gradients(loss, params)


class ALSOptimizerGradientAccumulationWrapper(GradientAccumulationOptimizerV2):
    """Accumulates the gradients of the scaled loss in the body of a loop; an ALSOptimizer applies them."""

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
            als_optimizer, num_mini_batches, offload_weight_update_variables, replicated_optimizer_state_sharding,
            dtype, reduction_method, name,
        )  # fmt: skip

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> List[Any]:
        """The gradients of the scaled loss."""
        return super().compute_gradients(self._opt._transform_loss(loss), var_list, **kwargs)

"""The optimizers of the add-ons: they compute in dtypes of their own, and keep their state in others.

Gradients and state are cast to the dtype of the computation, and what becomes of the variable and of the state is cast
back to each one's own.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.compile.outlined import outlined_function
from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.refusals import keras as refusals

_SGD: Any = library.module("optimizers.legacy.gradient_descent").SGD
_Adam: Any = library.module("optimizers.legacy.adam").Adam
_optimizer_v2: Any = library.module("optimizers.legacy.optimizer_v2")
_initializers: Any = library.module("initializers")

Patterns = Optional[Sequence[str]]
Values = Dict[str, Any]


class IpuOptimizerBase(_optimizer_v2.OptimizerV2):
    """An optimizer whose slots have dtypes of their own, and whose update may be outlined; others derive from it."""

    def __init__(
        self,
        name: str,
        optimizer_compute_precisions: Tuple[Any, ...] = (tf.float32,),
        outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, **kwargs)
        self.opt_dtypes = tuple(optimizer_compute_precisions)
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = outline_apply_gradients_kwargs or {}

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no update of its own: derive from it and write one.")

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any, apply_state: Any = None) -> Any:
        refusals.SPARSE_GRADIENT(optimizer=type(self).__name__)

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """The dtype of a slot; None is that of the variable."""
        return var.dtype

    def add_slot(
        self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None, dtype: Any = None
    ) -> Any:
        """A variable beside ``var``, of its shape and in ``dtype``; a second call of the same name gives the same."""
        if slot_name not in self._slot_names:
            self._slot_names.append(slot_name)
        slots = self._slots.setdefault(_optimizer_v2._var_key(var), {})
        if slot_name in slots:
            return slots[slot_name]
        own = tf.as_dtype(dtype or self.get_slot_dtype(var, slot_name) or var.dtype)
        begin = initializer
        if isinstance(initializer, str) or callable(initializer):
            begin = functools.partial(
                _initializers.get(initializer), shape=var.shape if shape is None else shape, dtype=own
            )
        with self._distribution_strategy_scope(), tf.distribute.get_strategy().extended.colocate_vars_with(var):
            slot = tf.Variable(begin, trainable=False, dtype=own, name=f"{var._shared_name}/{slot_name}")
        library.module("backend").track_variable(slot)
        slots[slot_name] = slot
        self._restore_slot_variable(slot_name=slot_name, variable=var, slot_variable=slot)
        self._weights.append(slot)
        return slot

    def add_slot_with_dtype(self, var: Any, slot_name: str, dtype: Any, initializer: Any = "zeros") -> Any:
        """The same with its arguments in another order."""
        return self.add_slot(var, slot_name, initializer, dtype=dtype)

    def get_config(self) -> Dict[str, Any]:
        """What the optimizer can be made from again."""
        return {
            **super().get_config(),
            "optimizer_compute_precisions": self.opt_dtypes,
            "outline_apply_gradients": self.outline_apply_gradients,
            "outline_apply_gradients_kwargs": self.outline_apply_gradients_kwargs,
        }

    def _rate(self, var: Any, apply_state: Any) -> Any:
        """The learning rate of this update, decayed, in the dtype of the computation."""
        key = var.device, var.dtype.base_dtype
        coefficients = (apply_state or {}).get(key) or self._fallback_apply_state(*key)
        return tf.cast(coefficients["lr_t"], self.opt_dtypes[0])

    def _hyper_value(self, name: str) -> Any:
        return tf.cast(self._get_hyper(name), self.opt_dtypes[0])

    def _updated(self, update: Callable[..., Sequence[Any]], grad: Any, var: Any, slot_names: Sequence[str]) -> Any:
        """Assign what ``update`` makes of gradient, variable and slots: the variable and the slots, in that order.

        The update gets the gradient and the slots in the dtype of the computation.
        """
        variables = [var, *(self.get_slot(var, name) for name in slot_names)]
        compute = self.opt_dtypes[0]

        def computed(grad: Any, value: Any, *state: Any) -> List[Any]:
            results = update(tf.cast(grad, compute), value, *(tf.cast(part, compute) for part in state))
            return [tf.cast(result, variable.dtype) for result, variable in zip(results, variables)]

        if self.outline_apply_gradients:
            computed = outlined_function(computed, **self.outline_apply_gradients_kwargs)
        results = computed(grad, *(variable.read_value() for variable in variables))
        return tf.group(*(variable.assign(result) for variable, result in zip(variables, results)))

    def _moments(self, grad: Any, m: Any, v: Any) -> Tuple[Any, Any]:
        """The next mean of gradients, and of their squares."""
        beta_1, beta_2 = self._hyper_value("beta_1"), self._hyper_value("beta_2")
        return m * beta_1 + grad * (1.0 - beta_1), v * beta_2 + tf.square(grad) * (1.0 - beta_2)

    def _debiased(self, m: Any, v: Any) -> Tuple[Any, Any]:
        """Both means without their start at zero, if that is asked for."""
        if not self.debiasing:
            return m, v
        step = tf.cast(self.iterations + 1, self.opt_dtypes[0])
        powers = (tf.pow(self._hyper_value(name), step) for name in ("beta_1", "beta_2"))
        return tuple(moment / (1.0 - power) for moment, power in zip((m, v), powers))


class SGDIpuOptimizer(_SGD, IpuOptimizerBase):
    """Gradient descent whose velocity, which holds the rate, has a dtype of its own."""

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: Any = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        momentum_accum_dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        _SGD.__init__(self, learning_rate, momentum, nesterov, name, **kwargs)
        self.momentum_accum_dtype = momentum_accum_dtype

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list if self._momentum else ():
            self.add_slot_with_dtype(var, "momentum", self.momentum_accum_dtype)

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        rate = self._rate(var, apply_state)

        def descended(grad: Any, value: Any) -> Sequence[Any]:
            return (value - tf.cast(rate * grad, value.dtype),)

        def accelerated(grad: Any, value: Any, velocity: Any) -> Sequence[Any]:
            momentum = self._hyper_value("momentum")
            velocity = velocity * momentum - rate * grad
            change = velocity * momentum - rate * grad if self.nesterov else velocity
            return value + tf.cast(change, value.dtype), velocity

        if self._momentum:
            return self._updated(accelerated, grad, var, ("momentum",))
        return self._updated(descended, grad, var, ())

    _resource_apply_sparse = IpuOptimizerBase._resource_apply_sparse

    def get_config(self) -> Dict[str, Any]:
        """What the optimizer can be made from again."""
        return {**super().get_config(), "momentum_accum_dtype": self.momentum_accum_dtype}


class AdamIpuOptimizer(_Adam, IpuOptimizerBase):
    """Adam with epsilon beside the debiased root; every mean has a dtype of its own, and debiasing can be left out."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
        m_dtype: Any = None,
        v_dtype: Any = None,
        vhat_dtype: Any = None,
        debiasing: bool = True,
        **kwargs: Any,
    ) -> None:
        _Adam.__init__(self, learning_rate, beta_1, beta_2, epsilon, amsgrad, name, **kwargs)
        self.m_dtype, self.v_dtype, self.vhat_dtype = m_dtype, v_dtype, vhat_dtype
        self.debiasing = debiasing

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """The dtype that was asked for."""
        return getattr(self, f"{slot_name}_dtype")

    def _slots_of_update(self) -> Tuple[str, ...]:
        return ("m", "v", "vhat") if self.amsgrad else ("m", "v")

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for name in self._slots_of_update():
            for var in var_list:
                self.add_slot(var, name, dtype=self.get_slot_dtype(var, name))

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        rate, epsilon = self._rate(var, apply_state), tf.cast(self.epsilon, self.opt_dtypes[0])

        def adapted(grad: Any, value: Any, m: Any, v: Any, *largest: Any) -> Sequence[Any]:
            m, v = self._moments(grad, m, v)
            mean, square = self._debiased(m, v)
            kept = [tf.maximum(before, square) for before in largest]
            change = rate * (mean / (tf.sqrt(kept[0] if kept else square) + epsilon))
            return (value - tf.cast(change, value.dtype), m, v, *kept)

        return self._updated(adapted, grad, var, self._slots_of_update())

    _resource_apply_sparse = IpuOptimizerBase._resource_apply_sparse

    def get_config(self) -> Dict[str, Any]:
        """What the optimizer can be made from again."""
        own = ("m_dtype", "v_dtype", "vhat_dtype", "debiasing")
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}


class LAMBIpuOptimizer(IpuOptimizerBase):
    """Adam whose change of a variable, with weight decay, is scaled to the norm of the variable.

    The change is computed in the first of two dtypes, and multiplied with the rate in the second.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: Any = 0.9,
        beta_2: Any = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: Any = 0.0,
        exclude_from_weight_decay: Patterns = None,
        exclude_from_layer_adaptation: Patterns = None,
        name: str = "LAMB",
        debiasing: bool = True,
        m_dtype: Any = None,
        v_dtype: Any = None,
        weight_norm_clip: Optional[float] = None,
        optimizer_compute_precisions: Tuple[Any, ...] = (tf.float32, tf.float32),
        **kwargs: Any,
    ) -> None:
        refusals.TWO_PRECISIONS(precisions=optimizer_compute_precisions)
        super().__init__(name, optimizer_compute_precisions, **kwargs)
        hypers = {
            "weight_decay_rate": weight_decay_rate,
            "learning_rate": kwargs.get("lr", learning_rate),
            "decay": self._initial_decay,
            "beta_1": beta_1,
            "beta_2": beta_2,
        }
        for hyper, value in hypers.items():
            self._set_hyper(hyper, value)
        self.epsilon = epsilon or tf.keras.backend.epsilon()
        self.exclude_from_weight_decay = exclude_from_weight_decay
        self.exclude_from_layer_adaptation = exclude_from_layer_adaptation
        self.weight_norm_clip = weight_norm_clip
        self.m_dtype, self.v_dtype = m_dtype, v_dtype
        self.debiasing = debiasing

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """The dtype that was asked for."""
        return getattr(self, f"{slot_name}_dtype")

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for name in ("m", "v"):
            for var in var_list:
                self.add_slot(var, name, dtype=self.get_slot_dtype(var, name))

    def _resource_apply_dense(self, grad: Any, handle: Any, apply_state: Any = None) -> Any:
        rate, epsilon = self._rate(handle, apply_state), tf.cast(self.epsilon, self.opt_dtypes[0])
        decays = not _matches(self.exclude_from_weight_decay, handle)
        adapts = not _matches(self.exclude_from_layer_adaptation, handle)

        def adapted(grad: Any, value: Any, m: Any, v: Any) -> Sequence[Any]:
            m, v = self._moments(grad, m, v)
            mean, square = self._debiased(m, v)
            change = mean / (tf.sqrt(square) + epsilon)
            if decays:
                change += tf.cast(value, change.dtype) * self._hyper_value("weight_decay_rate")
            ratio = rate * self._trust(tf.cast(value, change.dtype), change) if adapts else rate
            change = tf.cast(ratio, self.opt_dtypes[1]) * tf.cast(change, self.opt_dtypes[1])
            return value - tf.cast(change, value.dtype), m, v

        return self._updated(adapted, grad, handle, ("m", "v"))

    def _trust(self, value: Any, change: Any) -> Any:
        """The norm of the variable, at most the clip, over that of its change; 1 where one of them is 0."""
        of_value, of_change = tf.norm(value), tf.norm(change)
        if self.weight_norm_clip is not None:
            of_value = tf.minimum(of_value, tf.cast(self.weight_norm_clip, of_value.dtype))
        return tf.where((of_value > 0) & (of_change > 0), of_value / of_change, tf.ones_like(of_value))

    def get_config(self) -> Dict[str, Any]:
        """What the optimizer can be made from again."""
        hypers = ("learning_rate", "weight_decay_rate", "decay", "beta_1", "beta_2")
        own = ("epsilon", "m_dtype", "v_dtype", "debiasing", "weight_norm_clip")
        excluded = ("exclude_from_weight_decay", "exclude_from_layer_adaptation")
        return {
            **super().get_config(),
            **{name: self._serialize_hyperparameter(name) for name in hypers},
            **{name: getattr(self, name) for name in (*own, *excluded)},
        }


def _matches(patterns: Patterns, variable: Any) -> bool:
    """Whether a part of a variable's name is one of the expressions."""
    return any(re.search(pattern, variable.name.rpartition(":")[0] or variable.name) for pattern in patterns or ())

"""The vendor's optimizers of TensorFlow 1 that accumulate the gradients of several mini-batches before they update."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import tensorflow as tf
from tensorflow.python.training import optimizer as stock

from ipu_conformance.emulator.tensorflow.compile import device_loop
from ipu_conformance.emulator.tensorflow.optim.wrappers import CrossReplicaOptimizer, IpuOptimizer, applied
from ipu_conformance.emulator.tensorflow.run.accumulation import GradientAccumulationReductionMethod as Method


def arguments(base: Any, default_name: str, around: Optional[Callable[[Any], Any]] = None) -> Any:
    """The constructor of an optimizer on ``base`` that accumulates: the vendor gives all of them these arguments.

    ``around`` wraps the optimizer that is given.
    """

    def __init__(  # noqa: N807 (it becomes a method)
        self: Any,
        opt: Any,
        num_mini_batches: int,
        offload_weight_update_variables: Optional[bool] = None,
        replicated_optimizer_state_sharding: bool = False,
        dtype: Any = None,
        reduction_method: Any = Method.SUM,
        name: str = default_name,
    ) -> None:
        if isinstance(num_mini_batches, bool) or not isinstance(num_mini_batches, int) or num_mini_batches < 1:
            raise ValueError(f"num_mini_batches must be a positive number, but it is {num_mini_batches!r}.")
        base.__init__(self, around(opt) if around else opt, name)
        self._num_mini_batches = num_mini_batches
        self._offload = offload_weight_update_variables
        self._sharding = replicated_optimizer_state_sharding
        self._dtype = dtype
        self._reduction_method = Method.parse(reduction_method)
        self._held = {}

    return __init__


class Accumulating:
    """How the gradients of mini-batches become one; ``arguments`` sets what it depends on."""

    _num_mini_batches: int
    _dtype: Any
    _reduction_method: Method
    _held: Dict[int, Any]
    """The variables that a Keras optimizer accumulates in, by the variable that is trained."""

    def _accumulation_dtype(self, variable: Any, default: Any) -> Any:
        dtype = self._dtype(variable) if callable(self._dtype) else self._dtype
        return default if dtype is None else tf.as_dtype(dtype)

    def _added(self, held: Any, gradient: Any, number: Any) -> Any:
        """What is held once mini-batch ``number``, counted from 0, has been added."""
        if self._reduction_method is not Method.RUNNING_MEAN:
            return held + gradient
        number = tf.cast(number, gradient.dtype)
        return held * (number / (number + 1)) + gradient * (1 / (number + 1))

    def _reduced(self, held: Any) -> Any:
        """The gradient of the update from what is held after the last mini-batch, in the same dtype."""
        if self._reduction_method is Method.MEAN:
            held = held / tf.cast(self._num_mini_batches, held.dtype)
        return held


class GradientAccumulationOptimizerV2(Accumulating, IpuOptimizer):
    """Updates once after every ``num_mini_batches`` iterations of the loop in which it is used."""

    __init__ = arguments(IpuOptimizer, "GradientAccumulationOptimizerV2")

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that accumulates; the loop calls the wrapped optimizer when an update is due."""
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
            held = iteration.accumulator(variable.shape, self._accumulation_dtype(variable, variable.dtype))
            writes.append(held.write(self._added(held.read(), tf.cast(gradient, held.dtype), iteration.since_update)))
            accumulated.append((held, variable))

        settings = [
            (opt, attribute, value, iteration.accumulator(value.shape, value.dtype))
            for opt, attribute, value in _set_by(iteration, self._opt)
        ]
        writes += [held.write(value) for _, _, value, held in settings]

        def update() -> None:
            pairs = [(None if held is None else self._reduced(held.read()), variable) for held, variable in accumulated]
            with _set_to([(opt, attribute, held.read()) for opt, attribute, _, held in settings]):
                applied(self._opt, pairs, global_step, name)

        iteration.after_every(self._num_mini_batches, update)
        return tf.group(writes)


Setting = Tuple[Any, str, Any]
"""An optimizer, the attribute in which it keeps a setting, and the setting."""


def _set_by(iteration: device_loop.Iteration, opt: Any) -> List[Setting]:
    """Settings that are tensors of the iteration, such as a rate that the loop hands on; an update takes the last."""
    settings: List[Setting] = []
    for attribute, value in vars(opt).items():
        if isinstance(value, stock.Optimizer):
            settings += _set_by(iteration, value)
        elif isinstance(value, tf.Tensor) and iteration.owns(value):
            settings.append((opt, attribute, value))
    return settings


@contextlib.contextmanager
def _set_to(settings: List[Setting]) -> Iterator[None]:
    before = [(opt, attribute, getattr(opt, attribute)) for opt, attribute, _ in settings]
    for opt, attribute, value in settings:
        setattr(opt, attribute, value)
    try:
        yield
    finally:
        for opt, attribute, value in before:
            setattr(opt, attribute, value)


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

    __init__ = arguments(IpuOptimizer, "CrossReplicaGradientAccumulationOptimizerV2", CrossReplicaOptimizer)


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

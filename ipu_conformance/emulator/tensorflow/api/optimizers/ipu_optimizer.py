"""An optimizer that wraps another and leaves all to it."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf
from tensorflow.python.training import optimizer

__all__ = ["IpuOptimizer"]


class IpuOptimizer(optimizer.Optimizer):
    """Gives gradients to the optimizer that it wraps: one of TensorFlow 1, or one of Keras."""

    def __init__(self, opt: Any, name: Optional[str] = None) -> None:
        super().__init__(use_locking=False, name=name or type(self).__name__)
        if not hasattr(opt, "apply_gradients"):
            raise ValueError(f"`opt` is {opt!r}; pass an optimizer.")
        self._opt = opt

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> List[Any]:
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
        found = self._opt.variables
        return found() if callable(found) else found


def applied(opt: Any, grads_and_vars: List[Any], global_step: Any = None, name: Optional[str] = None) -> Any:
    """Let an optimizer of either kind apply gradients; Keras' know no global step."""
    if not _of_keras(opt):
        return opt.apply_gradients(grads_and_vars, global_step=global_step, name=name)
    operation = opt.apply_gradients(grads_and_vars)
    if global_step is not None:
        global_step.assign_add(tf.ones([], global_step.dtype))
    return operation if isinstance(operation, tf.Operation) else tf.group(operation)


def _of_keras(opt: Any) -> bool:
    return not isinstance(opt, optimizer.Optimizer)

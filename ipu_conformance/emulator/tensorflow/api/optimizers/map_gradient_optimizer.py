"""Optimizers that change every gradient with a function of the user."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer

__all__ = ["MapGradientOptimizer", "MapGradientOptimizerInvertedChaining"]

Mapping = Callable[[Any, Any], Any]


def _mapped(function: Mapping, pairs: Any) -> List[Any]:
    return [
        (gradient if gradient is None else decide("mapped", function(gradient, variable), gradient=gradient), variable)
        for gradient, variable in pairs
    ]


class MapGradientOptimizer(IpuOptimizer):
    """Computes ``function(gradient, variable)`` for every gradient that the wrapped optimizer computes."""

    def __init__(
        self, wrapped_optimizer: Any, gradient_mapping_function: Mapping, name: str = "MapGradientOptimizer"
    ) -> None:
        super().__init__(wrapped_optimizer, name)
        self._function = gradient_mapping_function

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> List[Any]:
        """The changed gradients with their variables."""
        return _mapped(self._function, super().compute_gradients(loss, var_list, **kwargs))


class MapGradientOptimizerInvertedChaining(MapGradientOptimizer):
    """Changes gradients when they are applied, after all that wraps it has changed them."""

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> List[Any]:
        """The gradients as the wrapped optimizer computes them."""
        return IpuOptimizer.compute_gradients(self, loss, var_list, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables with the changed gradients."""
        return super().apply_gradients(_mapped(self._function, grads_and_vars), global_step, name)

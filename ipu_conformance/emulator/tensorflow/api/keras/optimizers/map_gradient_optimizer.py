"""The Keras optimizer that changes every gradient with a function of the user."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.api.keras.optimizers.ipu_wrapper import IpuOptimizer, Pairs

__all__ = ["MapGradientOptimizer"]


class MapGradientOptimizer(IpuOptimizer):
    """Applies ``function(gradient, variable)`` in place of every gradient."""

    def __init__(
        self, opt: Any, gradient_mapping_function: Callable[[Any, Any], Any], name: str = "MapGradientOptimizer"
    ) -> None:
        super().__init__(opt, name)
        self._function = gradient_mapping_function

    def preprocess_gradients(self, grads_and_vars: Pairs) -> Pairs:
        """What the function makes of them."""
        return [
            (
                gradient
                if gradient is None
                else decide("mapped", self._function(gradient, variable), gradient=gradient),
                variable,
            )
            for gradient, variable in grads_and_vars
        ]

    def get_config(self) -> Dict[str, Any]:
        """What the wrapper can be made from again, the function itself among it."""
        return {**super().get_config(), "gradient_mapping_function": self._function}

"""Keras optimizers that are made with their loss scaling in one."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import ALSOptimizer
from ipu_conformance.emulator.tensorflow.optim.loss_scaling import SCALING
from ipu_conformance.emulator.tensorflow.surface import signature_of


class ParameterUnscalingALSOptimizer(ALSOptimizer):
    """An ALSOptimizer that makes the optimizer which it wraps."""

    OWN: Tuple[str, ...] = ()
    """The parameters of the wrapped optimizer."""

    def get_config(self) -> Dict[str, Any]:
        """What the optimizer can be made from again."""
        config = super().get_config()
        config.pop("inner_optimizer_type")
        own = config.pop("inner_optimizer_config")
        return {**{name: own[name] for name in self.OWN}, **config}

    @classmethod
    def from_config(cls, config: Dict[str, Any], custom_objects: Any = None) -> Any:
        """A new optimizer."""
        return cls(**config)


def _made(name: str, kind: str, parameters: str, doc: str) -> Any:
    """The class of that name around an optimizer of Keras' older generation, whose parameters come first."""
    signature = signature_of(f"self, {parameters}, {SCALING}, name={name!r}")
    own = list(signature_of(parameters).parameters)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 (it becomes a method)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        given = {key: value for key, value in bound.arguments.items() if key != "self"}
        inner = getattr(tf.keras.optimizers.legacy, kind)(**{key: given.pop(key) for key in own})
        ALSOptimizer.__init__(self, inner, **given)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return type(name, (ParameterUnscalingALSOptimizer,), {"__init__": __init__, "OWN": tuple(own), "__doc__": doc})


ALSOptimizerAdam = _made(
    "ALSOptimizerAdam",
    "Adam",
    "learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-07",
    "Adam with automatic loss scaling.",
)
ALSOptimizerSGD = _made(
    "ALSOptimizerSGD", "SGD", "learning_rate=0.01, momentum=0.0", "Gradient descent with automatic loss scaling."
)
ALSOptimizerRMSProp = _made(
    "ALSOptimizerRMSProp",
    "RMSprop",
    "learning_rate=0.001, rho=0.9, momentum=0.0, epsilon=1e-07, centered=False",
    "RMSprop with automatic loss scaling.",
)

"""The Keras in use: Keras 2 of TensorFlow itself, or tf_keras beside a later TensorFlow."""

from __future__ import annotations

import functools
import importlib
import inspect
from types import ModuleType
from typing import Any, Dict, Tuple

from ipu_conformance.errors import ConformanceError


class KerasError(ConformanceError, ImportError):
    """The Keras that TensorFlow uses has no IPU version."""


@functools.lru_cache(maxsize=None)
def root() -> str:
    """The package that holds Keras' own modules: that of the model class which TensorFlow hands out."""
    import tensorflow as tf

    package, engine, _ = str(tf.keras.Model.__module__).partition(".engine.")
    if not engine:
        raise KerasError(
            f"tf.keras is {tf.keras.Model.__module__.split('.')[0]} {getattr(tf.keras, '__version__', '3')}, which has "
            "no IPU extensions: install tf-keras and set TF_USE_LEGACY_KERAS=1"
        )
    return package


def module(name: str) -> ModuleType:
    """A module of that Keras, for instance ``engine.training``."""
    return importlib.import_module(f"{root()}.{name}")


def model_class() -> Any:
    """``tf.keras.Model``."""
    return module("engine.training").Model


def functional_class() -> Any:
    """The class of models that are made of inputs and outputs."""
    return module("engine.functional").Functional


def sequential_class() -> Any:
    """``tf.keras.Sequential``."""
    return module("engine.sequential").Sequential


def unique_name(name: str) -> str:
    """The name with the next number of Keras' count of it."""
    return str(module("backend").unique_object_name(name, zero_based=True))


def optimizer_classes() -> Any:
    """The base classes of both generations of optimizers."""
    return (
        module("optimizers.optimizer")._BaseOptimizer,
        module("optimizers.legacy.optimizer_v2").OptimizerV2,
    )


def call_context() -> Any:
    """What layers ask for the phase of training when nobody tells them."""
    return module("engine.base_layer_utils").call_context()


def called_by(model: Any, inputs: Any, training: bool) -> Any:
    """A scope in which layers are called as if by a model, which tells them the phase."""
    context = call_context()
    given: Any = {"training": training}
    if "call_context_args" in inspect.signature(context.enter).parameters:  # tf_keras beside later TensorFlows
        given = {"call_context_args": given}
    return context.enter(layer=model, inputs=inputs, build_graph=True, **given)


class Configured:
    """A layer or an optimizer that can be made again from the attributes that ``CONFIG`` names."""

    CONFIG: Tuple[str, ...] = ()

    def get_config(self) -> Dict[str, Any]:
        """What it can be made from again."""
        return {**super().get_config(), **{name: getattr(self, name) for name in self.CONFIG}}  # type: ignore[misc]

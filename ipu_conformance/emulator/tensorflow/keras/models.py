"""Gives models that are built in a strategy's scope the IPU's methods, by a subclass of their own class.

The subclass carries the name and the module of the class, so that saving, printing and type tests see what they know.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Type

from ipu_conformance.emulator.tensorflow.keras import feeding, library, saving, stages
from ipu_conformance.emulator.tensorflow.keras.extension import (
    FunctionalExtension,
    ModelExtension,
    SequentialExtension,
)
from ipu_conformance.emulator.tensorflow.run import gradient_capture, strategy

DONE = "_ipu_conformance_changed"
_EXTENDED: Dict[Type[Any], Type[Any]] = {}


def install() -> None:
    """Change the Keras in use, once: models know the scope they are built in, calls know their stage."""
    model = library.model_class()
    if getattr(model.__new__, DONE, False):
        return
    own = model.__new__

    @functools.wraps(own)
    def new(cls: Type[Any], *arguments: Any, **settings: Any) -> Any:
        made = own(cls, *arguments, **settings)
        if in_extending_scope():
            extend(made)
        return made

    setattr(new, DONE, True)
    model.__new__ = new
    stages.mark_nodes()
    saving.install()
    adapters: Any = library.module("engine.data_adapter")
    adapters.get_data_handler = functools.partial(feeding.handle, adapters.get_data_handler)
    scaling: Any = library.module("mixed_precision.loss_scale_optimizer")
    scaling.strategy_supports_loss_scaling = _or_ipus(scaling.strategy_supports_loss_scaling)
    for optimizer in library.optimizer_classes():
        optimizer.minimize = gradient_capture.minimizing(optimizer.minimize)
    recurrent: Any = library.module("layers.rnn.gru_lstm_utils")
    recurrent.function_register = _for_gpus(recurrent.function_register)


def _or_ipus(own: Callable[[], bool]) -> Callable[[], bool]:
    """Whether the strategy in scope scales losses; stock knows a list of its own strategies."""

    @functools.wraps(own)
    def supported() -> bool:
        entered = strategy.current()
        return own() if entered is None else entered.supports_loss_scaling

    return supported


def _for_gpus(own: Callable[..., Any]) -> Callable[..., Any]:
    """What puts a second version of a recurrent layer and of its gradient into a graph, for a GPU to run instead."""

    @functools.wraps(own)
    def register(function: Any, *arguments: Any, **settings: Any) -> Any:
        import tensorflow as tf

        return own(function, *arguments, **settings) if tf.config.list_physical_devices("GPU") else None

    return register


def in_extending_scope() -> bool:
    """Whether a model that is made here and now gets the IPU's methods."""
    entered = strategy.current()
    return entered is not None and bool(entered.enable_keras_extensions)


def extend(model: Any) -> None:
    """Swap the class of one model."""
    own = type(model)
    if not isinstance(model, ModelExtension):
        model.__class__ = extended(own)


def extended(own: Type[Any]) -> Type[Any]:
    """The subclass of a class of models that has the IPU's methods."""
    if own not in _EXTENDED:
        names = {"__module__": own.__module__, "__doc__": own.__doc__, "__qualname__": own.__qualname__}
        _EXTENDED[own] = type(own.__name__, (_extension(own), own), names)
        _register(own, _EXTENDED[own])
    return _EXTENDED[own]


def _extension(own: Type[Any]) -> Type[ModelExtension]:
    """A chain of layers is also a model of inputs and outputs to Keras, and has methods of its own here."""
    if issubclass(own, library.sequential_class()):
        return SequentialExtension
    return FunctionalExtension if issubclass(own, library.functional_class()) else ModelExtension


def _register(own: Type[Any], made: Type[Any]) -> None:
    """A class that is registered for saving stays registered under its name."""
    registration = library.module("saving.object_registration")
    if own in registration._GLOBAL_CUSTOM_NAMES:
        registration._GLOBAL_CUSTOM_NAMES[made] = registration._GLOBAL_CUSTOM_NAMES[own]

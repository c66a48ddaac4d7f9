"""Synthetic data: what a program computes with when TF_POPLAR_FLAGS keeps data from passing between host and device."""

from __future__ import annotations

import weakref
from typing import Any, Callable, MutableMapping

from ipu_conformance.emulator.tensorflow.config import environment
from ipu_conformance.emulator.tensorflow.config.environment import EnvironmentVariableError

RANDOM = "random"


def initializer() -> Callable[[Any], Any]:
    """A function that makes a tensor for a spec: zeros, a number or random, as ``--synthetic_data_initializer`` says.

    Integers and truth values are never random: as indices or labels they could lie outside of what a model allows.
    """
    import tensorflow as tf

    text = environment.flags().synthetic_data_initializer
    if text == RANDOM:
        return lambda spec: (
            tf.random.normal(spec.shape, dtype=spec.dtype)
            if spec.dtype.is_floating
            else tf.zeros(spec.shape, dtype=spec.dtype)
        )
    try:
        number = float(text) if text else 0.0
    except ValueError:
        raise EnvironmentVariableError(
            f"{environment.FLAGS_VARIABLE} sets --synthetic_data_initializer to {text!r}; use a number or {RANDOM}."
        ) from None
    return lambda spec: tf.cast(tf.fill(spec.shape, number), spec.dtype)


def element(spec: Any) -> Any:
    """A synthetic element of a data set of that spec."""
    import tensorflow as tf

    return tf.nest.map_structure(initializer(), spec)


class SyntheticIterator:
    """Stands for an iterator whose data never reach the device: every element is synthetic, and none is taken."""

    def __init__(self, element_spec: Any) -> None:
        self.element_spec = element_spec

    def get_next(self, name: Any = None) -> Any:
        """A synthetic element."""
        return element(self.element_spec)

    __next__ = get_next

    def __iter__(self) -> SyntheticIterator:
        return self


_KNOWN: MutableMapping[Any, SyntheticIterator] = weakref.WeakKeyDictionary()


def instead_of(iterator: Any) -> Any:
    """The iterator itself, or one that stands for it if data are synthetic; always the same one."""
    if not environment.flags().synthetic("infeed"):
        return iterator
    if iterator not in _KNOWN:
        _KNOWN[iterator] = SyntheticIterator(iterator.element_spec)
    return _KNOWN[iterator]

"""Variables with a value for each replica.

A variable that is made in a strategy's scope becomes one whose handle depends on the replica that asks. The handle of
replica 0 is the variable's own: the host reads, saves and restores it, and what the host writes goes to all replicas.
The others are made when they are first asked for, as copies of replica 0.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Dict, Iterable, Iterator, List, MutableMapping, Optional, Type

from ipu_conformance.emulator.tensorflow.run import replicas


class Replicated:
    """What a replicated variable adds to the class it was made of."""

    _others: Dict[int, Any]
    """The variables that hold the values of the replicas from 1 on."""

    @property
    def handle(self) -> Any:
        """The handle of the value that belongs to the replica which is being built."""
        number = replicas.holding()
        return self._handle if number == 0 else self._other(number).handle  # type: ignore[attr-defined]

    def _other(self, number: int) -> Any:
        others = self.__dict__.setdefault("_others", {})
        if number not in others:
            others[number] = _copy(self)
        return others[number]

    def assign(self, value: Any, *arguments: Any, **settings: Any) -> Any:
        """Write the value of this replica, or of all of them when the host writes."""
        self._on_others("assign", value, *arguments, **settings)
        return super().assign(value, *arguments, **settings)  # type: ignore[misc]

    def assign_add(self, delta: Any, *arguments: Any, **settings: Any) -> Any:
        """Add to the value of this replica, or to all of them when the host adds."""
        self._on_others("assign_add", delta, *arguments, **settings)
        return super().assign_add(delta, *arguments, **settings)  # type: ignore[misc]

    def assign_sub(self, delta: Any, *arguments: Any, **settings: Any) -> Any:
        """Subtract from the value of this replica, or from all of them when the host subtracts."""
        self._on_others("assign_sub", delta, *arguments, **settings)
        return super().assign_sub(delta, *arguments, **settings)  # type: ignore[misc]

    def _restore_from_tensors(self, tensors: Any) -> Any:
        for other in self._values_of_others():
            other._restore_from_tensors(tensors)
        return super()._restore_from_tensors(tensors)  # type: ignore[misc]

    def _on_others(self, method: str, *arguments: Any, name: Optional[str] = None, **settings: Any) -> None:
        """The ``name`` of an op in a graph can be had once, and is that of replica 0."""
        for other in self._values_of_others():
            getattr(other, method)(*arguments, **settings)

    def _values_of_others(self) -> List[Any]:
        """Those that are written when the host writes; a function that is saved knows one value."""
        from tensorflow.python.saved_model import save_context

        alone = replicas.inside() or save_context.in_save_context()
        return [] if alone else list(self.__dict__.get("_others", {}).values())


_CLASSES: Dict[Type[Any], Type[Any]] = {}
_BY_HANDLE: MutableMapping[int, Any] = weakref.WeakValueDictionary()
"""The variables by the identity of their handle, which lives as long as they do."""


def replicated(variable: Any) -> Any:
    """The same variable, now with a value for each replica; anything but a resource variable stays as it is."""
    held = holder(variable)
    own = type(held)
    if isinstance(held, Replicated) or not hasattr(held, "_handle"):
        return variable
    if own not in _CLASSES:
        _CLASSES[own] = type(own.__name__, (Replicated, own), {"__module__": own.__module__, "__doc__": own.__doc__})
    held.__class__ = _CLASSES[own]
    _BY_HANDLE[id(held._handle)] = held
    return variable


def holder(variable: Any) -> Any:
    """The variable that holds the value: the one inside of one that Keras casts under a policy of mixed precision."""
    return variable._variable if hasattr(variable, "_cast_dtype") else variable


def handle_on(replica: int, handle: Any) -> Any:
    """The handle of another replica's value, given that of replica 0; what belongs to no replica is the same on all."""
    variable = _BY_HANDLE.get(id(handle))
    return handle if variable is None or variable._handle is not handle else of_replica(variable, replica).handle


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """Variables that are made inside have a value for each replica."""
    import tensorflow as tf

    with tf.variable_creator_scope(lambda create, **settings: replicated(create(**settings))):
        yield


def of_replica(variable: Any, number: int) -> Any:
    """The plain variable, to be read by the host, that holds the value of one replica."""
    return variable if number == 0 else holder(variable)._other(number)


def broadcast(variables: Iterable[Any]) -> None:
    """Every replica gets the value of replica 0, as when a program is loaded."""
    for variable in variables:
        held = holder(variable)
        for other in held.__dict__.get("_others", {}).values():
            other.assign(held)


def _copy(variable: Any) -> Any:
    """A plain variable with the value that the host sees, made outside of every graph and of the strategy."""
    import tensorflow as tf
    from tensorflow.python.ops import resource_variable_ops

    with tf.init_scope():
        # In a graph of TensorFlow 1 the value is not known yet: both are initialised by one and the same tensor.
        value = _host_value(variable) if tf.executing_eagerly() else variable.initial_value
        name = variable.name.split(":")[0] + "/replica"
        return resource_variable_ops.ResourceVariable(value, trainable=False, dtype=variable.dtype, name=name)


def _host_value(variable: Any) -> Any:
    from tensorflow.python.ops import gen_resource_variable_ops

    return gen_resource_variable_ops.read_variable_op(variable._handle, variable.dtype)

"""Scopes that decide where and how operations run on the IPU."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional, Sequence, Union

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import ops
from tensorflow.python.ops import variable_scope

from ipu_conformance.emulator.tensorflow.compile import sharding, shards

ATTRIBUTES = "_XlaFrontendAttributes"
OUTSIDE = "_xla_outside_compilation"
PARTIALS = ("half", "float", "default")


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """What is made inside runs on that device, such as ``/device:IPU:0``; variables are resources."""
    with contextlib.ExitStack() as stack:
        if not tf.executing_eagerly():
            stack.enter_context(
                variable_scope.variable_scope(
                    variable_scope.get_variable_scope(), use_resource=True, auxiliary_name_scope=False
                )
            )
        stack.enter_context(ops.device(device))
        if not tf.executing_eagerly():
            stack.enter_context(ops.device(_held_by_host))
        stack.enter_context(ipu_jit_scope(0))
        yield


def _held_by_host(op: Any) -> str:
    """The device of an operation before that of the scope: where a device is emulated, the host holds its variables.

    Asked to hold them elsewhere, TensorFlow warns about each of them whenever a session meets a new graph.
    """
    is_handle = op.type in ("VarHandleOp", "Placeholder") and op.outputs[0].dtype == tf.resource
    return op.device or ("/device:CPU:0" if is_handle else "")


@contextlib.contextmanager
def ipu_jit_scope(ipu_scope: int) -> Iterator[None]:
    """What is made inside is compiled together; the emulator compiles nothing."""
    yield


@contextlib.contextmanager
def ipu_shard(index: Union[int, Sequence[int]]) -> Iterator[None]:
    """What is made inside runs on that IPU of each replica, or on several."""
    numbers = [index] if isinstance(index, int) else list(index)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"`index` is {index!r}; use the number of an IPU, counted from 0, or a list of them.")
        shards.note(number)
    with _attributes({sharding.ATTRIBUTE: sharding.encoded(numbers)}):
        yield


@contextlib.contextmanager
def outside_compilation_scope(name: str = "outside") -> Iterator[None]:
    """What is made inside runs on the host, in the middle of a program of the device."""
    if tf.executing_eagerly() or not ops.get_default_graph().building_function:
        raise ValueError(
            "outside_compilation_scope was used outside of a compiled program: use it in a function of "
            "ipu_compiler.compile or IPUStrategy.run."
        )
    with _attributes({OUTSIDE: attr_value_pb2.AttrValue(s=name.encode())}):
        yield


@contextlib.contextmanager
def frontend_attribute(attribute_name: str, attribute_value: str, restore_to: Optional[str] = None) -> Iterator[None]:
    """Operations made inside carry an attribute for the device's compiler."""
    graph = ops.get_default_graph()
    known = dict(_decoded(graph._attr_scope_map.get(ATTRIBUTES)))
    known[attribute_name] = attribute_value
    with _attributes({ATTRIBUTES: _encoded(known)}):
        yield


def stochastic_rounding(override: bool) -> Any:
    """Whether operations made inside round at random, whatever the configuration."""
    return frontend_attribute("STOCHASTIC_ROUNDING", "THREESTATE_ON" if override else "THREESTATE_OFF")


def partials_type(override_type: Any) -> Any:
    """The type in which matrix products and convolutions made inside hold partial sums."""
    names = {tf.float16: "half", tf.float32: "float", "half": "half", "float": "float", "default": "default"}
    if override_type not in names:
        raise ValueError(f"`override_type` is {override_type!r}; use tf.float16, tf.float32 or one of {PARTIALS}.")
    return frontend_attribute("PARTIALS_TYPE", names[override_type])


def partials() -> str:
    """The type of partial sums that the scope around what is made now asks for: half, float or default."""
    asked = dict(_decoded(ops.get_default_graph()._attr_scope_map.get(ATTRIBUTES)))
    return str(asked.get("PARTIALS_TYPE", "default"))


@contextlib.contextmanager
def _attributes(attributes: Any) -> Iterator[None]:
    if tf.executing_eagerly():
        yield
        return
    with ops.get_default_graph()._attr_scope(attributes):
        yield


def _encoded(attributes: Any) -> Any:
    text = ";".join(f"{name}={value}" for name, value in sorted(attributes.items()))
    return attr_value_pb2.AttrValue(s=text.encode())


def _decoded(attribute: Any) -> Iterator[Any]:
    if attribute is not None and attribute.s:
        for part in attribute.s.decode().split(";"):
            name, _, value = part.partition("=")
            yield name, value

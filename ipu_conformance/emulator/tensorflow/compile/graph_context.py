"""What a replica takes along into loops and pipelines that all replicas share: its scopes, and its variables.

One thread builds those for all replicas, and knows nothing of the scopes that a replica has entered. The same function
is built several times, by replicas and for the micro-batches of a pipeline: its variables are made the first time.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import variable_scope

from ipu_conformance.emulator.tensorflow.compile import first_values
from ipu_conformance.emulator.tensorflow.run import replicas, variables


class GraphContext:
    """The scopes for variables that a replica has entered."""

    def __init__(self) -> None:
        self._scope = variable_scope.get_variable_scope()
        self._names = used_names()
        self._names_after = self._names
        self._creators = list(ops.get_default_graph()._variable_creator_stack)
        with tf.init_scope():
            self._outer_creators = list(ops.get_default_graph()._variable_creator_stack)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside, variables are made as they were where this was made."""
        graph = ops.get_default_graph()
        with tf.init_scope():
            outer = ops.get_default_graph()
        scope = variable_scope.variable_scope(self._scope, auxiliary_name_scope=False)
        with _creators(outer, self._outer_creators), _creators(graph, self._creators), scope:
            use_names(self._names)
            yield
            self._names_after = used_names()

    def advance(self) -> None:
        """Names of layers count on from what was built inside, as after any other code."""
        use_names(self._names_after)


def used_names() -> Dict[str, int]:
    """How often this thread has opened each variable scope: layers without a name are numbered by it."""
    return dict(variable_scope.get_variable_scope_store().variable_scopes_count)


def use_names(names: Dict[str, int]) -> None:
    """Number the layers that come as if these variable scopes had been opened."""
    variable_scope.get_variable_scope_store().variable_scopes_count = dict(names)


@contextlib.contextmanager
def _creators(graph: Any, stack: List[Any]) -> Iterator[None]:
    before = graph._variable_creator_stack
    graph._variable_creator_stack = list(stack)
    try:
        yield
    finally:
        graph._variable_creator_stack = before


def run(function: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> List[Any]:
    """``function`` of every replica's arguments; one replica alone needs nobody to meet."""
    if len(arguments) == 1:
        return [function(*arguments[0])]
    return replicas.run(function, arguments)


class Replay:
    """Remembers the variables of one function, and where the numbers of its layers begin: after ``follows``, if any."""

    def __init__(self, made: Optional[Callable[[Any], None]] = None, follows: Optional[Replay] = None) -> None:
        self._variables: List[Any] = []
        self._names: Optional[Dict[str, int]] = None
        self._follows = follows
        self.names_after: Optional[Dict[str, int]] = None
        self._on_made = made or (lambda variable: None)

    @contextlib.contextmanager
    def building(self, scope: Any = None) -> Iterator[None]:
        """Build the function once: what it makes is new, or what it made the last time.

        ``scope`` is the variable scope in which the function stands; None means the current one.
        """
        position = 0

        def create(next_creator: Callable[..., Any], **settings: Any) -> Any:
            nonlocal position
            shape, dtype = _wanted(settings)
            stored = {id(variable) for variable in variable_scope._get_default_variable_store()._vars.values()}
            for index in range(position, len(self._variables)):
                known = self._variables[index]
                if id(known) not in stored and _fits(known, shape, dtype):
                    position = index + 1
                    return known
            settings["initial_value"] = first_values.outside(settings.get("initial_value"))
            variable = variables.replicated(next_creator(**settings))
            self._variables.append(variable)
            position = len(self._variables)
            self._on_made(variable)
            return variable

        scope = variable_scope.get_variable_scope() if scope is None else scope
        with _creating(create):
            if tf.executing_eagerly():
                yield
                return
            with variable_scope.variable_scope(
                scope,
                reuse=variable_scope.AUTO_REUSE,
                auxiliary_name_scope=False,
                use_resource=True,
                custom_getter=_of_its_value,
            ):
                first = self._names is None
                if self._names is None:
                    before = None if self._follows is None else self._follows.names_after
                    self._names = used_names() if before is None else before
                use_names(self._names)
                yield
                self.names_after = used_names()
            if first:
                use_names(self.names_after)


def _of_its_value(getter: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """A variable with a first value has the dtype of it; stock looks for one of float32 when it is asked for again."""
    value = settings.get("initializer")
    if value is not None and not callable(value):
        settings["dtype"] = tf.convert_to_tensor(value).dtype.base_dtype
    return getter(*args, **settings)


@contextlib.contextmanager
def _creating(create: Callable[..., Any]) -> Iterator[None]:
    """Variables are made by ``create`` in the current graph and in the one that initial values are lifted to."""
    with tf.init_scope():
        outer = ops.get_default_graph()
    graph = ops.get_default_graph()
    with contextlib.ExitStack() as stack:
        for own in (graph,) if graph is outer else (outer, graph):
            stack.enter_context(own._variable_creator_scope(create))
        yield


def _wanted(settings: Any) -> Any:
    """The shape and dtype that are asked for; None where they are not known before the variable is made."""
    shape, value = settings.get("shape"), settings.get("initial_value")
    if shape is None and value is not None and not callable(value):
        value = tf.convert_to_tensor(value, settings.get("dtype"))
        return value.shape, value.dtype
    dtype = settings.get("dtype")
    return (None if shape is None else tf.TensorShape(shape)), (None if dtype is None else tf.as_dtype(dtype))


def _fits(variable: Any, shape: Any, dtype: Any) -> bool:
    return (shape is None or variable.shape == shape) and (dtype is None or variable.dtype.base_dtype == dtype)

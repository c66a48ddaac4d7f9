"""Spares stock TensorFlow work that it repeats for every operation of a graph; the graphs come out the same.

Programs of a few steps spend more time on building their graph than on running it, and a good part of that is
bookkeeping without effect: to enter a graph that has been entered, to spell out what an error would say, to look for
the variables of an operation that is given none. One part of a session's graph is shorter than stock's: the report of
variables without a value.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Protocol, Tuple


def entered_once(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``Graph.as_default`` that does nothing in the graph which this thread is building already."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    @functools.wraps(own)
    def as_default(self: Any) -> ContextManager[Any]:
        entered = ops._default_graph_stack.stack
        if not entered or entered[-1] is not self or context.executing_eagerly():
            stock: ContextManager[Any] = own(self)
            return stock
        return _Again(self) if hasattr(self, "_scope_exit_callbacks") else contextlib.nullcontext(self)

    return as_default


class _Again:
    """The inside of a function's graph once more: what is to happen when it is left happens when this is."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __enter__(self) -> Any:
        self._before = self._graph._scope_exit_callbacks
        self._graph._scope_exit_callbacks = []
        return self._graph

    def __exit__(self, *error: Any) -> None:
        callbacks = self._graph._scope_exit_callbacks
        try:
            for callback in callbacks:
                callback()
        finally:
            self._graph._scope_exit_callbacks = self._before


def checked_briefly(own: Callable[..., None]) -> Callable[..., None]:
    """The check of an operation's type against those that it allows, which lists them for an error only."""

    @functools.wraps(own)
    def check(dtype: Any, attr_def: Any, param_name: Any) -> None:
        if attr_def.HasField("allowed_values"):
            number = getattr(dtype, "as_datatype_enum", dtype)
            if number not in attr_def.allowed_values.list.type:
                own(dtype, attr_def, param_name)

    return check


def noted(own: Callable[..., None]) -> Callable[..., None]:
    """What the definition of an operation says about types, read once for each definition."""
    notes: Dict[int, Tuple[Any, Dict[str, Any], Dict[str, Any]]] = {}

    @functools.wraps(own)
    def read(op_def: Any, default_type_attr_map: Dict[str, Any], allowed_list_attr_map: Dict[str, Any]) -> None:
        if id(op_def) not in notes:
            defaults: Dict[str, Any] = {}
            allowed: Dict[str, Any] = {}
            own(op_def, defaults, allowed)
            notes[id(op_def)] = op_def, defaults, allowed  # it is kept, so that no other gets its number
        _, defaults, allowed = notes[id(op_def)]
        default_type_attr_map.update(defaults)
        allowed_list_attr_map.update(allowed)

    return read


def without_resources(own: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """The resources that an operation touches; one that is given neither resources nor data sets touches none."""
    from tensorflow.python.framework import dtypes

    kinds = (dtypes.resource.as_datatype_enum, dtypes.variant.as_datatype_enum)

    @functools.wraps(own)
    def resources(op: Any) -> Iterator[Any]:
        if any(tensor.dtype.as_datatype_enum in kinds for tensor in op.inputs):
            return own(op)
        return iter(())

    return resources


def reported_briefly(own: Callable[..., Any]) -> Callable[..., Any]:
    """The names of the variables that have no value, without the many operations of a mask of any rank."""
    from tensorflow.python.framework import constant_op, ops
    from tensorflow.python.ops import array_ops, array_ops_stack, math_ops, state_ops, variables

    @functools.wraps(own)
    def report(var_list: Any = None, name: str = "report_uninitialized_variables") -> Any:
        reported = variables.global_variables() + variables.local_variables() if var_list is None else var_list
        if not reported:
            return own(var_list, name)
        with ops.name_scope(name):
            having = [state_ops.is_variable_initialized(variable) for variable in reported]
            with ops.device("/cpu:0"):
                lacking = array_ops.where_v2(math_ops.logical_not(array_ops_stack.stack(having)))
                names = constant_op.constant([variable.op.name for variable in reported])
                return array_ops.gather_v2(names, array_ops.reshape(lacking, [-1]))

    return report


def written_quickly(own: Any) -> Any:
    """What writes a graph as text, in the words of protobuf's own library instead of those that Python puts together.

    The text is read as the same graph: it has the shortest digits that make up a float32.
    """
    return types.SimpleNamespace(MessageToString=lambda graph, **settings: str(graph), __wrapped__=own)


def in_known_files(own: Callable[[Any], Tuple[Any, str]]) -> Callable[[Any], Tuple[Any, str]]:
    """The syntax of a lambda that is converted, looked for in the syntax of its file, which is read once."""
    from tensorflow.python.autograph.pyct import parser

    stock = parser.parse
    read = functools.lru_cache(maxsize=None)(stock)

    @functools.wraps(own)
    def parse(function: Any) -> Tuple[Any, str]:
        parser.parse = read
        try:
            return own(function)
        finally:
            parser.parse = stock

    return parse


def on_a_copy(own: Callable[..., Tuple[Any, str]]) -> Callable[..., Tuple[Any, str]]:
    """The syntax of a lambda without what stands around it, with lines that count from its own; the file's stays."""

    @functools.wraps(own)
    def cut_out(node: Any, *arguments: Any) -> Tuple[Any, str]:
        return own(copy.deepcopy(node), *arguments)

    return cut_out


class _Quick(type(Protocol)):  # type: ignore[misc]
    """The class of a protocol whose members are known: Python collects them for every value that it is asked about."""

    def __instancecheck__(cls, instance: Any) -> bool:
        members = MEMBERS.get((cls.__module__, cls.__name__))
        if members is None:  # a class that has the protocol for a base
            return bool(super().__instancecheck__(instance))
        return all(getattr(instance, member, None) is not None for member in members)


def check_quickly(protocol: Any) -> None:
    """Have values checked against a protocol of ``MEMBERS`` by looking for its members alone."""
    protocol.__class__ = _Quick


MEMBERS: Dict[Tuple[str, str], Tuple[str, ...]] = {
    ("tensorflow.python.types.core", "TensorProtocol"): ("__tf_tensor__",),
    ("tensorflow.python.types.trace", "SupportsTracingProtocol"): ("__tf_tracing_type__",),
    ("tensorflow.python.util.custom_nest_protocol", "CustomNestProtocol"): ("__tf_flatten__", "__tf_unflatten__"),
}
"""The methods of the protocols that values are checked against while a graph is built, by module and name."""

FUNCTIONS: List[Tuple[str, str, Callable[..., Any]]] = [
    ("tensorflow.python.autograph.pyct.parser", "_parse_lambda", in_known_files),
    ("tensorflow.python.autograph.pyct.parser", "_without_context", on_a_copy),
    ("tensorflow.python.framework.ops", "Graph.as_default", entered_once),
    ("tensorflow.python.framework.func_graph", "FuncGraph.as_default", entered_once),
    ("tensorflow.python.framework.op_def_library", "_SatisfiesTypeConstraint", checked_briefly),
    ("tensorflow.python.framework.op_def_library", "_ExtractDefaultTypesAndAllowedTypes", noted),
    ("tensorflow.python.framework.auto_control_deps", "_get_resource_inputs", without_resources),
    ("tensorflow.python.framework.graph_io", "text_format", written_quickly),
    ("tensorflow.python.ops.variables", "report_uninitialized_variables", reported_briefly),
]
"""The module, the name and what takes its place; a name that a TensorFlow does not have is left out."""

"""A function that a strategy runs on several replicas: one graph that holds them all."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, MutableMapping, Set, Tuple

from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import func_graph

from ipu_conformance.emulator.core.plan import plan
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.tensorflow.compile import shards
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.reports import folders
from ipu_conformance.emulator.tensorflow.reports import graph as report_graph
from ipu_conformance.emulator.tensorflow.run import replica_calls, replicas, synthetic
from ipu_conformance.ir.graph import Graph

Enter = Callable[..., Any]
"""``enter(function, *args, **kwargs)`` calls a function in the replica context of its strategy."""

_COMPILED: MutableMapping[Any, Dict[int, Any]] = weakref.WeakKeyDictionary()
_PLACED: MutableMapping[Any, Set[int]] = weakref.WeakKeyDictionary()
_REPORTED: MutableMapping[Any, int] = weakref.WeakKeyDictionary()
"""How many graphs of a function have a report."""


@system.on_reset
def _forget() -> None:
    _COMPILED.clear()
    _PLACED.clear()
    _REPORTED.clear()


def run(enter: Enter, fn: Callable[..., Any], ipus: int, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """What the first replica returns; all that the device's IPUs make run ``fn`` with the same arguments."""
    args = tuple(synthetic.instead_of(value) if _is_iterator(value) else value for value in args)
    kwargs = {name: synthetic.instead_of(value) if _is_iterator(value) else value for name, value in kwargs.items()}
    placed = _placement(enter, fn, args, kwargs) if ipus > 1 else {0}
    count = shards.replicas(ipus, placed)
    if not context.executing_eagerly():
        return enter(fn, *args, **kwargs) if count == 1 else _unrolled(enter, fn, count, args, kwargs)[0]
    compiled = fn if count == 1 else _compiled(enter, fn, count)
    result = enter(fn, *args, **kwargs) if count == 1 else compiled(*args, **kwargs)
    if folders.wanted():
        _report(compiled, fn, Topology((0,), count, system.chip(), ipus // count), args, kwargs)
    return result


def _placement(enter: Enter, fn: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Set[int]:
    """The IPUs of a replica that a function names: it is built once to learn them."""
    if fn in _PLACED:
        return _PLACED[fn]
    with shards.noted() as found, func_graph.FuncGraph("placement").as_default():
        enter(replica_calls.inlined(fn) if hasattr(fn, "python_function") else fn, *args, **kwargs)
    _PLACED[fn] = found or {0}
    return _PLACED[fn]


def _compiled(enter: Enter, fn: Callable[..., Any], count: int) -> Any:
    by_count = _COMPILED.setdefault(fn, {})
    if count not in by_count:
        # The function is referred to weakly: what is compiled lives as long as the function itself.
        kept = weakref.ref(fn)
        by_count[count] = polymorphic_function.function(
            lambda *own, **named: _unrolled(enter, kept(), count, own, named)[0], autograph=False
        )
    return by_count[count]


def _report(compiled: Any, fn: Any, topology: Topology, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    """Write a report if calling the function has compiled a program that has none."""
    graphs = compiled.experimental_get_tracing_count() if hasattr(compiled, "experimental_get_tracing_count") else 1
    if graphs <= _REPORTED.get(compiled, 0):
        return
    _REPORTED[compiled] = graphs
    name = getattr(fn, "__name__", type(fn).__name__)

    def graph() -> Graph:
        concrete = fn.get_concrete_function(*args, **kwargs) if hasattr(fn, "get_concrete_function") else fn
        return report_graph.read(concrete.graph, name)

    folders.write(folders.Program(name, plan(topology, "sequential", 1, training=False), graph))


def _unrolled(enter: Enter, fn: Any, count: int, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[Any]:
    """What every replica returns, built one after the other."""
    shared = [_SharedIterator(value) if _is_iterator(value) else value for value in args]
    named = {key: _SharedIterator(value) if _is_iterator(value) else value for key, value in kwargs.items()}
    inner = replica_calls.inlined(fn) if hasattr(fn, "python_function") else fn
    results: List[Any] = enter(lambda: replicas.run(lambda *own: inner(*own, **named), [shared] * count))
    return results


def _is_iterator(value: Any) -> bool:
    return isinstance(value, iterator_ops.IteratorBase)


class _SharedIterator:
    """An iterator that replicas take from in turns: the n-th element that replica r of R takes is number n·R + r."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def get_next(self, name: Any = None) -> Any:
        """The next element of the replica that asks."""
        return replicas.exchange(None, lambda everyone: self._elements(len(everyone)), "the next element")

    def _elements(self, number: int) -> List[Any]:
        """The next elements, one for each replica."""
        return [self._own.get_next() for _ in range(number)]

    __next__ = get_next

    def __iter__(self) -> _SharedIterator:
        return self

    @property
    def element_spec(self) -> Any:
        """The type of an element."""
        return self._own.element_spec

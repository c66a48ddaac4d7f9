"""The program that the device has run last: of a Keras model one run of its plan, of an estimator its loop.

It is the function that was built for the run, not a description of it. What the data set gives are its inputs, in the
order of its elements; what it returns are a model's logs by name or its predictions, an estimator's loss, and what is
left in an outfeed. The value that a variable has on replica 1 is called ``name@1``.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, Optional

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.tensorflow.keras import execution
from ipu_conformance.emulator.tensorflow.run.variables import holder
from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.readers.tensorflow.graph import Variable, graph_of
from ipu_conformance.ir.readers.tensorflow.messages import dtype_of, parse


def of(ran: Any) -> Optional[Callable[[], Graph]]:
    """What gives the last program of a model or an estimator, once it is asked; None before there is one.

    Only the bytes of the program are kept: a graph in memory takes many times as much.
    """
    if hasattr(ran, "last_program"):
        built = ran.last_program
        # What such a program returns first is the mark that it has run.
        return None if built is None else _reading(built.graph, built.variables(), built.graph.outputs[1:])
    function = ran._ipu.last_function
    if function is None:
        return None
    graph = function.graph
    return _reading(graph, [*execution.all_variables(ran), *graph.variables], graph.outputs)


def _reading(graph: Any, variables_of: Iterable[Any], outputs: Iterable[Any]) -> Callable[[], Graph]:
    held = _variables(variables_of)
    known = {inner.op.name: held.get(id(outer)) or _resource(outer) for outer, inner in graph.captures}
    return functools.lru_cache(maxsize=1)(
        functools.partial(
            _read,
            graph.as_graph_def().SerializeToString(),
            tuple(tensor.name for tensor in outputs),
            tuple(op.name for op in graph.control_outputs),
            {name: variable for name, variable in known.items() if variable is not None},
        )
    )


def _resource(handle: Any) -> Optional[Variable]:
    """A variable that belongs to a program, as an accumulator does; None for a handle of something else."""
    if getattr(handle, "op", None) is None or handle.op.type != "VarHandleOp":
        return None
    shape = tuple(dimension.size for dimension in handle.op.get_attr("shape").dim)
    name = handle.op.get_attr("shared_name").decode()
    return Variable(name, dtype_of(handle.op.get_attr("dtype").as_datatype_enum), shape)


def _read(definition: bytes, outputs: Any, effects: Any, variables: Dict[str, Variable]) -> Graph:
    document = replace(parse(definition), outputs=outputs)
    return faults.at("ir.graph", graph_of(document, variables=variables, effects=effects, name="run"))


def _variables(variables: Iterable[Any]) -> Dict[int, Variable]:
    """The value of every variable on each replica, by the identity of its handle; no two have one name."""
    found: Dict[int, Variable] = {}
    taken: Dict[str, int] = {}
    for variable in variables:
        own = getattr(variable, "_handle", None)
        if own is None or id(own) in found:
            continue
        name = variable.name.split(":")[0]
        taken[name] = taken.get(name, 0) + 1
        name = name if taken[name] == 1 else f"{name}_{taken[name] - 1}"
        kind = dtype_of(variable.dtype.base_dtype.as_datatype_enum), tuple(variable.shape.as_list())
        found[id(own)] = Variable(name, *kind)
        for replica, other in holder(variable).__dict__.get("_others", {}).items():
            found[id(other.handle)] = Variable(f"{name}@{replica}", *kind)
    return found

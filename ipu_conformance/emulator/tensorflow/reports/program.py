"""The program of a Keras model as the device runs it: one run of its plan, slot by slot and on every replica.

It is the function that was built for the run, not a description of it. What the data set gives are its inputs, in the
order of its elements; what it returns are the model's logs by name. The value that a variable has on replica 1 is
called ``name@1``.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, Optional

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.tensorflow.keras import execution
from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.readers.tensorflow.graph import Variable, graph_of
from ipu_conformance.ir.readers.tensorflow.messages import dtype_of, parse


def of_training(model: Any) -> Optional[Callable[[], Graph]]:
    """What gives the program of a model's training, once it is asked; None for a model that was not trained yet.

    Only the bytes of the program are kept: a graph in memory takes many times as much.
    """
    drawn = getattr(model, "train_tf_function", None)
    built = getattr(drawn, "_concrete_variable_creation_fn", None)
    if built is None:
        return None
    graph = built.graph
    held = _variables([*execution.all_variables(model), *graph.variables])
    variables = {inner.op.name: held[id(outer)] for outer, inner in graph.captures if id(outer) in held}
    return functools.lru_cache(maxsize=1)(
        functools.partial(
            _read,
            graph.as_graph_def().SerializeToString(),
            tuple(tensor.name for tensor in graph.outputs),
            tuple(op.name for op in graph.control_outputs),
            variables,
        )
    )


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
        for replica, other in variable.__dict__.get("_others", {}).items():
            found[id(other.handle)] = Variable(f"{name}@{replica}", *kind)
    return found

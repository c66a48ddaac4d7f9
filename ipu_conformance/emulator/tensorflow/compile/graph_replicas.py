"""Programs on several replicas in a graph of TensorFlow 1.

The host's variable is that of replica 0. The other replicas' values are not variables of the graph: a saver, or a list
of all variables, does not see them. They keep their values from one run of a session to the next, and follow the
host's variable whenever the host has changed it since the last run.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.ops import gen_resource_variable_ops, resource_variable_ops, variable_scope

from ipu_conformance.emulator.tensorflow.compile import graph_context, shards
from ipu_conformance.emulator.tensorflow.compile.graph_context import Replay
from ipu_conformance.emulator.tensorflow.run import training, variables

SHADOW = "_ipu_after_last_run"
CALLS = ("PartitionedCall", "StatefulPartitionedCall")


class GraphProgram:
    """A computation that a session runs on the IPUs of one device."""

    def __init__(self, computation: Callable[..., List[Any]], ipus: int) -> None:
        self._computation = computation
        self.ipus = ipus
        """It may be built again for another number of them: its variables are remembered."""
        self.replicas = 1
        self.graph: Any = None
        """The graph of the program, once it is built."""
        self._replay = Replay(self._made)
        self._variables: Dict[int, Any] = {}

    def __call__(self, inputs: List[Any]) -> List[Any]:
        """Build it into the current graph; the tensors that replica 0 returns."""
        scope = variable_scope.get_variable_scope()
        self.replicas = shards.replicas(self.ipus, self._placed(inputs, scope)) if self.ipus > 1 else 1
        if self.replicas > 1:
            for variable in _of_graph(ops.get_default_graph()):
                self._made(variable)
        for variable in self._variables.values():
            _forget(variable, self.replicas)

        def program(*own: Any) -> List[Any]:
            return self._results(scope, own)[0]

        called = training.built(program, inputs, "ipu_program")
        self.graph = called.graph
        if self.replicas == 1:
            outputs, last = _called(called, inputs)
        else:
            with tf.control_dependencies([self._call(self._follow_host)]):
                outputs, executed = _called(called, inputs)
            with tf.control_dependencies([executed]):
                last = self._call(self._remember)
        with tf.control_dependencies([last]):
            return [tf.identity(output) for output in outputs]

    def _results(self, scope: Any, inputs: Sequence[Any]) -> List[List[Any]]:
        """What every replica returns."""
        return graph_context.run(self._one, [(scope, inputs)] * self.replicas)

    def _one(self, scope: Any, inputs: List[Any]) -> List[Any]:
        with self._replay.building(scope):
            return self._computation(*inputs)

    def _placed(self, inputs: List[Any], scope: Any) -> Any:
        """The IPUs that the computation names: it is built once to learn them, and its variables stay."""
        placement = func_graph.FuncGraph("placement")
        with shards.noted() as found, placement.as_default():
            # A computation may look for its inputs in the graph that it is built in.
            self._one(scope, [placement.capture(value) for value in inputs])
        return found

    def _made(self, variable: Any) -> None:
        """Give a variable its other replicas' values, as soon as there are replicas."""
        self._variables[id(variable)] = variable
        if not hasattr(variables.replicated(variable), "_handle"):
            return
        others = variable.__dict__.setdefault("_others", {})
        for number in range(1, self.replicas):
            if number not in others:
                others[number] = _hidden(variable, f"replica_{number}")
        if SHADOW not in variable.__dict__:
            variable.__dict__[SHADOW] = _hidden(variable, "after_last_run")

    def variables(self) -> List[Any]:
        """Every variable that the program may use, with its other replicas' values."""
        known = {id(variable): variable for variable in (*_of_graph(self.graph.outer_graph), *self._variables.values())}
        return list(known.values())

    def _replicated(self) -> List[Any]:
        for variable in self._variables.values():
            self._made(variable)
        return [variable for variable in self._variables.values() if variable.__dict__.get("_others")]

    @staticmethod
    def _call(body: Callable[[], None]) -> Any:
        def program() -> Any:
            body()
            return tf.constant(True)

        return _called(training.built(program, [], "ipu_program"), [])[1]

    def _follow_host(self) -> None:
        """Every replica gets the host's value of what the host has changed since the last run."""
        for variable in self._replicated():
            _follow_host(variable)

    def _remember(self) -> None:
        for variable in self._replicated():
            _write(variable.__dict__[SHADOW], _read(variable))


def _follow_host(variable: Any) -> None:
    value, shadow = _read(variable), variable.__dict__[SHADOW]
    known = gen_resource_variable_ops.var_is_initialized_op(shadow.handle)
    changed = tf.cond(known, lambda: tf.reduce_any(tf.not_equal(value, _read(shadow))), lambda: True)
    tf.cond(changed, lambda: _all_assigned(variable, value), lambda: True)


def _all_assigned(variable: Any, value: Any) -> Any:
    for other in variable.__dict__["_others"].values():
        _write(other, value)
    return tf.constant(True)


def _forget(variable: Any, replicas: int) -> None:
    """Drop the values of replicas that an earlier build had: no run writes them, and none may read them."""
    others = variable.__dict__.get("_others", {})
    for number in [number for number in others if number >= replicas]:
        del others[number]


def _read(variable: Any) -> Any:
    return gen_resource_variable_ops.read_variable_op(variable._handle, variable.dtype)


def _write(variable: Any, value: Any) -> None:
    gen_resource_variable_ops.assign_variable_op(variable._handle, value)


def _hidden(variable: Any, name: str) -> Any:
    """A variable of the same shape and place that no collection holds: the program itself gives it a value."""
    with tf.init_scope(), tf.device(variable._handle.device):
        return resource_variable_ops.ResourceVariable(
            tf.zeros(variable.shape, variable.dtype),
            trainable=False,
            collections=[],
            name=f"{variable.name.split(':')[0]}/{name}",
        )


def _of_graph(graph: Any) -> List[Any]:
    """Every variable that a graph has so far."""
    keys = (ops.GraphKeys.GLOBAL_VARIABLES, ops.GraphKeys.LOCAL_VARIABLES)
    found = {id(variable): variable for key in keys for variable in graph.get_collection(key)}
    return [variable for variable in found.values() if hasattr(variable, "_handle")]


def _called(function: Any, inputs: List[Any]) -> Tuple[List[Any], Any]:
    """What a call of a function returns, and the operation that is the call.

    Who waits for a tensor waits for that tensor only; who waits for the call waits for all that the function does.
    """
    graph = ops.get_default_graph()
    before = len(graph.get_operations())
    outputs = tf.nest.flatten(function(*inputs))
    calls = [op for op in graph.get_operations()[before:] if op.type in CALLS]
    return outputs, calls[-1]

"""The machine that builds the slots of a pipeline made of functions, and lets an optimizer of the user update."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.training import optimizer as v1_optimizer

from ipu_conformance.emulator.core.plan import Kind, Plan
from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.compile import functions, graph_context
from ipu_conformance.emulator.tensorflow.compile.graph_context import Replay
from ipu_conformance.emulator.tensorflow.optim import wrappers
from ipu_conformance.emulator.tensorflow.run.accumulation import Accumulator, Gradient, Method

Tensors = Dict[str, Any]


class Program(NamedTuple):
    """One replica's pipeline as its program describes it."""

    stages: Sequence[Callable[..., Any]]
    inputs: Sequence[Any]
    optimizer_function: Optional[Callable[..., Any]]
    context: graph_context.GraphContext
    outfeed_loss: bool = False
    outfeed_mask: Optional[Sequence[bool]] = None


class Functions:
    """The stages of every replica, and the variables that each was seen to use."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        self.number = len(programs[0].stages)
        self._replays = [Replay() for _ in range(self.number)]
        self._used: List[Dict[int, Any]] = [{} for _ in range(self.number)]

    def call(self, replica: int, stage: int, boundary: Any) -> Tuple[List[Any], Any]:
        """What a stage returns, and after the last stage what the optimizer function makes of it."""
        program = self.programs[replica]
        with program.context.entered(), self._replays[stage].building():
            function = program.stages[stage]
            if stage == 0:
                returned = functions.fed(function, list(program.inputs), boundary)
            else:
                returned = function(*_unpacked(boundary))
            outputs, operations = functions.split(_flat(returned), f"Computational stage {stage}")
            with tf.control_dependencies(operations):
                outputs = [tf.identity(output) for output in outputs]
            last = stage == self.number - 1
            if not last or program.optimizer_function is None:
                return outputs, None
            return outputs, program.optimizer_function(*outputs)

    def note(self, stage: int, variables: Sequence[Any]) -> None:
        """Remember the trained variables that a stage has used."""
        self._used[stage].update((id(variable), variable) for variable in variables)

    def owned(self, stage: int) -> Sequence[Any]:
        """Those that no earlier stage uses."""
        earlier = {key for used in self._used[:stage] for key in used}
        return [variable for key, variable in self._used[stage].items() if key not in earlier]


class _Stash(NamedTuple):
    tape: Any
    inputs: Tensors
    outputs: Tensors
    variables: Sequence[Any]


class FunctionPipeline:
    """Slots of a pipeline of functions; gradients of replicas meet only where the optimizer lets them."""

    def __init__(self, functions: Functions, plan: Plan, method: Method, dtype: Any = None) -> None:
        replicas = plan.replicas
        self.divisor = float(plan.total_micro_batches) if method is Method.MEAN else 1.0
        self.accumulators = [Accumulator(method) for _ in range(replicas)]
        self.functions = functions
        self.dtype = dtype
        self.results: List[Any] = [None] * replicas
        self._waiting: List[Tensors] = [{} for _ in range(replicas)]
        self._last_to_update = _last_to_update(plan)

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """The tensors for the next stage, or after the last what leaves the device; and the tape for the backward."""
        last = stage == self.functions.number - 1
        if not keep:
            outputs, _ = self.functions.call(replica, stage, boundary)
            return (_leaving(self.functions.programs[replica], outputs, None) if last else _packed(outputs)), None
        inputs = {} if stage == 0 else _differentiable(boundary)
        with tf.GradientTape() as tape:
            tape.watch(list(inputs.values()))
            outputs, result = self.functions.call(replica, stage, boundary)
            if last:
                loss = tf.convert_to_tensor(result.loss)
        variables = tape.watched_variables()
        self.functions.note(stage, variables)
        if not last:
            handed = _packed(outputs)
            return handed, _Stash(tape, inputs, _differentiable(handed), variables)
        self.results[replica] = result
        return (
            _leaving(self.functions.programs[replica], outputs, loss),
            _Stash(tape, inputs, {"loss": loss}, variables),
        )

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """Accumulates the gradients of the stage's variables; returns those of the tensors it was handed."""
        result = self.results[replica]
        variables = [variable for variable in stash.variables if _wanted(variable, result)]
        names = list(stash.outputs)
        found = stash.tape.gradient(
            [stash.outputs[name] for name in names],
            [*stash.inputs.values(), *variables],
            output_gradients=None if gradient is None else [gradient[name] for name in names],
        )
        of_inputs, of_variables = found[: len(stash.inputs)], found[len(stash.inputs) :]
        for value, variable in _computed(result, list(zip(of_variables, variables))):
            value = value if value is None else decide("pipeline-gradient", _cast(value, self.dtype, variable))
            self.accumulators[replica].add(_key(variable), Gradient(result.opt, value, variable))
        return {
            name: tf.zeros_like(tensor) if value is None else tf.convert_to_tensor(value)
            for (name, tensor), value in zip(stash.inputs.items(), of_inputs)
        }

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        """Nothing is recomputed: the host has the memory to keep what backward needs."""
        raise NotImplementedError("plans of TensorFlow have no slots to recompute in")

    def gradients(self, replica: int, stage: int) -> Any:
        """Those of the variables that the stage owns; a variable of several stages belongs to the first."""
        held = self.accumulators[replica].held
        return {key: held[key] for key in map(_key, self.functions.owned(stage)) if key in held}

    def reduce(self, stage: int, gradients: List[Any]) -> List[Any]:
        """A mean over micro-batches is taken here; over replicas, where the optimizer does."""
        return [
            {
                key: value if self.divisor == 1.0 else value / tf.cast(self.divisor, value.dtype)
                for key, value in own.items()
            }
            for own in gradients
        ]

    def update(self, replica: int, stage: int, gradients: Any) -> None:
        """The optimizer takes its one step when all stages have their gradients."""
        waiting = self._waiting[replica]
        waiting.update(gradients)
        if stage != self._last_to_update:
            return
        accumulator, result = self.accumulators[replica], self.results[replica]
        pairs = []
        for key, own in accumulator.of.items():
            value = waiting.get(key)
            pairs.append((value if value is None else tf.cast(value, own.variable.dtype), own.variable))
        with self.functions.programs[replica].context.entered():
            _apply(result, pairs)
        accumulator.clear()
        waiting.clear()

    def weights(self, replica: int, stage: int) -> Tensors:
        """The trained variables, by number, for the stage whose update comes last and changes them all."""
        return {str(number): tf.identity(variable) for number, variable in enumerate(self._changing(stage))}

    def set_weights(self, replica: int, stage: int, weights: Tensors) -> None:
        """Replace them."""
        for number, variable in enumerate(self._changing(stage)):
            variable.assign(weights[str(number)])

    def _changing(self, stage: int) -> List[Any]:
        if stage != self._last_to_update:
            return []
        return [variable for each in range(self.functions.number) for variable in self.functions.owned(each)]


def _last_to_update(plan: Plan) -> int:
    """The stage whose slot to update is the plan's last: stages update in the order of their IPUs, not of their own."""
    stages = [slot.stage for slot in plan.slots() if slot.kind is Kind.UPDATE]
    return stages[-1] if stages else plan.stages - 1


def _apply(result: Any, pairs: List[Any]) -> None:
    arguments, named = list(result.apply_gradients_args), dict(result.apply_gradients_kwargs)
    if isinstance(result.opt, v1_optimizer.Optimizer):
        result.opt.apply_gradients(pairs, *arguments, **named)
    else:
        wrappers.applied(result.opt, pairs, named.get("global_step"))


def _wanted(variable: Any, result: Any) -> bool:
    """Whether the optimizer function leaves the variable to be trained."""
    chosen = result.variables or result.compute_gradients_kwargs.get("var_list")
    if chosen is None and result.compute_gradients_args:
        chosen = result.compute_gradients_args[0]
    return chosen is None or any(variable is one for one in chosen)


def _computed(result: Any, pairs: List[Any]) -> List[Any]:
    """The gradients as the optimizer's own ``compute_gradients`` gives them, which may change them.

    It is asked for the gradients of a number that has these gradients by definition.
    """
    opt, plain = result.opt, v1_optimizer.Optimizer.compute_gradients
    while getattr(type(opt), "compute_gradients", plain) is wrappers.IpuOptimizer.compute_gradients:
        opt = opt._opt
    if not isinstance(opt, v1_optimizer.Optimizer) or type(opt).compute_gradients is plain or not pairs:
        return pairs
    known = [(tf.convert_to_tensor(value), variable) for value, variable in pairs if value is not None]
    missing = [(value, variable) for value, variable in pairs if value is None]
    if not known:
        return pairs

    @tf.custom_gradient
    def with_gradients(*values: Any) -> Any:
        return tf.zeros([], tf.float32), lambda up: [tf.cast(up, value.dtype) * value for value, _ in known]

    stand_in = with_gradients(*(variable.read_value() for _, variable in known))
    return [*opt.compute_gradients(stand_in, var_list=[variable for _, variable in known]), *missing]


def _cast(value: Any, dtype: Any, variable: Any) -> Any:
    value = tf.convert_to_tensor(value)
    if dtype is None:
        return value
    return tf.cast(value, dtype(variable) if callable(dtype) else dtype)


def _leaving(program: Program, outputs: List[Any], loss: Any) -> List[Any]:
    """What a micro-batch leaves in the outfeed."""
    if program.outfeed_loss:
        return [loss]
    if program.outfeed_mask is None:
        return outputs
    return [output for output, hidden in zip(outputs, program.outfeed_mask) if not hidden]


def _flat(returned: Any) -> List[Any]:
    """A dictionary that a stage returns is handed on by its values."""
    return list(returned.values()) if isinstance(returned, dict) else functions.listed(returned)


def _key(variable: Any) -> str:
    return str(id(variable))


def _differentiable(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if tensor.dtype.is_floating or tensor.dtype.is_complex}


def _packed(outputs: List[Any]) -> Tensors:
    return {str(number): output for number, output in enumerate(outputs)}


def _unpacked(boundary: Tensors) -> List[Any]:
    return [boundary[str(number)] for number in range(len(boundary))]

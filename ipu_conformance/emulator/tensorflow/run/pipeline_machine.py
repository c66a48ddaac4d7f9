"""The machine that builds the slots of a pipeline of functions, and updates with an optimizer of the user."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.training import optimizer as v1_optimizer

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.compile import functions, graph_context
from ipu_conformance.emulator.tensorflow.compile.graph_context import Replay
from ipu_conformance.emulator.tensorflow.optim import wrappers
from ipu_conformance.emulator.tensorflow.refusals import pipelining as refusals
from ipu_conformance.emulator.tensorflow.run import gradient_capture, outfeed
from ipu_conformance.emulator.tensorflow.run.accumulation import Accumulator, Gradient, Method, taken
from ipu_conformance.emulator.tensorflow.run.machine import LOSS, StagedMachine, Stash, differentiable

Tensors = Dict[str, Any]


class Program(NamedTuple):
    """One replica's pipeline as its program describes it."""

    stages: Sequence[Callable[..., Any]]
    inputs: Sequence[Any]
    optimizer_function: Optional[Callable[..., Any]]
    context: graph_context.GraphContext
    outfeed_loss: bool = False
    outfeed_mask: Optional[Sequence[bool]] = None
    accumulate_outfeed: bool = False


class Functions:
    """The stages of every replica, and the variables that each was seen to use."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        self.number = len(programs[0].stages)
        self._replays: List[Replay] = []
        for _ in range(self.number):
            self._replays.append(Replay(follows=self._replays[-1] if self._replays else None))
        self._used: List[Dict[int, Any]] = [{} for _ in range(self.number)]
        self._structures: List[Any] = [None] * self.number

    def call(self, replica: int, stage: int, boundary: Any) -> Tuple[Any, Any]:
        """What a stage returns, and after the last stage what the optimizer function makes of it.

        A tensor and a dictionary stay what they are; all else is a list of them.
        """
        program = self.programs[replica]
        stages = outfeed.in_stage(self, stage, len(self.programs))
        with program.context.entered(), self._replays[stage].building(), stages:
            function = program.stages[stage]
            if stage == 0:
                returned = functions.fed(function, list(program.inputs), boundary)
            else:
                returned = function(*self._unpacked(stage - 1, boundary))
            outputs, operations = functions.split_structures(returned, f"Computational stage {stage}")
            with tf.control_dependencies(operations):
                outputs = tf.nest.map_structure(tf.identity, outputs)
            last = stage == self.number - 1
            if not last or program.optimizer_function is None:
                return outputs, None
            return outputs, program.optimizer_function(*functions.listed(outputs))

    def packed(self, stage: int, outputs: Any) -> Tensors:
        """The tensors that a stage hands on, by number; their structure is remembered."""
        self._structures[stage] = tf.nest.map_structure(lambda _: None, outputs)
        return {str(number): output for number, output in enumerate(tf.nest.flatten(outputs))}

    def _unpacked(self, stage: int, boundary: Tensors) -> List[Any]:
        """What the stage after ``stage`` is called with."""
        flat = [boundary[str(number)] for number in range(len(boundary))]
        return functions.listed(tf.nest.pack_sequence_as(self._structures[stage], flat))

    def note(self, stage: int, variables: Sequence[Any]) -> None:
        """Remember the trained variables that a stage has used."""
        self._used[stage].update((id(variable), variable) for variable in variables)

    def owned(self, stage: int) -> Sequence[Any]:
        """Those that no earlier stage uses."""
        earlier = {key for used in self._used[:stage] for key in used}
        return [variable for key, variable in self._used[stage].items() if key not in earlier]


class FunctionPipeline(StagedMachine):
    """Slots of a pipeline of functions; gradients of replicas meet only where the optimizer lets them."""

    def __init__(self, functions: Functions, plan: Plan, method: Method, dtype: Any = None) -> None:
        super().__init__(plan, method, dtype)
        self.functions = functions
        self.results: List[Any] = [None] * plan.replicas
        self._captured = [Accumulator(method, dtype) for _ in range(plan.replicas)]

    def passed(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """The function of the stage, under a tape of its own."""
        last = stage == self.functions.number - 1
        if not keep:
            outputs, _ = self.functions.call(replica, stage, boundary)
            program = self.functions.programs[replica]
            return (_leaving(program, outputs, None) if last else self.functions.packed(stage, outputs)), None
        inputs = {} if stage == 0 else differentiable(boundary)
        with tf.GradientTape() as tape:
            tape.watch(list(inputs.values()))
            outputs, result = self.functions.call(replica, stage, boundary)
            if last:
                loss = tf.convert_to_tensor(result.loss)
                differentiated = _transformed(result.opt, loss)
        variables = tape.watched_variables()
        self.functions.note(stage, variables)
        if not last:
            handed = self.functions.packed(stage, outputs)
            return handed, Stash(tape, inputs, differentiable(handed), variables)
        self.results[replica] = result
        return (
            _leaving(self.functions.programs[replica], outputs, loss),
            Stash(tape, inputs, {LOSS: differentiated}, variables),
        )

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """Accumulates what the stage marks, too, where the optimizer function names what captures it."""
        if not _captures(self.results[replica]):
            return super().backward(replica, stage, micro_batch, stash, gradient)
        with gradient_capture.kept() as captured:
            handed = super().backward(replica, stage, micro_batch, stash, gradient)
        for tag, tensors in captured.items():
            for number, tensor in enumerate(tensors):
                self._captured[replica].add(f"{number} {tag}", Gradient(None, tensor, tensor))
        return handed

    def captured(self, replica: int) -> Dict[str, List[Any]]:
        """The accumulated gradients of what was marked, a list for each tag; each replica has its own."""
        tags: Dict[str, List[Any]] = {}
        for key, value in self._captured[replica].held.items():
            tags.setdefault(key.split(" ", 1)[1], []).append(self.divided(value))
        return tags

    def owned(self, stage: int) -> Sequence[Any]:
        """The variables that the stage was seen to use, and no earlier one was."""
        return self.functions.owned(stage)

    def trained(self, replica: int, variables: Sequence[Any]) -> List[Any]:
        """Those that the optimizer function leaves to be trained."""
        return [variable for variable in variables if _wanted(variable, self.results[replica])]

    def computed(self, replica: int, variables: Sequence[Any], values: Sequence[Any]) -> Iterable[Gradient]:
        """As the optimizer's own ``compute_gradients`` gives them."""
        result = self.results[replica]
        for value, variable in _computed(result, list(zip(values, variables))):
            if value is not None:
                value = tf.convert_to_tensor(value)
            yield Gradient(result.opt, value, variable)

    def reduce(self, stage: int, gradients: List[Any]) -> List[Any]:
        """Each replica's own; they meet where the optimizer lets them."""
        return [{key: self.divided(value) for key, value in own.items()} for own in gradients]

    def step(self, replica: int, gradients: Sequence[Gradient]) -> None:
        """The optimizer of the optimizer function takes its one step."""
        with self.functions.programs[replica].context.entered():
            pairs = [(gradient.value, gradient.variable) for gradient in gradients]
            _apply(self.results[replica], pairs, self.captured(replica))


def _transformed(optimizer: Any, loss: Any) -> Any:
    """The loss whose gradients a wrapper of a Keras optimizer takes: one that scales its loss scales it here."""
    from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import IpuOptimizer

    return optimizer._transform_loss(loss) if isinstance(optimizer, IpuOptimizer) else loss


def _captures(result: Any) -> bool:
    """Whether an optimizer function names a tape or a context that captures gradients."""
    return isinstance(result.tape, gradient_capture.GradientCaptureTape) or result.gradient_capture_context is not None


def _apply(result: Any, pairs: List[Any], captured: Tensors) -> None:
    arguments, named = list(result.apply_gradients_args), dict(result.apply_gradients_kwargs)
    if captured and gradient_capture.takes(result.opt):
        named["captured_grads"] = captured
    if isinstance(result.opt, v1_optimizer.Optimizer):
        result.opt.apply_gradients(taken(result.opt, pairs), *arguments, **named)
    else:
        own = {name: value for name, value in named.items() if name == "captured_grads"}
        wrappers.applied(result.opt, pairs, named.get("global_step"), **own)


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


def _leaving(program: Program, outputs: Any, loss: Any) -> Any:
    """What a micro-batch leaves in the outfeed: in training, and where it is accumulated, a list or the loss alone."""
    if program.outfeed_loss:
        return loss
    if program.optimizer_function is None and not program.accumulate_outfeed:
        return outputs
    listed = functions.listed(outputs)
    if program.outfeed_mask is None:
        return listed
    refusals.MASK_LENGTH(mask=len(program.outfeed_mask), outputs=len(listed))
    return [output for output, hidden in zip(listed, program.outfeed_mask) if not hidden]

"""The machines that build slots of a plan into a graph: a whole step at once, or the stages of a pipeline."""

from __future__ import annotations

import abc
import contextlib
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from ipu_conformance.emulator.core.plan import Kind, Plan
from ipu_conformance.emulator.tensorflow.run.accumulation import Accumulator, Gradient, Method, captured, taken
from ipu_conformance.emulator.tensorflow.run.recomputation import Slot
from ipu_conformance.emulator.tensorflow.run.slot_functions import SlotFunctions


class _Accumulating:
    """What the machines share: gradients of micro-batches accumulate on each replica."""

    def __init__(self, plan: Plan, method: Method, dtype: Any) -> None:
        self.divisor = float(plan.total_micro_batches) if method is Method.MEAN else 1.0
        self.accumulators = [Accumulator(method, dtype) for _ in range(plan.replicas)]
        self.slots = SlotFunctions.of_stages(plan)
        self.update_slots = SlotFunctions.of_updates(plan)

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        """A step in one piece keeps what its backward needs."""
        raise NotImplementedError("a step in one piece has no slots to recompute in")

    def divided(self, value: Any) -> Any:
        """The mean over micro-batches of a sum, where the method asks for one."""
        import tensorflow as tf

        return value if self.divisor == 1.0 else value / tf.constant(self.divisor, value.dtype)

    def reduce(self, stage: int, gradients: List[Any]) -> List[Any]:
        """The sum over replicas."""
        import tensorflow as tf

        total = {
            key: self.divided(first if len(gradients) == 1 else tf.add_n([own[key] for own in gradients]))
            for key, first in gradients[0].items()
        }
        return [total] * len(gradients)

    def apply(self, replica: int, gradients: Sequence[Gradient]) -> None:
        """Each optimizer takes one step with its gradients, as the first replica has built it."""
        known = {str(place): own.value for place, own in enumerate(gradients) if own.value is not None}

        def step(values: Dict[str, Any]) -> None:
            apply([own._replace(value=values.get(str(place))) for place, own in enumerate(gradients)])

        self.update_slots.call((replica,), step, (known,))


def apply(gradients: Sequence[Gradient]) -> None:
    """Each optimizer takes one step with its gradients."""
    by_optimizer: Dict[int, List[Gradient]] = {}
    for gradient in gradients:
        by_optimizer.setdefault(id(gradient.optimizer), []).append(gradient)
    for own in by_optimizer.values():
        optimizer = own[0].optimizer
        pairs = taken(optimizer, ((gradient.value, gradient.variable) for gradient in own))
        type(optimizer).apply_gradients(optimizer, pairs)


def _values(variables: Sequence[Any]) -> Dict[str, Any]:
    import tensorflow as tf

    return {str(number): tf.identity(variable) for number, variable in enumerate(variables)}


def _assign(variables: Sequence[Any], values: Dict[str, Any]) -> None:
    for number, variable in enumerate(variables):
        variable.assign(values[str(number)])


class WholeStep(_Accumulating):
    """One stage that is a model's own step: what it would apply is accumulated, reduced and applied at the end."""

    def __init__(
        self,
        step: Callable[[Any], Any],
        variables: Callable[[], Sequence[Any]],
        plan: Plan,
        method: Method = Method.SUM,
        dtype: Any = None,
    ) -> None:
        super().__init__(plan, method, dtype)
        self.slots = SlotFunctions.of_steps(plan)
        self.step = step
        self.variables = variables
        self._left: Dict[int, List[Gradient]] = {}

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """The step's outputs, and the gradients that it leaves to its optimizers."""
        if not keep:
            return self.slots.call((replica,), self.step, (boundary,)), None

        def step(data: Any) -> Tuple[Any, List[Any]]:
            with captured() as gradients:
                outputs = self.step(data)
            self._left[replica] = gradients
            return outputs, [gradient.value for gradient in gradients]

        outputs, values = self.slots.call((replica,), step, (boundary,))
        left = self._left.get(replica, self._left[0])  # replica 0 may have built the step for all
        return outputs, [own._replace(value=value) for own, value in zip(left, values)]

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """The gradients of one micro-batch are accumulated."""
        for number, own in enumerate(stash):
            self.accumulators[replica].add(str(number), own)

    def gradients(self, replica: int, stage: int) -> Any:
        """What was accumulated."""
        return self.accumulators[replica].held

    def update(self, replica: int, stage: int, gradients: Any) -> None:
        """Every optimizer takes one step."""
        accumulator = self.accumulators[replica]
        self.apply(replica, accumulator.updates(gradients))
        accumulator.clear()

    def weights(self, replica: int, stage: int) -> Dict[str, Any]:
        """The trained variables, by number."""
        return _values(self.variables())

    def set_weights(self, replica: int, stage: int, weights: Dict[str, Any]) -> None:
        """Replace them."""
        _assign(self.variables(), weights)


class Stages(Protocol):
    """A model that is cut into stages."""

    number: int

    def enter(self, data: Any) -> Dict[str, Any]:
        """The tensors that stage 0 is given for one element of the data set."""

    def forward(self, stage: int, live: Dict[str, Any]) -> Dict[str, Any]:
        """The tensors that the stage hands on: those that later stages need."""

    def finish(self, live: Dict[str, Any], data: Any) -> Tuple[Any, Any]:
        """After the last stage: the loss (None in inference) and what leaves the device."""

    def variables(self, stage: int) -> Sequence[Any]:
        """The trained variables that the stage uses."""


class Stash(NamedTuple):
    """What a forward slot of a stage keeps for its backward slot."""

    tape: Any
    inputs: Dict[str, Any]
    outputs: Dict[str, Any]
    variables: Sequence[Any]


class FirstPass(NamedTuple):
    """What is left of a forward slot until its stage is recomputed."""

    slot: Slot
    stash: Optional[Stash]


LOSS = "loss"


class StagedMachine(_Accumulating, abc.ABC):
    """Stages that hand tensors to one another; every slot has a tape of its own."""

    def __init__(self, plan: Plan, method: Method, dtype: Any) -> None:
        super().__init__(plan, method, dtype)
        self.stage_count = plan.stages
        # Stages update in the order of their IPUs, not of their own: the optimizer takes its one step after them all.
        updates = [slot.stage for slot in plan.slots() if slot.kind is Kind.UPDATE]
        self._last_to_update = updates[-1] if updates else plan.stages - 1
        self._waiting: List[Dict[str, Any]] = [{} for _ in range(plan.replicas)]
        self._recomputed = range(plan.stages - 1 if plan.recompute else 0)
        self._first_passes: Dict[Tuple[int, int, int], FirstPass] = {}

    @abc.abstractmethod
    def passed(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """What ``forward`` returns, from building the stage once."""

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """The tensors for the next stage, or after the last what leaves the device; and the tape for the backward."""
        if stage not in self._recomputed:
            return self.passed(replica, stage, micro_batch, boundary, keep)
        slot = Slot()
        with slot.forward():
            output, stash = self.passed(replica, stage, micro_batch, boundary, True)
        self._first_passes[replica, stage, micro_batch] = FirstPass(slot, stash if slot.whole else None)
        return output, None

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        """The stash, from building the stage again; a stage that cannot be taken apart has kept it."""
        first = self._first_passes.pop((replica, stage, micro_batch))
        if first.stash is not None:
            return first.stash
        with first.slot.again():
            return self.passed(replica, stage, micro_batch, boundary, True)[1]

    @abc.abstractmethod
    def owned(self, stage: int) -> Sequence[Any]:
        """The trained variables that the stage uses and no earlier one does."""

    @abc.abstractmethod
    def computed(self, replica: int, variables: Sequence[Any], values: Sequence[Any]) -> Iterable[Gradient]:
        """The gradients of one micro-batch on their way to their optimizer."""

    @abc.abstractmethod
    def step(self, replica: int, gradients: Sequence[Gradient]) -> None:
        """The optimizer takes its one step."""

    def trained(self, replica: int, variables: Sequence[Any]) -> List[Any]:
        """Those of the variables that are to be trained."""
        return list(variables)

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """Accumulates the gradients of the stage's variables; returns those of the tensors it was handed."""
        import tensorflow as tf

        variables = self.trained(replica, stash.variables)
        names = list(stash.outputs)
        values = stash.tape.gradient(
            [stash.outputs[name] for name in names],
            [*stash.inputs.values(), *variables],
            output_gradients=None if gradient is None else [gradient[name] for name in names],
        )
        of_inputs, of_variables = values[: len(stash.inputs)], values[len(stash.inputs) :]
        for own in self.computed(replica, variables, of_variables):
            self.accumulators[replica].add(_key(own.variable), own)
        return {
            name: tf.zeros_like(tensor) if value is None else tf.convert_to_tensor(value)
            for (name, tensor), value in zip(stash.inputs.items(), of_inputs)
        }

    def gradients(self, replica: int, stage: int) -> Any:
        """Those of the variables that the stage owns; a variable of several stages belongs to the first."""
        held = self.accumulators[replica].held
        return {key: held[key] for key in map(_key, self.owned(stage)) if key in held}

    def update(self, replica: int, stage: int, gradients: Any) -> None:
        """The optimizer takes its one step when all stages have their gradients."""
        waiting = self._waiting[replica]
        waiting.update(gradients)
        if stage == self._last_to_update:
            accumulator = self.accumulators[replica]
            self.step(replica, accumulator.updates(waiting))
            accumulator.clear()
            waiting.clear()

    def weights(self, replica: int, stage: int) -> Dict[str, Any]:
        """The trained variables, by number, for the stage whose update comes last and changes them all."""
        return _values(self._changing(stage))

    def set_weights(self, replica: int, stage: int, weights: Dict[str, Any]) -> None:
        """Replace them."""
        _assign(self._changing(stage), weights)

    def _changing(self, stage: int) -> Sequence[Any]:
        if stage != self._last_to_update:
            return ()
        return [variable for each in range(self.stage_count) for variable in self.owned(each)]


class Pipeline(StagedMachine):
    """The stages of a model."""

    def __init__(
        self,
        stages: Stages,
        optimizer: Any,
        labels: Callable[[int, int], Any],
        plan: Plan,
        method: Method = Method.SUM,
        dtype: Any = None,
    ) -> None:
        super().__init__(plan, method, dtype)
        self.stages = stages
        self.optimizer = optimizer
        self.labels = labels

    def passed(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """The layers of the stage, under a tape of its own."""
        import tensorflow as tf

        live = self.stages.enter(boundary) if stage == 0 else dict(boundary)
        inputs = {} if stage == 0 or not keep else differentiable(live)
        tape: Any = tf.GradientTape() if keep else contextlib.nullcontext()
        with tape:
            if keep:
                tape.watch(list(inputs.values()))
            if stage == self.stages.number - 1:
                data = self.labels(replica, micro_batch)
                loss, output = self.slots.call((replica, stage), self._last, (live, data))
                outputs = {LOSS: loss}
            else:
                output = self.slots.call((replica, stage), lambda held: self.stages.forward(stage, held), (live,))
                outputs = differentiable(output)
        return output, Stash(tape, inputs, outputs, self.stages.variables(stage)) if keep else None

    def _last(self, live: Dict[str, Any], data: Any) -> Tuple[Any, Any]:
        """The last stage and what follows it."""
        return self.stages.finish(self.stages.forward(self.stages.number - 1, live), data)

    def computed(self, replica: int, variables: Sequence[Any], values: Sequence[Any]) -> Iterable[Gradient]:
        """As the tape gives them."""
        return [Gradient(self.optimizer, value, variable) for value, variable in zip(values, variables)]

    def step(self, replica: int, gradients: Sequence[Gradient]) -> None:
        """The model's optimizer takes its one step."""
        self.apply(replica, gradients)

    def owned(self, stage: int) -> Sequence[Any]:
        """The variables of a stage without those of earlier ones."""
        earlier = {_key(variable) for before in range(stage) for variable in self.stages.variables(before)}
        return [variable for variable in self.stages.variables(stage) if _key(variable) not in earlier]


def _key(variable: Any) -> str:
    return str(id(variable))


def differentiable(tensors: Dict[str, Any]) -> Dict[str, Any]:
    """Those of the tensors that have gradients."""
    return {name: tensor for name, tensor in tensors.items() if tensor.dtype.is_floating or tensor.dtype.is_complex}

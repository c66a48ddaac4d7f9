"""The machines that build slots of a plan into a graph: a whole step at once, or the stages of a pipeline."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Protocol, Sequence, Tuple

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.run.accumulation import Accumulator, Gradient, Method, captured
from ipu_conformance.emulator.tensorflow.run.slot_functions import SlotFunctions


class _Updating:
    """What the machines share: gradients accumulate, replicas add theirs up, optimizers apply them."""

    def __init__(self, plan: Plan, method: Method, dtype: Any) -> None:
        self.divisor = float(plan.total_micro_batches) if method is Method.MEAN else 1.0
        self.accumulators = [Accumulator(method, dtype) for _ in range(plan.replicas)]
        self.functions = SlotFunctions(plan)

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        """Nothing is recomputed: the host has the memory to keep what backward needs."""
        raise NotImplementedError("plans of TensorFlow have no slots to recompute in")

    def reduce(self, stage: int, gradients: List[Any]) -> List[Any]:
        """The sum over replicas; a mean over micro-batches is taken here too."""
        import tensorflow as tf

        total = {}
        for key, first in gradients[0].items():
            value = first if len(gradients) == 1 else tf.add_n([own[key] for own in gradients])
            total[key] = value if self.divisor == 1.0 else value / tf.constant(self.divisor, value.dtype)
        return [total] * len(gradients)


def apply(gradients: Sequence[Gradient]) -> None:
    """Let each optimizer take one step with its gradients."""
    by_optimizer: Dict[int, List[Gradient]] = {}
    for gradient in gradients:
        by_optimizer.setdefault(id(gradient.optimizer), []).append(gradient)
    for own in by_optimizer.values():
        optimizer = own[0].optimizer
        type(optimizer).apply_gradients(optimizer, [(_as_variable(gradient), gradient.variable) for gradient in own])


def _as_variable(gradient: Gradient) -> Any:
    """The gradient in the dtype of its variable, whatever it was accumulated in."""
    import tensorflow as tf

    return gradient.value if gradient.value is None else tf.cast(gradient.value, gradient.variable.dtype)


def _values(variables: Sequence[Any]) -> Dict[str, Any]:
    import tensorflow as tf

    return {str(number): tf.identity(variable) for number, variable in enumerate(variables)}


def _assign(variables: Sequence[Any], values: Dict[str, Any]) -> None:
    for number, variable in enumerate(variables):
        variable.assign(values[str(number)])


class WholeStep(_Updating):
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
        self.step = step
        self.variables = variables
        self._left: Dict[int, List[Gradient]] = {}

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """The step's outputs, and the gradients that it leaves to its optimizers."""
        if not keep:
            return self.functions.call((replica,), self.step, (boundary,)), None

        def step(data: Any) -> Tuple[Any, List[Any]]:
            with captured() as gradients:
                outputs = self.step(data)
            self._left[replica] = gradients
            return outputs, [gradient.value for gradient in gradients]

        outputs, values = self.functions.call((replica,), step, (boundary,))
        return outputs, [own._replace(value=value) for own, value in zip(self._left[replica], values)]

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
        apply([own._replace(value=gradients.get(key)) for key, own in accumulator.of.items()])
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


class _Stash(NamedTuple):
    tape: Any
    inputs: Dict[str, Any]
    outputs: Dict[str, Any]


LOSS = "loss"


class Pipeline(_Updating):
    """Stages that hand tensors to one another; every slot has a tape of its own."""

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
        self.owned = _owned(stages)
        self._waiting: List[Dict[str, Any]] = [{} for _ in range(plan.replicas)]
        self._added: Dict[int, Dict[str, Any]] = {}

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """The tensors for the next stage, or after the last what leaves the device; and the tape for the backward."""
        import tensorflow as tf

        live = self.stages.enter(boundary) if stage == 0 else dict(boundary)
        last = stage == self.stages.number - 1
        inputs = {} if stage == 0 or not keep else _differentiable(live)
        tape: Any = tf.GradientTape() if keep else contextlib.nullcontext()
        with tape:
            if keep:
                tape.watch(list(inputs.values()))
            if last:
                data = self.labels(replica, micro_batch)
                loss, output = self.functions.call((replica, stage), self._last, (live, data))
                outputs = {LOSS: loss}
            else:
                output = self.functions.call((replica, stage), lambda held: self.stages.forward(stage, held), (live,))
                outputs = _differentiable(output)
        return output, _Stash(tape, inputs, outputs) if keep else None

    def _last(self, live: Dict[str, Any], data: Any) -> Tuple[Any, Any]:
        """The last stage and what follows it."""
        return self.stages.finish(self.stages.forward(self.stages.number - 1, live), data)

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """Accumulates the gradients of the stage's variables; returns those of the tensors it was handed."""
        import tensorflow as tf

        variables = list(self.stages.variables(stage))
        names = list(stash.outputs)
        found = stash.tape.gradient(
            [stash.outputs[name] for name in names],
            [*stash.inputs.values(), *variables],
            output_gradients=None if gradient is None else [gradient[name] for name in names],
        )
        of_inputs, of_variables = found[: len(stash.inputs)], found[len(stash.inputs) :]
        for value, variable in zip(of_variables, variables):
            self.accumulators[replica].add(_key(variable), Gradient(self.optimizer, value, variable))
        return {
            name: tf.zeros_like(tensor) if value is None else tf.convert_to_tensor(value)
            for (name, tensor), value in zip(stash.inputs.items(), of_inputs)
        }

    def gradients(self, replica: int, stage: int) -> Any:
        """Those of the variables that the stage owns; a variable of several stages belongs to the first."""
        own = set(map(_key, self.owned[stage]))
        return {key: value for key, value in self._totals(replica).items() if key in own}

    def _totals(self, replica: int) -> Dict[str, Any]:
        """Everything that was accumulated, added up once for all stages."""
        if replica not in self._added:
            self._added[replica] = self.accumulators[replica].held
        return self._added[replica]

    def update(self, replica: int, stage: int, gradients: Any) -> None:
        """The optimizer takes its one step when the last stage has its gradients."""
        waiting = self._waiting[replica]
        waiting.update(gradients)
        if stage == self.stages.number - 1:
            accumulator = self.accumulators[replica]
            apply([own._replace(value=waiting.get(key)) for key, own in accumulator.of.items()])
            accumulator.clear()
            waiting.clear()
            self._added.pop(replica, None)

    def weights(self, replica: int, stage: int) -> Dict[str, Any]:
        """The stage's trained variables, by number."""
        return _values(self._changing(stage))

    def set_weights(self, replica: int, stage: int, weights: Dict[str, Any]) -> None:
        """Replace them."""
        _assign(self._changing(stage), weights)

    def _changing(self, stage: int) -> Sequence[Any]:
        """The variables that the update of a stage changes: all of them change with the last stage's."""
        if stage < self.stages.number - 1:
            return ()
        return [variable for own in self.owned for variable in own]


def _key(variable: Any) -> str:
    return str(id(variable))


def _differentiable(tensors: Dict[str, Any]) -> Dict[str, Any]:
    return {name: tensor for name, tensor in tensors.items() if tensor.dtype.is_floating or tensor.dtype.is_complex}


def _owned(stages: Stages) -> List[List[Any]]:
    """The variables of each stage without those of earlier ones."""
    seen: Dict[str, Any] = {}
    owned = []
    for stage in range(stages.number):
        own = [variable for variable in stages.variables(stage) if _key(variable) not in seen]
        seen.update((_key(variable), variable) for variable in own)
        owned.append(own)
    return owned

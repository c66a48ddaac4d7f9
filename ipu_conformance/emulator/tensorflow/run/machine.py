"""The machines that build slots of a plan into a graph: a whole step at once, or the stages of a pipeline."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.run.slot_functions import SlotFunctions

SUM, MEAN, RUNNING_MEAN = "sum", "mean", "running_mean"


class Gradient(NamedTuple):
    """A gradient on its way to an optimizer."""

    optimizer: Any
    value: Any
    variable: Any


class _Capture(threading.local):
    """Where this thread's optimizers leave their gradients instead of applying them; None lets them apply."""

    into: Optional[List[Gradient]] = None


_capture = _Capture()


@contextlib.contextmanager
def capturing(optimizers: Sequence[Any]) -> Iterator[None]:
    """Inside, ``captured`` keeps these optimizers from applying gradients."""
    for optimizer in optimizers:
        object.__setattr__(optimizer, "apply_gradients", _capturing_apply(optimizer))
    try:
        yield
    finally:
        for optimizer in optimizers:
            object.__delattr__(optimizer, "apply_gradients")


def _capturing_apply(optimizer: Any) -> Callable[..., Any]:
    def apply_gradients(grads_and_vars: Any, *arguments: Any, **settings: Any) -> Any:
        if _capture.into is None:
            return type(optimizer).apply_gradients(optimizer, grads_and_vars, *arguments, **settings)
        _capture.into += [Gradient(optimizer, value, variable) for value, variable in grads_and_vars]
        return optimizer.iterations

    return apply_gradients


@contextlib.contextmanager
def captured() -> Iterator[List[Gradient]]:
    """The gradients that optimizers were given inside, in order."""
    before, _capture.into = _capture.into, []
    try:
        yield _capture.into
    finally:
        _capture.into = before


class Accumulator:
    """The gradients that one replica has accumulated, by key in the order of arrival."""

    TOGETHER = 2
    """Gradients that are added up at once; sums of more of them differ in their last bits between schedules."""

    def __init__(self, method: str, dtype: Any = None) -> None:
        self.method = method
        self.dtype = dtype
        """The dtype to accumulate in, or a function of the variable that gives it; None is that of the gradient."""
        self.of: Dict[str, Gradient] = {}
        self._parts: Dict[str, List[Any]] = {}
        self._numbers: Dict[str, int] = {}

    def add(self, key: str, gradient: Gradient) -> None:
        """Accumulate one more; a variable without a gradient is remembered only."""
        import tensorflow as tf

        self.of.setdefault(key, gradient)
        if gradient.value is None:
            return
        value = tf.convert_to_tensor(gradient.value)
        dtype = self.dtype(gradient.variable) if callable(self.dtype) else self.dtype
        if dtype is not None:
            value = tf.cast(value, dtype)
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        parts = self._parts.setdefault(key, [])
        if self.method == RUNNING_MEAN and number:
            kept = tf.constant(number / (number + 1), value.dtype)
            parts[0] = parts[0] * kept + value * tf.constant(1 / (number + 1), value.dtype)
            return
        parts.append(value)
        if len(parts) == self.TOGETHER:
            parts[:] = [_sum(parts)]

    @property
    def held(self) -> Dict[str, Any]:
        """What was accumulated so far."""
        return {key: parts[0] if len(parts) == 1 else _sum(parts) for key, parts in self._parts.items()}

    def clear(self) -> None:
        """Begin anew."""
        self.of, self._parts, self._numbers = {}, {}, {}


def _sum(values: Sequence[Any]) -> Any:
    """The sum, marked to stay as it is: TensorFlow would join sums of a graph and so add up in another order."""
    import tensorflow as tf
    from tensorflow.core.framework import attr_value_pb2

    total = tf.add_n(values)
    if not tf.executing_eagerly():
        total.op._set_attr("_grappler_do_not_remove", attr_value_pb2.AttrValue(b=True))
    return total


class _Updating:
    """What the machines share: gradients accumulate, replicas add theirs up, optimizers apply them."""

    def __init__(self, plan: Plan, method: str, dtype: Any) -> None:
        self.divisor = float(plan.total_micro_batches) if method == MEAN else 1.0
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
        method: str = SUM,
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
        method: str = SUM,
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

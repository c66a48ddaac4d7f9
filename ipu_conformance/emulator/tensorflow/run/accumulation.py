"""Gradients on their way to optimizers: kept from being applied, accumulated, and reduced to one for an update."""

from __future__ import annotations

import contextlib
import enum
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple


class GradientAccumulationReductionMethod(enum.Enum):
    """The sum, the mean, or a mean that is kept up while accumulating."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, reduction_method: Any) -> GradientAccumulationReductionMethod:
        """The member that is meant: itself, or its name in any case."""
        if isinstance(reduction_method, cls):
            return reduction_method
        if isinstance(reduction_method, str) and reduction_method.upper() in cls.__members__:
            return cls[reduction_method.upper()]
        names = ", ".join(f"'{name}'" for name in cls.__members__)
        raise ValueError(
            f"Cannot parse {reduction_method!r} as one of GradientAccumulationReductionMethod: use a member of it, or "
            f"one of {names}."
        )


Method = GradientAccumulationReductionMethod


class Gradient(NamedTuple):
    """A gradient on its way to an optimizer."""

    optimizer: Any
    value: Any
    variable: Any


class _Capture(threading.local):
    """Where this thread's optimizers leave their gradients instead of applying them; None if they apply them."""

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
        if settings.get("captured_grads"):
            raise NotImplementedError(
                "Gradients of activations are captured on one replica without accumulation only: leave the layers that "
                "capture them out."
            )
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


def in_dtype(value: Any, dtype: Any) -> Any:
    """A tensor in a dtype, or in the one that a function of it gives."""
    import tensorflow as tf

    return tf.cast(value, dtype(value) if callable(dtype) else dtype)


def taken(optimizer: Any, grads_and_vars: Iterable[Tuple[Any, Any]]) -> List[Tuple[Any, Any]]:
    """Gradients as an optimizer is given them: in the dtype that they were accumulated in.

    Stock's optimizers take those of the variables only, which a device leaves to the user to see to.
    """
    import tensorflow as tf

    stock = type(optimizer).apply_gradients.__module__.split(".")[0] in _STOCK
    return [
        (value if value is None or not stock else tf.cast(value, variable.dtype), variable)
        for value, variable in grads_and_vars
    ]


_STOCK = ("keras", "tf_keras", "tensorflow")


class Accumulator:
    """The gradients that one replica has accumulated, by key in the order of arrival."""

    def __init__(self, method: Method, dtype: Any = None) -> None:
        self.method = method
        self.dtype = dtype
        """The dtype to accumulate in, or a function of the variable that gives it; None is that of the variable."""
        self.of: Dict[str, Gradient] = {}
        self.held: Dict[str, Any] = {}
        """What has been accumulated so far."""
        self._numbers: Dict[str, int] = {}

    def add(self, key: str, gradient: Gradient) -> None:
        """Accumulate one more; a variable without a gradient is remembered only."""
        import tensorflow as tf

        self.of.setdefault(key, gradient)
        if gradient.value is None:
            return
        value = tf.convert_to_tensor(gradient.value)
        dtype = self.dtype(gradient.variable) if callable(self.dtype) else self.dtype
        value = tf.cast(value, gradient.variable.dtype if dtype is None else dtype)
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        if not number:
            self.held[key] = value
        elif self.method is Method.RUNNING_MEAN:
            kept = tf.constant(number / (number + 1), value.dtype)
            self.held[key] = self.held[key] * kept + value * tf.constant(1 / (number + 1), value.dtype)
        else:
            self.held[key] = tf.add_n([self.held[key], value])

    def updates(self, values: Mapping[str, Any]) -> List[Gradient]:
        """The gradients of an update, with reduced values by key."""
        return [own._replace(value=values.get(key)) for key, own in self.of.items()]

    def clear(self) -> None:
        """Forget everything, after an update."""
        self.of, self.held, self._numbers = {}, {}, {}

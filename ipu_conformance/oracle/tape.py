"""Composes ops of the table into one function, with its gradients and with tolerances from random rounding.

A tape applies an op, rounds the result and records it; going backwards it applies the ops' gradients and rounds those.
Without rounding the result is the specification in float64.

A function such as tanh may err by more than a rounding: by as many units as its op states. Nobody knows where in its
range a device errs in which direction, so every element is off by all of that, up or down at random. No errors within
that bound deviate more, and a tolerance of q deviations of a sum of n of them covers the case that all of them agree,
as long as n is at most q squared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import Array, Term
from ipu_conformance.oracle.ops import OPS
from ipu_conformance.oracle.tolerance.rounding import Mantissa, mantissa, nearest, stochastic
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, ArrayTolerance, from_runs

Rounding = Callable[[Array], Array]
ARITHMETIC = ("add", "sub", "mul")
"""Ops whose results are exact but for their rounding."""


@dataclass
class Value:
    """An array on a tape; two of them are the same only if they are one."""

    array: Array


@dataclass
class Tape:
    """Ops in the order in which they were applied."""

    store: Rounding = lambda array: array
    """How a value is rounded that is stored."""
    partial: Rounding = lambda array: array
    """How a partial sum is rounded."""
    approximate: Callable[[Array, Sequence[Term]], Array] = lambda array, sources: array
    """How a function is evaluated whose sources of error are more than roundings."""
    steps: List[Tuple[str, Tuple[Value, ...], Value, Dict[str, Any]]] = field(default_factory=list)

    def __call__(self, op: str, *inputs: Value, **attributes: Any) -> Value:
        """The op's output, as a new value."""
        arrays = [value.array for value in inputs]
        if op == "matmul":
            result = self._product(*arrays)
        else:
            exact = np.asarray(OPS[op].forward(*arrays, **attributes))
            sources = () if op in ARITHMETIC else OPS[op].error(exact, *arrays, **attributes)[0]
            result = self.approximate(exact, sources)
        output = Value(self.store(result))
        self.steps.append((op, inputs, output, attributes))
        return output

    def gradients(self, outputs: Sequence[Value], cotangents: Sequence[Array]) -> Dict[int, Array]:
        """The gradient of every value that the outputs depend on, by its identity."""
        total: Dict[int, Array] = {}

        def add(value: Value, gradient: Array) -> None:
            before = total.get(id(value))
            total[id(value)] = self.store(gradient if before is None else before + gradient)

        for output, cotangent in zip(outputs, cotangents):
            add(output, cotangent)
        for op, inputs, output, attributes in reversed(self.steps):
            if id(output) in total:
                for value, gradient in zip(inputs, self._pull(op, total[id(output)], inputs, attributes)):
                    add(value, gradient)
        return total

    def _pull(self, op: str, cotangent: Array, inputs: Sequence[Value], attributes: Dict[str, Any]) -> Any:
        arrays = [value.array for value in inputs]
        if op == "matmul":
            return self._product(cotangent, arrays[1].T), self._product(arrays[0].T, cotangent)
        vjp, error = OPS[op].vjp, OPS[op].vjp_error
        assert vjp is not None
        exact = [np.asarray(gradient) for gradient in vjp(cotangent, *arrays, **attributes)]
        if op in ARITHMETIC:
            return exact
        assert error is not None
        terms = error(exact, cotangent, *arrays, **attributes)
        return [self.approximate(gradient, sources) for gradient, sources in zip(exact, terms)]

    def _product(self, a: Array, b: Array) -> Array:
        """A product of two matrices whose partial sums are rounded one after the other."""
        total = np.zeros((a.shape[0], b.shape[1]))
        for place in range(a.shape[1]):
            total = self.partial(total + self.partial(np.outer(a[:, place], b[place])))
        return total


Specification = Callable[[Tape], Dict[str, Array]]
"""What a tape is given to: every array that a function and its gradients leave behind, by name."""


def with_tolerances(specification: Specification, dtype: str) -> Tuple[Dict[str, Array], Dict[str, ArrayTolerance]]:
    """Every array of a specification, and its tolerance from runs with random rounding after every op."""
    store, partial = mantissa(dtype), mantissa("float32")
    exact = specification(Tape())
    rounded = [specification(_random(store, partial, seed)) for seed in range(LEAST_RUNS)]
    fixed = specification(Tape(lambda array: nearest(array, store), lambda array: nearest(array, partial)))
    how = f"{dtype}, {LEAST_RUNS} oracle runs with random rounding and errors of functions after every op"
    return exact, from_runs(exact, rounded, fixed, how)


def _random(store: Mantissa, partial: Mantissa, seed: int) -> Tape:
    random = np.random.Generator(np.random.Philox(seed))
    unit = 2.0**-store.digits

    def approximate(array: Array, sources: Sequence[Term]) -> Array:
        for source in sources:
            if source.where == "store" and source.ulps > 0.5:  # half a unit is the rounding that comes anyway
                array = array + random.choice((-1.0, 1.0), array.shape) * source.magnitude * (2 * source.ulps * unit)
        return array

    return Tape(
        lambda array: stochastic(array, store, random), lambda array: stochastic(array, partial, random), approximate
    )


def split(array: Array, parts: int, axis: int) -> List[Value]:
    """An array cut into values of their own."""
    return [Value(part) for part in np.split(array, parts, axis)]


def joined(gradients: Dict[int, Array], values: Sequence[Value], axis: int) -> Array:
    """The gradients of the parts of an array, put together again."""
    return np.concatenate([gradients[id(value)] for value in values], axis)

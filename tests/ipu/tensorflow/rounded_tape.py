"""Composes the oracle's ops into one function, with its gradients and with tolerances from random rounding.

A tape applies an op of the oracle's table, rounds what it gives and remembers it; going backwards it applies the ops'
gradients and rounds those. Without rounding the result is the specification in float64.

A function such as tanh may also err by more than a rounding: by as many units as its op states. Where in its range a
device errs in which direction is not known, so every element is off by the whole of that, up or down at random. That
has the largest deviation of all errors so bounded, and a tolerance of q deviations of a sum of n of them covers the
case that all of them agree, as long as n is at most q squared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Term
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.oracle.tolerance.rounding import mantissa, nearest, stochastic

Rounding = Callable[[np.ndarray], np.ndarray]
ARITHMETIC = ("add", "sub", "mul")
"""Ops whose results are exact but for their rounding."""


@dataclass
class Value:
    """An array on a tape; two of them are the same only if they are one."""

    array: np.ndarray


@dataclass
class Tape:
    """Ops in the order in which they were applied."""

    store: Rounding = lambda array: array
    """How a value is rounded that is stored."""
    partial: Rounding = lambda array: array
    """How a partial sum is rounded."""
    approximate: Callable[[np.ndarray, Sequence[Term]], np.ndarray] = lambda array, sources: array
    """How a function is evaluated whose sources of error are more than roundings."""
    steps: List[Tuple[str, Tuple[Value, ...], Value, Dict[str, Any]]] = field(default_factory=list)

    def __call__(self, op: str, *inputs: Value, **attributes: Any) -> Value:
        """The op's output, as a new value."""
        arrays = [value.array for value in inputs]
        if op == "matmul":
            made = self._product(*arrays)
        else:
            exact = np.asarray(OPS[op].forward(*arrays, **attributes))
            sources = () if op in ARITHMETIC else OPS[op].error(exact, *arrays, **attributes)[0]
            made = self.approximate(exact, sources)
        output = Value(self.store(made))
        self.steps.append((op, inputs, output, attributes))
        return output

    def gradients(self, outputs: Sequence[Value], cotangents: Sequence[np.ndarray]) -> Dict[int, np.ndarray]:
        """The gradient of every value that the outputs depend on, by its identity."""
        found: Dict[int, np.ndarray] = {}

        def add(value: Value, slope: np.ndarray) -> None:
            known = found.get(id(value))
            found[id(value)] = self.store(slope if known is None else known + slope)

        for output, cotangent in zip(outputs, cotangents):
            add(output, cotangent)
        for op, inputs, output, attributes in reversed(self.steps):
            slope = found.get(id(output))
            if slope is not None:
                for value, own in zip(inputs, self._slopes(op, slope, inputs, attributes)):
                    add(value, own)
        return found

    def _slopes(self, op: str, slope: np.ndarray, inputs: Sequence[Value], attributes: Dict[str, Any]) -> Any:
        arrays = [value.array for value in inputs]
        if op == "matmul":
            return self._product(slope, arrays[1].T), self._product(arrays[0].T, slope)
        vjp, error = OPS[op].vjp, OPS[op].vjp_error
        assert vjp is not None
        exact = [np.asarray(own) for own in vjp(slope, *arrays, **attributes)]
        if op in ARITHMETIC:
            return exact
        assert error is not None
        terms = error(exact, slope, *arrays, **attributes)
        return [self.approximate(own, sources) for own, sources in zip(exact, terms)]

    def _product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A product of two matrices whose partial sums are rounded one after the other."""
        total = np.zeros((a.shape[0], b.shape[1]))
        for place in range(a.shape[1]):
            total = self.partial(total + self.partial(np.outer(a[:, place], b[place])))
        return total


Specification = Callable[[Tape], Dict[str, np.ndarray]]


def with_tolerances(
    specification: Specification, dtype: str
) -> Dict[str, Tuple[np.ndarray, run_tolerance.ArrayTolerance]]:
    """Every array that a specification gives, with its tolerance from runs with random rounding after every op."""
    exact = specification(Tape())
    store, partial = mantissa(dtype), mantissa("float32")
    runs = [specification(_random(store, partial, seed)) for seed in range(run_tolerance.LEAST_RUNS)]
    same = specification(Tape(lambda array: nearest(array, store), lambda array: nearest(array, partial)))
    rate = run_tolerance.FALSE_ALARM_RATE / len(exact)
    origin = f"{dtype}, {len(runs)} oracle runs with random rounding and errors of functions after every op"
    return {
        name: (
            value,
            run_tolerance.estimate(
                value, np.stack([run[name] - value for run in runs]), same[name] - value, rate, origin
            ),
        )
        for name, value in exact.items()
    }


def _random(store: Any, partial: Any, seed: int) -> Tape:
    random = np.random.Generator(np.random.Philox(seed))
    unit = 2.0**-store.digits

    def approximate(array: np.ndarray, sources: Sequence[Term]) -> np.ndarray:
        for source in sources:
            if source.where == "store" and source.ulps > 0.5:  # half a unit is the rounding that comes anyway
                array = array + random.choice((-1.0, 1.0), array.shape) * source.magnitude * (2 * source.ulps * unit)
        return array

    return Tape(
        lambda array: stochastic(array, store, random), lambda array: stochastic(array, partial, random), approximate
    )


def leaves(array: np.ndarray, pieces: int, axis: int) -> List[Value]:
    """An array cut into values of their own."""
    return [Value(piece) for piece in np.split(array, pieces, axis)]


def joined(found: Dict[int, np.ndarray], cut: Sequence[Value], axis: int, shape: Optional[Any] = None) -> np.ndarray:
    """The gradients of the pieces of an array, put together again."""
    whole = np.concatenate([found[id(value)] for value in cut], axis)
    return whole if shape is None else whole.reshape(shape)

"""Runs operations of the vendor's API on the device, and compares them and their gradients with the oracle's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np

from ipu_conformance import check
from ipu_conformance.oracle import ops  # noqa: F401  importing it fills the table
from ipu_conformance.oracle.op import OPS, Term, as_tuple
from ipu_conformance.oracle.sample import Sample, SeededChooser, round_to
from ipu_conformance.oracle.tolerance.ops import ACCUMULATE, Precision, for_gradients, for_op, for_outputs

DTYPES = ("float32", "float16")


def values(shape: Sequence[int], seed: int = 1, low: float = -2.0, high: float = 2.0, dtype: str = "float32") -> Any:
    """Float64 values that ``dtype`` holds exactly."""
    return round_to(dtype, SeededChooser(seed).array(shape, low, high))


def distinct(shape: Sequence[int], seed: int = 1, dtype: str = "float32") -> Any:
    """Float64 values that ``dtype`` holds exactly, no two of them near each other."""
    return round_to(dtype, SeededChooser(seed).distinct(shape))


@dataclass(frozen=True)
class OpResult:
    """What a function gave on the device: its outputs, and the gradient of each input (None where there is none)."""

    outputs: Tuple[np.ndarray, ...]
    gradients: Tuple[Any, ...]


def run(
    tf: Any,
    strategy: Any,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    cotangents: Sequence[Any] = (),
    dtype: str = "float32",
    variables: Callable[[], Sequence[Any]] = tuple,
) -> OpResult:
    """Call ``function`` on the device; with ``cotangents``, one for each output, also compute the gradients.

    Floating-point inputs are given as ``dtype``, integers as int32. The gradients are those of the inputs and then of
    ``variables()``.
    """
    operands = [tf.constant(_held(value, dtype)) for value in inputs]
    slopes = [tf.constant(_held(value, dtype)) for value in cotangents]

    @tf.function(autograph=False)
    def program(operands: Any, slopes: Any) -> Any:
        with tf.GradientTape() as tape:
            for value in operands:
                if value.dtype.is_floating:
                    tape.watch(value)
            outputs = tf.nest.flatten(function(*operands))
        if not slopes:
            return outputs, []
        wanted = [*operands, *variables()]
        trained = [value for value in wanted if value.dtype.is_floating]
        computed = tape.gradient(outputs, trained, output_gradients=slopes)
        gradients = iter(None if slope is None else tf.convert_to_tensor(slope) for slope in computed)
        return outputs, [next(gradients) if value.dtype.is_floating else None for value in wanted]

    with strategy.scope():
        outputs, gradients = strategy.run(program, args=(operands, slopes))
    slopes = [None if gradient is None else np.asarray(gradient) for gradient in gradients]
    return OpResult(tuple(value.numpy() for value in outputs), tuple(slopes))


def run_graph(
    tf: Any, ipu: Any, function: Callable[..., Any], inputs: Sequence[Any], cotangents: Any, dtype: str
) -> Tuple[OpResult, List[Any]]:
    """As ``run``, of a function that makes variables, in a compiled graph of TensorFlow 1; and those variables.

    There is one cotangent, or a list of one for each output. The gradients are those of the floating-point inputs and
    then of the trainable variables, by their names.
    """
    v1 = tf.compat.v1
    slopes = [_held(value, dtype) for value in (cotangents if isinstance(cotangents, list) else [cotangents])]
    with tf.Graph().as_default():
        operands = [v1.placeholder(_held(value, dtype).dtype, np.shape(value)) for value in inputs]

        def program(*operands: Any) -> Any:
            outputs = tf.nest.flatten(function(*operands))
            trained = sorted(v1.trainable_variables(), key=lambda variable: variable.name)
            wanted = [*(value for value in operands if value.dtype.is_floating), *trained]
            return outputs, tf.gradients(outputs, wanted, [*map(tf.constant, slopes)], unconnected_gradients="zero")

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu.ipu_compiler.compile(program, operands)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            fed = {place: _held(value, dtype) for place, value in zip(operands, inputs)}
            outputs, gradients = session.run(compiled, fed)
        return OpResult(tuple(outputs), tuple(gradients)), v1.global_variables()


def _held(value: Any, dtype: str) -> np.ndarray:
    value = np.asarray(value)
    return value.astype(dtype if value.dtype.kind == "f" else np.int32 if value.dtype.kind == "i" else value.dtype)


def as_specified(
    result: OpResult,
    op: str,
    inputs: Sequence[np.ndarray],
    cotangent: Any = None,
    dtype: str = "float32",
    turned: Callable[[str, np.ndarray], np.ndarray] = lambda what, value: value,
    **attributes: Any,
) -> None:
    """The outputs, and with a cotangent the gradients, are the oracle's, within the tolerance of the oracle's op.

    ``turned(what, value)`` brings what the device gave to the oracle's order of axes; ``what`` is "output" or the
    number of an input.
    """
    __tracebackhide__ = True
    row, sample = OPS[op], Sample(tuple(inputs), attributes).rounded_to(dtype)
    specified = as_tuple(row.forward(*sample.inputs, **attributes))
    for place, (expected, tolerance) in enumerate(zip(specified, for_outputs(row, sample, dtype=dtype))):
        value, what = turned("output", result.outputs[place]), f"output {place} of {op}"
        check.close(actual=value, expected=expected, tolerance=tolerance, what=what, dtype=dtype)
    if cotangent is None:
        return
    bounds = for_gradients(row, sample, cotangent, dtype=dtype)
    slopes = row.vjp(round_to(dtype, cotangent), *sample.inputs, **attributes)
    gradients = [*result.gradients, *[None] * len(slopes)][: len(slopes)]
    without, none = ([place for place, slope in enumerate(each) if slope is None] for each in (gradients, slopes))
    check.equal(actual=without, expected=none, what=f"the inputs of {op} without a gradient")
    for place, (slope, allowed) in enumerate(zip(slopes, bounds)):
        if slope is not None and allowed is not None:
            value, what = turned(str(place), result.gradients[place]), f"the gradient of input {place} of {op}"
            check.close(actual=value, expected=slope, tolerance=allowed, what=what, dtype=dtype)


def kept(actual: Any, x: np.ndarray, rate: float, dtype: str = "float32") -> np.ndarray:
    """The mask of a dropped tensor, True where a value is kept and scaled as the oracle scales it."""
    __tracebackhide__ = True
    tolerance = for_op(OPS["dropout"], Sample((x, np.ones(x.shape, bool)), {"rate": rate}), dtype=dtype)
    check.dtype(actual=actual, expected=dtype, what="the dropped tensor")
    return check.dropout_values(actual=actual, inputs=x, rate=rate, tolerance=tolerance, what="the dropped tensor")


def within(actual: Any, expected: Any, terms: Sequence[Term], what: str, dtype: str = "float32") -> None:
    """The values are those expected, within what the listed sources of error allow."""
    __tracebackhide__ = True
    tolerance = Precision(dtype, ACCUMULATE[dtype]).tolerance(np.asarray(expected), terms)
    check.close(actual=actual, expected=expected, tolerance=tolerance, what=what, dtype=dtype)

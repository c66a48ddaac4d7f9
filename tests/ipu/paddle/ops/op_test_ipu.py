"""The frame of the cases of single ops: an op in a program of its own, on distinct micro-batches, against the oracle.

A file of cases holds a table and takes its tests from here: ``test_forward`` compares every output of every micro-batch
in float32 and in float16, ``test_gradient`` the gradients of all inputs. Tolerances are those of the oracle's ops.
"""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Sequence, Tuple, Union

import numpy as np
import pytest

import ipu_conformance.oracle.ops  # noqa: F401  the table of ops is filled
from ipu_conformance import check
from ipu_conformance.oracle.op import OPS, Op, Term, as_tuple
from ipu_conformance.oracle.sample import Chooser, Sample, SeededChooser, round_to
from ipu_conformance.oracle.tolerance.ops import ACCUMULATE, Precision, Tolerance, for_gradients, for_outputs

from .. import regression
from ..device import Device, compiled, held

MODES: Mapping[str, str] = {"IPU_FP32": "float32", "IPU_FP16": "float16"}
BATCHES, ACCUMULATED = 2, 3
"""Micro-batches of a run without training, and of the one update of a run with it."""

F = "nn.functional."
FLOAT32 = ("IPU_FP32",)
"""The modes of a case that is not repeated in float16."""

Draw = Callable[[Chooser], np.ndarray]
Build = Union[str, Callable[..., Any]]


@dataclass(frozen=True)
class OpCase:
    """One call of an op: how Paddle is asked for it, how its inputs are drawn, and what the oracle has for it."""

    name: str
    op: Op
    build: Build
    draws: Tuple[Draw, ...]
    attributes: Mapping[str, Any]
    modes: Tuple[str, ...]
    differentiable: bool
    declared: bool
    """Whether float16 is declared: there are ops that Paddle leaves in float32 when it casts programs."""

    def __str__(self) -> str:
        return self.name

    def sample(self, number: int, dtype: str) -> Sample:
        """The inputs of one micro-batch; no two micro-batches are alike."""
        chooser = SeededChooser(zlib.crc32(f"{self.name} {number}".encode()))
        return Sample(tuple(draw(chooser) for draw in self.draws), self.attributes).rounded_to(dtype)

    def outputs(self, paddle: Any, inputs: Sequence[Any]) -> List[Any]:
        """The variables that Paddle makes of the inputs; a dotted name is called with the oracle's attributes."""
        build = self.build
        if isinstance(build, str):
            variables = function(paddle, build)(*inputs, **self.attributes)
        else:
            variables = build(paddle, *inputs, **self.attributes)
        return list(variables) if isinstance(variables, (tuple, list)) else [variables]


def function(paddle: Any, name: str) -> Callable[..., Any]:
    """The function that has a dotted name in Paddle."""
    return functools.reduce(getattr, name.split("."), paddle)


def called(name: str, *positional: str, **named: str) -> Build:
    """A call of Paddle's function with some of the oracle's attributes, by position or by Paddle's names for them."""

    def build(paddle: Any, *inputs: Any, **attributes: Any) -> Any:
        listed = {key: list(value) if isinstance(value, tuple) else value for key, value in attributes.items()}
        passed = {theirs: listed[ours] for theirs, ours in named.items() if ours in listed}
        return function(paddle, name)(*inputs, *(listed[key] for key in positional), **passed)

    return build


def case(
    op: str,
    build: Build,
    *draws: Draw,
    name: str = "",
    modes: Sequence[str] = tuple(MODES),
    differentiable: bool = True,
    declared: bool = False,
    **attributes: Any,
) -> OpCase:
    """A case of the oracle's ``op``; ``attributes`` are the oracle's."""
    known = OPS[op]
    pulled = differentiable and known.vjp is not None
    return OpCase(name or op, known, build, draws, attributes, tuple(modes), pulled, declared)


def values(*shape: int, low: float = -2.0, high: float = 2.0, avoid: Sequence[float] = ()) -> Draw:
    """Numbers between two bounds, away from what is to be avoided."""
    return lambda chooser: chooser.array(shape, low, high, avoid)


def distinct(*shape: int) -> Draw:
    """Numbers that are far enough apart to have one order in every type."""
    return lambda chooser: chooser.distinct(shape)


def integers(*shape: int, high: int, low: int = 0) -> Draw:
    """Whole numbers up to ``high``."""
    return lambda chooser: chooser.integers(shape, low, high)


def permuted(count: int, *, of: int) -> Draw:
    """Some of the first ``of`` whole numbers, each at most once."""
    return lambda chooser: chooser.generator().permutation(of)[:count]


def truths(*shape: int) -> Draw:
    """Truth values."""
    return lambda chooser: chooser.integers(shape, 0, 1).astype(bool)


def forward_and_gradient(cases: Sequence[OpCase]) -> Tuple[Callable[..., None], Callable[..., None]]:
    """``test_forward`` and ``test_gradient`` of a file of cases, of which some have a gradient."""
    return forward(cases), gradient([case for case in cases if case.differentiable])


def _parameters(cases: Sequence[OpCase]) -> List[Any]:
    return [pytest.param(case, mode, id=f"{case}-{mode}") for case in cases for mode in case.modes]


def forward(cases: Sequence[OpCase]) -> Callable[..., None]:
    """The test of what ops make."""

    @pytest.mark.parametrize(("case", "mode"), _parameters(cases))
    def test_forward(paddle: Any, static: Any, case: OpCase, mode: str) -> None:
        """An op makes of every micro-batch what is specified, in the type of its mode."""
        _check_forward(paddle, case, MODES[mode])

    return test_forward


def gradient(cases: Sequence[OpCase]) -> Callable[..., None]:
    """The test of gradients."""

    @pytest.mark.parametrize(("case", "mode"), _parameters(cases))
    def test_gradient(paddle: Any, static: Any, case: OpCase, mode: str) -> None:
        """One step at the rate 1 moves what is added to each input by the sum of its gradients."""
        _check_gradient(paddle, case, MODES[mode])

    return test_gradient


def _check_forward(paddle: Any, case: OpCase, dtype: str) -> None:
    samples = [case.sample(number, dtype) for number in range(BATCHES)]
    inputs = _declared(paddle, samples[0].inputs, _written(case, dtype))
    outputs = case.outputs(paddle, inputs)
    regression.start(paddle)
    half = dtype == "float16"
    if half and not case.declared:
        _to_half(paddle)
    feeds = [variable.name for variable in inputs]
    device = compiled(paddle, outputs, feeds=feeds, size=1, enable_fp16=half, batches_per_step=BATCHES)
    got = device.run(**_fed(inputs, [sample.inputs for sample in samples]))
    for number, sample in enumerate(samples):
        specified = as_tuple(case.op.forward(*sample.inputs, **sample.attributes))
        limits = for_outputs(case.op, sample, dtype=dtype)
        assert len(got) == len(specified), f"{len(got)} outputs, expected {len(specified)}"
        for place, (value, limit) in enumerate(zip(specified, limits)):
            what = f"output {place} of micro-batch {number}"
            expected = np.asarray(value)
            check.shape(actual=got[place], expected=(BATCHES, *(expected.shape or (1,))), what=f"output {place}")
            check.close(
                actual=got[place][number].reshape(expected.shape),
                expected=expected,
                tolerance=limit,
                what=what,
                dtype=_device_type(expected, dtype),
            )


def _check_gradient(paddle: Any, case: OpCase, dtype: str) -> None:
    samples = [case.sample(number, dtype) for number in range(ACCUMULATED)]
    weights = [_weights(case, sample, dtype, number) for number, sample in enumerate(samples)]
    cotangents = [factors if len(factors) > 1 else factors[0] for factors in weights]
    pulled = [
        case.op.vjp(cotangent, *sample.inputs, **sample.attributes) for cotangent, sample in zip(cotangents, samples)
    ]
    places = [place for place, gradient in enumerate(pulled[0]) if gradient is not None]

    written = _written(case, dtype)
    inputs = _declared(paddle, samples[0].inputs, written)
    moved = {place: _zeros(paddle, samples[0].inputs[place].shape, f"moved{place}", written) for place in places}
    taken = [variable + moved[place] if place in moved else variable for place, variable in enumerate(inputs)]
    outputs = case.outputs(paddle, taken)
    floating = [place for place, variable in enumerate(outputs) if not variable.stop_gradient]
    factors = _declared(paddle, [weights[0][place] for place in floating], written, "factor")
    parts = [paddle.sum(outputs[place] * factor) for place, factor in zip(floating, factors)]
    loss = functools.reduce(paddle.add, parts)
    feeds = [*inputs, *factors]
    device = _trained(paddle, loss, feeds, dtype=dtype, cast=dtype != written)
    micro_batches = [
        [*sample.inputs, *(factors[place] for place in floating)] for sample, factors in zip(samples, weights)
    ]
    device.run(**_fed(feeds, micro_batches))
    device.sync()

    for place in places:
        gradients = [np.asarray(each[place]) for each in pulled]
        limits = [
            for_gradients(case.op, sample, cotangent, dtype=dtype)[place]
            for sample, cotangent in zip(samples, cotangents)
        ]
        check.close(
            actual=-held(paddle, f"moved{place}"),
            expected=np.sum(gradients, axis=0),
            tolerance=_of_sum(gradients, limits, dtype),
            what=f"the gradient of input {place}",
            dtype=dtype,
        )


def _written(case: OpCase, dtype: str) -> str:
    """The type in which a program is written; users write float32 and cast the program."""
    return dtype if case.declared else "float32"


def _declared(paddle: Any, arrays: Sequence[np.ndarray], written: str, stem: str = "x") -> List[Any]:
    """A feed for each array."""
    types = [written if array.dtype.kind == "f" else str(array.dtype) for array in arrays]
    return [
        paddle.static.data(f"{stem}{place}", list(array.shape), kind)
        for place, (array, kind) in enumerate(zip(arrays, types))
    ]


def _fed(variables: Sequence[Any], micro_batches: Sequence[Sequence[np.ndarray]]) -> Mapping[str, np.ndarray]:
    """The feed of a run, with the micro-batches in front; floating point is fed in float32, which holds it exactly."""
    stacked = [np.stack([arrays[place] for arrays in micro_batches]) for place in range(len(variables))]
    return {
        variable.name: array.astype(np.float32) if array.dtype.kind == "f" else array
        for variable, array in zip(variables, stacked)
    }


def _device_type(expected: np.ndarray, dtype: str) -> str:
    """The type in which the host gets a result: the device has no 64 bits."""
    if expected.dtype == np.float64:
        return dtype
    return {"int64": "int32"}.get(str(expected.dtype), str(expected.dtype))


def _weights(case: OpCase, sample: Sample, dtype: str, number: int) -> Tuple[np.ndarray, ...]:
    """What every output is multiplied by in the loss, which is the sum of all."""
    generator = np.random.default_rng(zlib.crc32(f"factors of {case.name} {number}".encode()))
    outputs = as_tuple(case.op.forward(*sample.inputs, **sample.attributes))
    return tuple(round_to(dtype, np.asarray(generator.uniform(-2.0, 2.0, np.shape(value)))) for value in outputs)


def _zeros(paddle: Any, shape: Sequence[int], name: str, written: str) -> Any:
    zero = paddle.nn.initializer.Constant(0.0)
    return paddle.static.create_parameter(list(shape), written, name=name, default_initializer=zero)


def _trained(paddle: Any, loss: Any, feeds: Sequence[Any], *, dtype: str, cast: bool) -> Device:
    """The program that takes a step at the rate 1 on the sum of the gradients of the micro-batches."""
    halves = _to_half(paddle) if cast else []
    regression.minimize(paddle.optimizer.SGD(1.0), loss)
    regression.start(paddle, halves)
    options = {
        "enable_fp16": dtype == "float16",
        "enable_gradient_accumulation": True,
        "accumulation_factor": ACCUMULATED,
        "accumulation_and_replication_reduction_type": 0,
    }
    names = [variable.name for variable in feeds]
    return compiled(paddle, [loss], feeds=names, size=1, training=True, **options)


def _to_half(paddle: Any) -> List[str]:
    return regression.to_half(paddle, _no_exceptions(paddle))


@functools.lru_cache(maxsize=None)
def _no_exceptions(paddle: Any) -> Any:
    """Lists by which every op becomes float16; Paddle takes longer to make them than to use them."""
    lists = paddle.static.amp.CustomOpLists()
    lists.unsupported_list = set()
    return lists


def _of_sum(terms: Sequence[np.ndarray], limits: Sequence[Any], dtype: str) -> Tolerance:
    """The tolerance of a sum that is kept in ``dtype``: those of its terms, and a rounding for each addition."""
    precision = Precision(dtype, ACCUMULATE[dtype])
    size = np.sum(np.abs(terms), axis=0)
    added = precision.tolerance(np.sum(terms, axis=0), [Term(size, length=len(terms) - 1)])
    allowed = np.sum([limit.allowed for limit in limits], axis=0) + added.allowed
    return Tolerance(allowed, f"{limits[0].origin}, sum of {len(terms)} in {dtype}", limits[0].false_alarm_rate)

"""Single ops on Paddle: many calls in one static program, whose one training step shows their outputs and gradients.

What is to be differentiated is added to a parameter of negative zeros, which changes no bit of it. One step of SGD at
the rate 1 then leaves minus the sum of the micro-batches' gradients in the parameter.
"""

from __future__ import annotations

import functools
import warnings
from contextlib import contextmanager
from typing import Any, Dict, Hashable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import paddle

from ipu_conformance.errors import Inexpressible
from ipu_conformance.frameworks import OpCall, OpResult
from ipu_conformance.frameworks.paddle.programs import emptied, static_mode

_REASONS: Dict[Hashable, Optional[str]] = {}
"""Why Paddle cannot express calls of one structure; None where it can."""


FACTORS = "factors"
"""The feed of the factors of all outputs in the loss, one behind the other."""


class _Written(NamedTuple):
    """A call in a program: what it is fed, what it makes, and what of it the loss takes."""

    feeds: List[Any]
    outputs: List[Any]
    differentiable: List[int]
    """The outputs that the loss takes."""


def run_ops(calls: Sequence[OpCall], dtype: str) -> Sequence[OpResult]:
    """Run calls of ops in one training step whose micro-batches are accumulated.

    Where the API takes no float16, users write float32 and cast the program: those calls are a program of their own.
    """
    if dtype != "float16":
        return _run(calls, dtype, cast=False)
    declared = [_takes(call, dtype) for call in calls]
    results: Dict[int, OpResult] = {}
    for cast in (False, True):
        numbers = [number for number, direct in enumerate(declared) if direct != cast]
        if numbers:
            results.update(zip(numbers, _run([calls[number] for number in numbers], dtype, cast=cast)))
    return [results[number] for number in range(len(calls))]


def why_inexpressible(call: OpCall, dtype: str) -> Optional[str]:
    """Why Paddle cannot express a call; it is asked once, in a program that is never run.

    Its API refuses whole numbers and truth values where it documents no such type.
    """
    key = call.structure
    if key not in _REASONS:
        reason = None
        with _program():
            try:
                _asked(call, _declared(call.inputs[0], "float32", "x"))
            except Inexpressible as lacking:
                reason = str(lacking)
            except TypeError as refusal:
                if "data type of" not in str(refusal):
                    raise
                reason = str(refusal)
        _REASONS[key] = reason
    return _REASONS[key]


def _takes(call: OpCall, dtype: str) -> bool:
    """Whether Paddle's API takes a call in ``dtype``; it refuses types by TypeError and others that it documents."""
    with _program():
        try:
            _write(call, 0, dtype)
        except (TypeError, ValueError, RuntimeError):
            return False
    return True


@contextmanager
def _program() -> Iterator[Tuple[Any, Any]]:
    """A program and its start, both empty, in a scope and under names of their own."""
    main, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
    guards = paddle.static.scope_guard(scope), paddle.static.program_guard(main, startup)
    with static_mode(), paddle.utils.unique_name.guard(), guards[0], guards[1], emptied(scope, startup):
        yield main, startup


def _run(calls: Sequence[OpCall], dtype: str, *, cast: bool) -> Sequence[OpResult]:
    micro_batches = len(calls[0].inputs)
    with _program() as (main, startup):
        written = [_write(call, number, "float32" if cast else dtype) for number, call in enumerate(calls)]
        idle = _parameter((1,), "idle", "float32" if cast else dtype)
        loss = paddle.sum(idle)
        rows = [_row(each.outputs[place], idle) for each in written for place in each.differentiable]
        if rows:
            joined = paddle.concat(rows)
            loss = loss + paddle.sum(joined * paddle.static.data(FACTORS, joined.shape, joined.dtype))
        halves = _to_half(main) if cast else []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Accumulating with FP16")
            paddle.optimizer.SGD(1.0).minimize(loss)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        if halves:
            paddle.static.amp.cast_parameters_to_fp16(paddle.CPUPlace(), main, to_fp16_var_names=set(halves))
        fetches = [output for each in written for output in each.outputs] + [loss]
        compiled = paddle.static.IpuCompiledProgram(main, ipu_strategy=_strategy(micro_batches, dtype))
        feeds = _fed(calls, written)
        program = compiled.compile(list(feeds), [fetch.name for fetch in fetches])
        fetched = executor.run(program, feed=feeds, fetch_list=fetches)
        compiled._backend.weights_to_host()
        scope = paddle.static.global_scope()
        results, first = [], 0
        for number, (call, each) in enumerate(zip(calls, written)):
            of_call = fetched[first : first + len(each.outputs)]
            shapes = [tuple(output.shape) for output in each.outputs]
            first += len(each.outputs)
            outputs = tuple(
                tuple(_scalar(np.asarray(value)[micro_batch], shape) for value, shape in zip(of_call, shapes))
                for micro_batch in range(micro_batches)
            )
            moved = {place: np.array(scope.find_var(f"moved{number}_{place}").get_tensor()) for place in call.wanted}
            results.append(OpResult(outputs, {place: -value for place, value in moved.items()}))
    return results


def _scalar(value: np.ndarray, declared: Tuple[int, ...]) -> np.ndarray:
    """A fetched value; what is declared without dimensions is fetched with one."""
    return value.reshape(()) if declared == () and value.shape == (1,) else value


def _strategy(micro_batches: int, dtype: str) -> Any:
    strategy = paddle.static.IpuStrategy()
    strategy.set_options(
        {
            "micro_batch_size": 1,
            "is_training": True,
            "enable_fp16": dtype == "float16",
            "enable_gradient_accumulation": True,
            "accumulation_factor": micro_batches,
            "accumulation_and_replication_reduction_type": 0,
        }
    )
    return strategy


def _write(call: OpCall, number: int, dtype: str) -> _Written:
    """A call in the current program."""
    feeds = _declared(call.inputs[0], dtype, f"x{number}_")
    tensors = list(feeds)
    for place in call.wanted:
        tensors[place] = tensors[place] + _parameter(call.inputs[0][place].shape, f"moved{number}_{place}", dtype)
    outputs = _asked(call, tensors)
    if not call.factors:
        return _Written(feeds, outputs, [])
    return _Written(feeds, outputs, [place for place, output in enumerate(outputs) if not output.stop_gradient])


def _row(value: Any, other: Any) -> Any:
    """The elements of a value one behind the other, in the type of another; a cast may have changed it."""
    row = value if len(value.shape) == 1 else paddle.reshape(value, [-1])
    return row if row.dtype == other.dtype else paddle.cast(row, other.dtype)


def _asked(call: OpCall, tensors: Sequence[Any]) -> List[Any]:
    outputs = call.ask(paddle, *tensors, **call.attributes)
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _declared(arrays: Sequence[np.ndarray], dtype: str, stem: str) -> List[Any]:
    """A feed for each array."""
    return [
        paddle.static.data(f"{stem}{place}", list(array.shape), dtype if array.dtype.kind == "f" else str(array.dtype))
        for place, array in enumerate(arrays)
    ]


def _parameter(shape: Sequence[int], name: str, dtype: str) -> Any:
    start = paddle.nn.initializer.Constant(-0.0)
    return paddle.static.create_parameter(list(shape), dtype, name=name, default_initializer=start)


def _fed(calls: Sequence[OpCall], written: Sequence[_Written]) -> Dict[str, np.ndarray]:
    """The feed of the run, the micro-batches in front; floating point is fed in float32, which holds it exactly."""
    fed = {
        variable.name: np.stack(values)
        for call, each in zip(calls, written)
        for variable, values in zip(each.feeds, zip(*call.inputs))
    }
    factors = [
        [
            np.ravel(call.factors[micro_batch][place])
            for call, each in zip(calls, written)
            for place in each.differentiable
        ]
        for micro_batch in range(len(calls[0].inputs))
    ]
    if factors[0]:
        fed[FACTORS] = np.stack([np.concatenate(row) for row in factors])
    return {name: value.astype(np.float32) if value.dtype.kind == "f" else value for name, value in fed.items()}


def _to_half(main: Any) -> List[str]:
    return list(paddle.static.amp.cast_model_to_fp16(main, _no_exceptions(), use_fp16_guard=False))


@functools.lru_cache(maxsize=None)
def _no_exceptions() -> Any:
    """Lists by which every op becomes float16; Paddle takes longer to make them than to use them."""
    lists = paddle.static.amp.CustomOpLists()
    lists.unsupported_list = set()
    return lists

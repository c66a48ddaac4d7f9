"""Dynamic-to-static on the IPU: one call of a model is one run of its compiled program.

``IpuStrategy`` in dynamic mode replaces how ``paddle.jit`` makes programs: with backward and optimizer ops, compiled
for the device. This module runs them, which the stock wheel does in an op of the CPU, and keeps the whole of a model in
one program, which the stock wheel no longer does.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import paddle
from paddle.base import compiler, core, framework
from paddle.jit.dy2static import program_translator

from ipu_conformance.emulator.paddle.compile.passes.popart import RUNTIME

_WHOLE = "_whole_for_the_ipu"
"""Where a function keeps its companion that makes one program."""


def is_compiled(program: Any) -> bool:
    """Whether a program runs on the device."""
    return any(op.type == RUNTIME for op in program.global_block().ops)


def run(layer: Any, inputs: Any) -> Any:
    """Run the compiled program of a model on dynamic tensors, and give the model's outputs in their own structure."""
    tensors, names = layer._prepare_inputs(inputs)
    arrays = _run(layer._origin_main_program, {name: tensor.numpy() for name, tensor in zip(names, tensors)})
    return layer._remove_no_value(layer._restore_out([_tensor(array) for array in arrays]))


def _run(program: Any, feed: Dict[str, np.ndarray]) -> List[np.ndarray]:
    (runtime,) = [op for op in program.global_block().ops if op.type == RUNTIME]
    with framework._dygraph_guard(None):
        outputs: List[np.ndarray] = paddle.static.Executor(paddle.CPUPlace()).run(
            program, feed=feed, fetch_list=list(runtime.output("FetchList")), scope=paddle.static.global_scope()
        )
    return outputs


def _tensor(array: np.ndarray) -> Any:
    """A dynamic tensor on the host, which nothing can be differentiated through: the device has done it."""
    tensor = core.eager.Tensor(value=np.ascontiguousarray(array), place=core.CPUPlace())
    tensor.stop_gradient = True
    return tensor


def on_the_device(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def call(self: Any, inputs: Any) -> Any:
        return run(self, inputs) if is_compiled(self._origin_main_program) else stock(self, inputs)

    return call


def is_patched() -> bool:
    """Whether a strategy has registered its patches, so that programs are made for the device."""
    return bool(program_translator.ProgramCache.__getitem__.__module__ == compiler.__name__)


def with_shapes_as_asked(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Functions are traced with the shapes of their ``InputSpec``, also where a call holds several micro-batches.

    Paddle traced so until 2.4; since then a call whose shape is another is traced with its own.
    """

    @functools.wraps(stock)
    def args_to_input_spec(self: Any, args: Any, kwargs: Any) -> Any:
        traced, words = stock(self, args, kwargs)
        for asked, one in zip((self._input_spec or ()) if is_patched() else (), traced):
            if isinstance(asked, paddle.static.InputSpec) and _is_several(one.shape, asked.shape):
                one.shape = asked.shape
        return traced, words

    return args_to_input_spec


def _is_several(shape: Sequence[int], asked: Sequence[Optional[int]]) -> bool:
    """Whether a shape is that of several micro-batches of a shape that was asked for."""
    if not asked or len(shape) != len(asked) or tuple(shape[1:]) != tuple(asked[1:]):
        return False
    first = asked[0] or 0
    return first > 0 and shape[0] > first and shape[0] % first == 0


def as_one_program(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of a function that ``to_static`` would cut into several programs make one program for the device."""

    @functools.wraps(stock)
    def _perform_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_patched():
            return stock(self, *args, **kwargs)
        if _WHOLE not in self.__dict__:
            whole = program_translator.ASTStaticFunction(self._dygraph_function, self._input_spec, **self._kwargs)
            whole._class_instance = self._class_instance
            setattr(self, _WHOLE, whole)
        return getattr(self, _WHOLE)._perform_call(*args, **kwargs)

    return _perform_call

"""Custom ops of the IPU, written in Python where the vendor's are C++ against PopART.

``register`` takes an op's forward function and its gradient, in NumPy or in Paddle's own ops, and gives a function that
adds the op to a static program. ``IpuStrategy.add_custom_op`` then maps its name to PopART's, as on an IPU build::

    def forward(x, *, alpha):
        return np.where(x > 0, x, alpha * x)

    def gradient(x, y, grad, *, alpha):
        return np.where(x > 0, grad, alpha * grad)

    leaky = custom_ops.register("custom_leaky_relu", forward, gradient)
    y = leaky(x, alpha=0.125)
    strategy.add_custom_op("custom_leaky_relu", "LeakyRelu", domain="custom.ops", version=1)
"""

from __future__ import annotations

import functools
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle
from paddle.base.layer_helper import LayerHelper

from ipu_conformance.emulator.faults.decisions import paddle_host as decide
from ipu_conformance.emulator.paddle.run import callables
from ipu_conformance.errors import ConformanceError

NAME, ATTRIBUTES = "custom_op", "custom_op_attributes"
"""The attributes that mark an op of a program as a custom one: its name, and its own attributes as JSON."""

_SURVIVING = "backward_skip_vars"
"""An attribute of Paddle's own that survives saving, which drops those it does not know: it holds both as well.

It names variables that the gradient does not need; names of none are ignored.
"""

Function = Callable[..., Any]
Shape = Sequence[int]


class CustomOpError(ConformanceError, RuntimeError):
    """A custom op is not registered, or is registered or used wrongly."""


@dataclass(frozen=True)
class CustomOp:
    """A registered op."""

    name: str
    forward: Function
    gradient: Optional[Function]
    shapes: Optional[Function]
    """From the shapes of the inputs, and the attributes, those of the outputs; None: all as the first input."""
    composed: bool
    """Whether ``forward`` is written in Paddle's ops, which then have Paddle's gradients."""

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        """Add the op to the program that is being built; one output comes alone, several as a tuple."""
        self._check(inputs, attributes)
        return self._compose(inputs, attributes) if self.composed else self._append(inputs, attributes)

    def _check(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
        if paddle.in_dynamic_mode():
            raise CustomOpError(f"custom op {self.name!r} was called in dynamic mode; call it while a program is built")
        for value in inputs:
            if not isinstance(value, paddle.static.Variable):
                raise CustomOpError(
                    f"custom op {self.name!r} was given a {type(value).__name__} as an input; give variables of the "
                    f"program by position, and attributes by name"
                )
        if not inputs:
            raise CustomOpError(f"custom op {self.name!r} was called without inputs; give at least one variable")
        try:
            inspect.signature(self.forward).bind(*inputs, **attributes)
        except TypeError as error:
            raise CustomOpError(
                f"custom op {self.name!r} cannot be called with {len(inputs)} inputs and the attributes "
                f"{sorted(attributes)}: {error}"
            ) from error

    def _compose(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        block = inputs[0].block.program.current_block()
        first = len(block.ops)
        made = self.forward(*inputs, **attributes)
        for op in block.ops[first:]:
            op.desc._set_attr(NAME, self.name)
        return made

    def _append(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        written = _written(self.name, attributes)
        helper = LayerHelper(self.name)
        outputs = []
        for shape in self._output_shapes([tuple(value.shape) for value in inputs], attributes):
            out = helper.create_variable_for_type_inference(inputs[0].dtype)
            out.desc.set_shape(list(shape))
            outputs.append(out)
        forward, gradient = _numbers(self, written)
        op = helper.append_op(
            type=callables.CALL,
            inputs={"X": list(inputs)},
            outputs={"Out": outputs},
            attrs={
                "forward_callable_id": forward,
                "backward_callable_id": gradient,
                _SURVIVING: [NAME, self.name, written],
            },
        )
        _mark(op.desc)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _output_shapes(self, shapes: List[Shape], attributes: Mapping[str, Any]) -> List[Shape]:
        if self.shapes is None:
            return [shapes[0]]
        made = list(self.shapes(*shapes, **attributes))
        return made if made and not isinstance(made[0], int) else [made]


_REGISTERED: Dict[str, CustomOp] = {}


def register(
    name: str,
    forward: Function,
    gradient: Optional[Function] = None,
    *,
    shapes: Optional[Function] = None,
    composed: bool = False,
) -> CustomOp:
    """Register an op and give the function that adds it to a program; registering a name again replaces it.

    ``forward(*inputs, **attributes)`` gives the output, or a tuple of several. With ``composed`` it is called once, on
    variables of the program, and writes Paddle ops; otherwise it is called in every run on NumPy arrays, and
    ``gradient(*inputs, *outputs, *gradients of the outputs, **attributes)`` gives the gradients of the inputs.
    ``shapes(*shapes of the inputs, **attributes)`` gives the shape of the output, or a list of several; without it,
    there is one output, with the shape of the first input.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise CustomOpError(f"the name of a custom op is an identifier, not {name!r}")
    if name in _stock_ops():
        raise CustomOpError(f"{name!r} is an op of Paddle's own; choose another name for the custom op")
    if composed and (gradient is not None or shapes is not None):
        raise CustomOpError(
            f"custom op {name!r} is composed of Paddle ops, whose gradients and shapes Paddle knows; leave them out"
        )
    op = CustomOp(name, forward, gradient, shapes, composed)
    _REGISTERED[name] = op
    return op


@functools.lru_cache(maxsize=1)
def _stock_ops() -> FrozenSet[str]:
    """The types of all ops that this build of Paddle has."""
    return frozenset(proto.type for proto in paddle.base.framework.get_all_op_protos())


def name_of(op: Any) -> Optional[str]:
    """The name of the custom op that an op of a program stands for, None for Paddle's own."""
    desc = getattr(op, "desc", op)
    return str(desc.attr(NAME)) if desc.has_attr(NAME) else None


def bind(program: Any, strategy: Any) -> None:
    """Let a program's custom ops call what is registered in this process; one that nobody registered is an error.

    A program that was saved and loaded still has the numbers of the process that saved it. Names that the strategy maps
    must be registered, or be ops of Paddle's.
    """
    for row in strategy.custom_ops:
        known = row.paddle_op in _REGISTERED or row.paddle_op in _stock_ops()
        if not decide("custom op is registered", known):
            raise _unregistered(row.paddle_op)
    for block in program.blocks:
        for op in block.ops:
            if op.type != callables.CALL or not _mark(op.desc):
                continue
            name = str(op.desc.attr(NAME))
            if name not in _REGISTERED:
                raise _unregistered(name)
            forward, gradient = _numbers(_REGISTERED[name], str(op.desc.attr(ATTRIBUTES)))
            op.desc._set_attr("forward_callable_id", forward)
            op.desc._set_attr("backward_callable_id", gradient)


def _mark(desc: Any) -> bool:
    """Write on a call which custom op it is, as saving may have dropped; whether it is one."""
    kept = list(desc.attr(_SURVIVING)) if desc.has_attr(_SURVIVING) else []
    if len(kept) != 3 or kept[0] != NAME:
        return False
    desc._set_attr(NAME, kept[1])
    desc._set_attr(ATTRIBUTES, kept[2])
    return True


def _unregistered(name: str) -> CustomOpError:
    known = ", ".join(sorted(_REGISTERED)) or "none"
    return CustomOpError(
        f"nobody registered the custom op {name!r} (registered: {known}); "
        f"call ipu_conformance.emulator.paddle.api.custom_ops.register before the program is compiled"
    )


def _written(name: str, attributes: Mapping[str, Any]) -> str:
    """An op's attributes as they are kept in the program, and saved with it."""
    try:
        return json.dumps(dict(attributes), sort_keys=True)
    except TypeError as error:
        raise CustomOpError(
            f"custom op {name!r} has an attribute that cannot be saved with the program ({error}); "
            f"use numbers, strings, and lists of them"
        ) from error


@functools.lru_cache(maxsize=None)
def _numbers(op: CustomOp, written: str) -> Tuple[int, int]:
    """The numbers of an op's functions with the given attributes, made once."""
    attributes = json.loads(written)
    forward = callables.register(_called(op.forward, attributes))
    return forward, callables.NONE if op.gradient is None else callables.register(_called(op.gradient, attributes))


def _called(function: Function, attributes: Mapping[str, Any]) -> Function:
    """The function on arrays as Paddle calls it, on tensors; results have the type of the first operand."""

    def called(*tensors: Any) -> List[Any]:
        arrays = [np.array(tensor) for tensor in tensors]
        made = function(*arrays, **attributes)
        results = made if isinstance(made, (tuple, list)) else [made]
        return [callables.tensor(np.asarray(result).astype(arrays[0].dtype)) for result in results]

    return called


def refuse_sources(load: Function) -> Function:
    """``paddle.utils.cpp_extension.load`` that builds C++ ops for the CPU and refuses those written against PopART."""

    @functools.wraps(load)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(load).bind(*args, **kwargs).arguments
        for source in given.get("sources") or ():
            if decide("source is for the IPU", _is_for_the_ipu(Path(source))):
                raise CustomOpError(
                    f"{source} is a custom op in C++ for the IPU, and the emulator has no PopART to build it with; "
                    f"write the op in Python with ipu_conformance.emulator.paddle.api.custom_ops.register"
                )
        return load(*args, **kwargs)

    return checked


def _is_for_the_ipu(source: Path) -> bool:
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # Paddle's own load names the file that is missing.
    return any(f"#include <{header}" in text for header in ("popart", "poplar", "popops", "popnn"))


_BINDING = "_binds_custom_ops"


def install(package: Any) -> None:
    """Bind the custom ops of programs that are compiled, and let ``cpp_extension`` refuse what it cannot build."""
    from paddle.base import compiler
    from paddle.utils import cpp_extension

    stock = compiler.IpuCompiledProgram.compile
    if getattr(stock, _BINDING, False):
        return

    @functools.wraps(stock)
    def compile(self: Any, feed_list: Any, fetch_list: Any) -> Any:
        bind(self._program, self._ipu_strategy._ipu_strategy)
        return stock(self, feed_list, fetch_list)

    setattr(compile, _BINDING, True)
    compiler.IpuCompiledProgram.compile = compile
    cpp_extension.load = refuse_sources(cpp_extension.load)

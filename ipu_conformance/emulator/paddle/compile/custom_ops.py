"""The custom ops of a program: what an op of the program calls, and which ops this process has registered."""

from __future__ import annotations

import functools
import inspect
import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle
from paddle.base.layer_helper import LayerHelper

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import subprograms
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
        outputs = self.forward(*inputs, **attributes)
        for op in block.ops[first:]:
            op.desc._set_attr(NAME, self.name)
        return outputs

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
            type=subprograms.CALL,
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
        output_shapes = list(self.shapes(*shapes, **attributes))
        return output_shapes if output_shapes and not isinstance(output_shapes[0], int) else [output_shapes]


REGISTERED: Dict[str, CustomOp] = {}
"""The ops of this process by name."""


@functools.lru_cache(maxsize=1)
def stock_ops() -> FrozenSet[str]:
    """The types of all ops that this build of Paddle has."""
    return frozenset(proto.type for proto in paddle.base.framework.get_all_op_protos())


def name_of(op: Any) -> Optional[str]:
    """The name of the custom op that an op of a program stands for, None for Paddle's own."""
    desc = getattr(op, "desc", op)
    return str(desc.attr(NAME)) if desc.has_attr(NAME) else None


def bind(program: Any, strategy: Any) -> None:
    """Point a program's custom ops at the functions registered in this process; a missing one is an error.

    A program that was saved and loaded still has the numbers of the process that saved it. Names that the strategy maps
    must be registered, or be ops of Paddle's.
    """
    for row in strategy.custom_ops:
        known = row.paddle_op in REGISTERED or row.paddle_op in stock_ops()
        refusals.CUSTOM_OP(name=row.paddle_op, known=known, registered=REGISTERED)
    for block in program.blocks:
        for op in block.ops:
            if op.type != subprograms.CALL or not _mark(op.desc):
                continue
            name = str(op.desc.attr(NAME))
            refusals.CUSTOM_OP(name=name, known=name in REGISTERED, registered=REGISTERED)
            forward, gradient = _numbers(REGISTERED[name], str(op.desc.attr(ATTRIBUTES)))
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
    forward = subprograms.register(_called(op.forward, attributes))
    return forward, subprograms.NO_FUNCTION if op.gradient is None else subprograms.register(
        _called(op.gradient, attributes)
    )


def _called(function: Function, attributes: Mapping[str, Any]) -> Function:
    """The function on arrays as Paddle calls it, on tensors; results have the type of the first operand."""

    def called(*tensors: Any) -> List[Any]:
        arrays = [np.array(tensor) for tensor in tensors]
        result = function(*arrays, **attributes)
        results = result if isinstance(result, (tuple, list)) else [result]
        return [subprograms.tensor(np.asarray(result).astype(arrays[0].dtype)) for result in results]

    return called

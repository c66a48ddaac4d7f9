"""Programs assembled from the ops of another one, and the Python functions that their ops call."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

import numpy as np
from paddle.base import core, data_feeder, framework

CPU = core.CPUPlace()
_EMPTY = core.empty_var_name()


def program_of(desc: Any) -> Any:
    """The Program around a description."""
    return framework.Program._construct_from_desc(desc)


@dataclass(frozen=True)
class Described:
    """A program that is executed as its description stands, without Paddle's Python objects for variables and ops.

    Making those takes longer than compiling does otherwise, and they are cycles, which wait for the garbage collector.
    """

    desc: Any

    @classmethod
    def copy(cls, program: Any) -> Described:
        """A copy of a program's description."""
        return cls(core.ProgramDesc(program.desc))

    def program(self) -> Any:
        """Paddle's own Program around the description."""
        return program_of(self.desc)


def variables(*programs: Any) -> Dict[str, Any]:
    """The descriptions of all variables by name; where programs share a name, the first one's counts."""
    descriptions: Dict[str, Any] = {}
    for program in programs:
        for desc in program.desc.block(0).all_vars():
            descriptions.setdefault(desc.name(), desc)
    return descriptions


@dataclass(frozen=True)
class TensorSpec:
    """A variable that crosses between host and device: the shape of one micro-batch, and its type."""

    name: str
    shape: Tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, desc: Any) -> TensorSpec:
        """As a program declares it."""
        dtype = str(data_feeder.convert_dtype(desc.dtype()))
        return cls(desc.name(), tuple(int(size) for size in desc.shape()), dtype)

    @property
    def stored(self) -> str:
        """The type of the tensor that holds it: the CPU has few kernels for float16, which is held in float32."""
        return "float32" if self.dtype == "float16" else self.dtype


def ops_of(program: Any) -> List[Any]:
    """The descriptions of the ops of the global block."""
    block = program.desc.block(0)
    return [block.op(index) for index in range(block.op_size())]


def reads(op: Any) -> List[str]:
    """The variables that an op reads."""
    return [name for name in op.input_arg_names() if name != _EMPTY]


def writes(op: Any) -> List[str]:
    """The variables that an op writes."""
    return [name for name in op.output_arg_names() if name != _EMPTY]


def touched(ops: Iterable[Any]) -> Set[str]:
    """Every variable that ops read or write."""
    return {name for op in ops for name in (*reads(op), *writes(op))}


def assemble(ops: Sequence[Any], known: Mapping[str, Any], kept: Iterable[str] = ()) -> Described:
    """A program of copies of ``ops``; what is in ``kept`` stays in the scope, all else is gone after a run."""
    desc = core.ProgramDesc()
    block = desc.block(0)
    lasting = set(kept)
    for name in sorted(touched(ops)):
        declare(block, known[name], lasting)
    for op in ops:
        block.append_op().copy_from(op)
    return Described(desc)


def declare(block: Any, source: Any, lasting: Set[str]) -> None:
    """Declare in a block a variable that is like another one."""
    name = source.name()
    var = block.var(name.encode())
    var.set_type(source.type())
    if source.type() == core.VarDesc.VarType.LOD_TENSOR:
        var.set_dtype(source.dtype())
        var.set_shape(source.shape())
    var.set_stop_gradient(source.stop_gradient())
    var.set_persistable(name in lasting)


def new_variable(block: Any, name: str, dtype: Any, shape: Iterable[int]) -> Any:
    """Declare a tensor in a block."""
    var = block.var(name.encode())
    var.set_type(core.VarDesc.VarType.LOD_TENSOR)
    var.set_dtype(dtype)
    var.set_shape(list(shape))
    return var


class Scratch:
    """A place for ops and variables that belong to no program of the user's; they live as long as it does."""

    def __init__(self) -> None:
        self.desc = core.ProgramDesc()
        self.block = self.desc.block(0)
        self.known: Dict[str, Any] = {}

    def variable(self, name: str, like: Any) -> str:
        """Declare a tensor that is like another one."""
        if name not in self.known:
            self.known[name] = new_variable(self.block, name, like.dtype(), like.shape())
        return name

    def number(self, name: str) -> str:
        """Declare a tensor that holds one number."""
        if name not in self.known:
            self.known[name] = new_variable(self.block, name, core.VarDesc.VarType.FP32, [1])
        return name

    def op(self, kind: str, inputs: Mapping[str, List[str]], output: str, **attributes: Any) -> Any:
        """A new op that writes ``output`` as its ``Out``."""
        op = self.block.append_op()
        op.set_type(kind)
        for slot, names in inputs.items():
            op.set_input(slot, names)
        op.set_output("Out", [output])
        for name, value in attributes.items():
            op._set_attr(name, value)
        op.check_attrs()
        return op


CALL = "py_func"
"""The type of Paddle's own op that calls a Python function."""

NO_FUNCTION = -1
"""What an op has in place of a function's number when it calls none."""


def register(function: Callable[..., Any]) -> int:
    """The number by which Paddle's ``py_func`` op calls a function, for as long as the process lives.

    Paddle releases functions after the interpreter is gone, where freeing one would abort the process: this one keeps
    a reference for ever.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
    number: int = core._append_python_callable_object_and_return_id(function)
    return number


def tensor(array: Any) -> Any:
    """A tensor of Paddle's with the values of an array."""
    result = core.LoDTensor()
    result.set(np.asarray(array, order="C"), CPU)
    return result

"""Pieces of a program that run on their own: ops copied out of it, and the variables that outlive a run."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Set

from paddle.base import core, framework

CPU = core.CPUPlace()
_PLACE = core.Place()
_PLACE.set_place(CPU)
_EMPTY = core.empty_var_name()
_NO_FEEDS: List[str] = []


# Handing each op to a pool of threads, of which every piece has its own, costs more than the ops of a small net; the
# kernels of a large one use all cores by themselves.
_IN_ORDER = ("FLAGS_new_executor_serial_run", "FLAGS_new_executor_sequential_run")
_CHECK = "FLAGS_check_nan_inf"
_FLAGS = core.globals()


@contextlib.contextmanager
def in_order(*, checked: bool = False) -> Iterator[None]:
    """Pieces that run inside execute their ops one after the other in the caller's thread; they never run outside.

    With ``checked``, an op that makes a NaN or an infinity is an error.
    """
    flags = (*_IN_ORDER, _CHECK) if checked else _IN_ORDER
    before = [_FLAGS[flag] for flag in flags]
    for flag in flags:
        _FLAGS[flag] = True
    try:
        yield
    finally:
        for flag, value in zip(flags, before):
            _FLAGS[flag] = value


def variables(*programs: Any) -> Dict[str, Any]:
    """The descriptions of all variables by name; where programs share a name, the first one's counts."""
    found: Dict[str, Any] = {}
    for program in programs:
        for desc in program.desc.block(0).all_vars():
            found.setdefault(desc.name(), desc)
    return found


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


def assemble(ops: Sequence[Any], known: Mapping[str, Any], kept: Iterable[str] = ()) -> Any:
    """A Program of copies of ``ops``; what is in ``kept`` stays in the scope, all else is gone after a run."""
    desc = core.ProgramDesc()
    block = desc.block(0)
    lasting = set(kept)
    for name in sorted(touched(ops)):
        declare(block, known[name], lasting)
    for op in ops:
        block.append_op().copy_from(op)
    return framework.Program._construct_from_desc(desc)


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


class Scratch:
    """A place for ops and variables that belong to no program of the user's; they live as long as it does."""

    def __init__(self) -> None:
        self.desc = core.ProgramDesc()
        self.block = self.desc.block(0)
        self.known: Dict[str, Any] = {}

    def variable(self, name: str, like: Any) -> str:
        """Declare a variable that is like another one."""
        if name not in self.known:
            var = self.block.var(name.encode())
            var.set_type(like.type())
            var.set_dtype(like.dtype())
            var.set_shape(like.shape())
            self.known[name] = var
        return name

    def number(self, name: str) -> str:
        """Declare a variable that holds one number."""
        if name not in self.known:
            var = self.block.var(name.encode())
            var.set_type(core.VarDesc.VarType.LOD_TENSOR)
            var.set_dtype(core.VarDesc.VarType.FP32)
            var.set_shape([1])
            self.known[name] = var
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


class Piece:
    """A Program bound to one scope."""

    def __init__(self, program: Any, scope: Any) -> None:
        self.program = program
        self._executor = core.StandaloneExecutor(
            _PLACE, core.Plan([core.Job("default")], {"default": program.desc}), scope
        )

    def run(self) -> None:
        """Execute every op once."""
        self._executor.run(_NO_FEEDS, False)


class Cells:
    """The tensors of one scope by name, each looked up once."""

    def __init__(self, scope: Any) -> None:
        self.scope = scope
        self._found: Dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self.scope.var(name).get_tensor()
        return found

    def take(self, names: Iterable[str]) -> Dict[str, Any]:
        """Move tensors out of the scope: the next run makes new ones."""
        moved = {}
        for name in names:
            own, other = self[name], core.LoDTensor()
            other._share_data_with(own)
            own._clear()
            moved[name] = other
        return moved

    def clear(self, names: Iterable[str]) -> None:
        """Let go of tensors, lest a later run writes to memory that is in use elsewhere."""
        for name in names:
            self[name]._clear()

    def put(self, tensors: Mapping[str, Any]) -> None:
        """Let the scope have tensors, or copies of arrays, under their names."""
        for name, value in tensors.items():
            if isinstance(value, core.LoDTensor):
                self[name]._share_data_with(value)
            else:
                self[name].set(value, CPU)

    def copy(self, values: Mapping[str, Any]) -> None:
        """Let the scope have copies of tensors or arrays under their names, in memory of its own."""
        for name, value in values.items():
            if isinstance(value, core.LoDTensor):
                self[name]._copy_from(value, CPU)
            else:
                self[name].set(value, CPU)

"""Paddle's own executor and scopes, as one replica uses them: programs bound to a scope, and its variables."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterable, Iterator, List, Mapping, MutableMapping

from paddle.base import core

CPU = core.CPUPlace()
_PLACE = core.Place()
_PLACE.set_place(CPU)
_NO_FEEDS: List[str] = []

# Every program has a pool of threads, and handing each op to it costs more than the ops of a small net; the kernels of
# a large one use all cores by themselves.
_IN_ORDER = ("FLAGS_new_executor_serial_run", "FLAGS_new_executor_sequential_run")
_CHECK = "FLAGS_check_nan_inf"
_THREADS = "OMP_NUM_THREADS"
"""Where Paddle keeps the number of threads that it has told MKL, 1 unless the user has set another."""
_FLAGS = core.globals()


@contextlib.contextmanager
def in_order(*, checked: bool = False) -> Iterator[None]:
    """Bound programs execute their ops one after the other in the caller's thread; they run only inside this context.

    MKL splits the sums of a product among its threads, so that their number would show in the last bits: it has one.
    With ``checked``, an op that makes a NaN or an infinity is an error.
    """
    flags = (*_IN_ORDER, _CHECK) if checked else _IN_ORDER
    before = [_FLAGS[flag] for flag in flags]
    threads = int(os.environ.get(_THREADS, "1"))
    for flag in flags:
        _FLAGS[flag] = True
    if threads != 1:
        core.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            core.set_num_threads(threads)
        for flag, value in zip(flags, before):
            _FLAGS[flag] = value


class BoundProgram:
    """A Program bound to one scope."""

    def __init__(self, program: Any, scope: Any) -> None:
        self.program = program
        self._executor = core.StandaloneExecutor(
            _PLACE, core.Plan([core.Job("default")], {"default": program.desc}), scope
        )

    def run(self) -> None:
        """Execute every op once."""
        self._executor.run(_NO_FEEDS, False)


def release(bound: MutableMapping[Any, BoundProgram], scopes: Iterable[Any]) -> None:
    """Free scopes and the programs that are bound to them; nothing may use either afterwards.

    Paddle keeps every scope for as long as the process lives, whether Python still knows it or not.
    """
    bound.clear()  # an executor points into its scope, so it goes first
    for scope in scopes:
        scope._remove_from_pool()


class VariableScope:
    """The variables of one scope by name, each looked up once."""

    def __init__(self, scope: Any) -> None:
        self.scope = scope
        self._tensors: Dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = self.scope.var(name).get_tensor()
        return tensor

    def take(self, names: Iterable[str]) -> Dict[str, Any]:
        """Move tensors out of the scope: the next run makes new ones."""
        moved = {}
        for name in names:
            moved[name] = core.LoDTensor()
            moved[name]._share_data_with(self[name])
            self[name]._clear()
        return moved

    def clear(self, names: Iterable[str]) -> None:
        """Release tensors, whose memory may be in use elsewhere: a later run must not write to it."""
        for name in names:
            self[name]._clear()

    def put(self, tensors: Mapping[str, Any]) -> None:
        """Set variables: tensors share their memory with the scope, arrays are copied."""
        for name, value in tensors.items():
            if isinstance(value, core.LoDTensor):
                if value is not self[name]:
                    self[name]._share_data_with(value)
            else:
                self[name].set(value, CPU)

    def copy(self, values: Mapping[str, Any]) -> None:
        """Set variables to copies of tensors or arrays."""
        for name, value in values.items():
            if isinstance(value, core.LoDTensor):
                self[name]._copy_from(value, CPU)
            else:
                self[name].set(value, CPU)

"""Lets ``paddle.static.Executor`` run compiled programs on the emulated device."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Dict, List, Optional

import numpy as np

RUNTIME = "ipu_runtime"
EXECUTABLE = "_ipu_executable"
"""The attribute of a compiled Program that holds its executable."""


def install(paddle: Any) -> None:
    """Add the backend to Paddle's core and let executors recognise compiled programs; a second call does nothing."""
    from paddle.base import compiler, core, executor

    from ipu_conformance.emulator.paddle.api.backend import IpuBackend

    if getattr(core, "IpuBackend", None) is IpuBackend:
        return
    core.IpuBackend = IpuBackend
    compiler.IpuCompiledProgram.compile = _remembering(compiler.IpuCompiledProgram.compile)
    executor.Executor._run_impl = _running(executor.Executor._run_impl)


def _remembering(stock: Any) -> Any:
    """Compiling leaves on the Program which executable it runs."""

    @functools.wraps(stock)
    def compile(self: Any, feed_list: Any, fetch_list: Any) -> Any:
        program = stock(self, feed_list, fetch_list)
        setattr(program, EXECUTABLE, self._backend.executable)
        return program

    return compile


def _running(stock: Any) -> Any:
    @functools.wraps(stock)
    def _run_impl(self: Any, program: Any = None, **given: Any) -> Any:
        executable = getattr(program, EXECUTABLE, None)
        if executable is None and not _is_compiled(program):
            return stock(self, program=program, **given)
        return _run(self, program, executable, **given)

    return _run_impl


def _is_compiled(program: Any) -> bool:
    """Whether a Program consists of the op that runs the device: a copy of a compiled one has it too."""
    if not hasattr(program, "global_block"):
        return False
    # Stock programs come by here in every run, so their ops are only counted.
    ops = program.global_block().ops
    return len(ops) == 1 and ops[0].type == RUNTIME


def _run(
    executor: Any,
    program: Any,
    executable: Any,
    *,
    feed: Any,
    fetch_list: Any,
    scope: Any,
    return_numpy: bool,
    **unused: Any,
) -> List[Any]:
    """One run of a compiled program, as ``Executor.run`` is asked for it."""
    from paddle.base import core
    from paddle.base.executor import global_scope

    from ipu_conformance.emulator.faults.decisions import paddle_execution as decide
    from ipu_conformance.emulator.paddle import environment
    from ipu_conformance.emulator.paddle.errors import InvalidArgument, PreconditionNotMet
    from ipu_conformance.emulator.paddle.run import feeding

    if executor._closed:
        raise RuntimeError("Attempted to use a closed Executor")
    backend = core.IpuBackend.get_instance()
    executable = executable or backend.executable
    if executable is None:
        raise PreconditionNotMet("No program is on the device: compile this program before running it")
    names = [name if isinstance(name, str) else name.name for name in executor._check_fetch_list(fetch_list)]
    unknown = [name for name in names if name not in executable.fetches]
    if decide("refuse other fetches", bool(unknown)):
        raise InvalidArgument(
            f"{unknown[0]} was not compiled into the program: fetch {', '.join(executable.fetches)}, or compile again"
        )
    scope = global_scope() if scope is None else scope
    if hasattr(program, "lr_scheduler"):
        _schedule(program.lr_scheduler, scope)
    if environment.compile_only():
        warnings.warn("IPU_COMPILE_ONLY is set: the program was compiled and is not run", stacklevel=4)
        results = [executable.fetcher.nothing(executable.fetches[name]) for name in names]
    else:
        outputs = backend.run(executable, _one_feed(feed))
        results = [executable.fetch(name, outputs) for name in decide("order of fetches", names)]
    return results if return_numpy else [feeding.tensor(array) for array in results]


def _one_feed(feed: Optional[Any]) -> Dict[str, Any]:
    if isinstance(feed, (list, tuple)) and len(feed) == 1:
        feed = feed[0]
    if feed is None:
        return {}
    if not isinstance(feed, dict):
        raise TypeError(f"feed requires dict as its Parameter. But you passed in {type(feed)}")
    return feed


def _schedule(scheduler: Any, scope: Any) -> None:
    """Write the scheduler's learning rate where the program keeps it, as the stock executor does."""
    from paddle.base import core

    held = core.get_variable_tensor(scope, scheduler._var_name)
    held.set(np.array([scheduler()], np.float32), core.CPUPlace())

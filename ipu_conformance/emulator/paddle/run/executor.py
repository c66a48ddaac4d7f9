"""Runs of compiled programs by ``paddle.static.Executor``."""

from __future__ import annotations

import warnings
from typing import Any, Dict, List, Optional

import numpy as np
from paddle.base import core
from paddle.base.executor import global_scope
from paddle.base.framework import default_main_program

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import environment, subprograms
from ipu_conformance.emulator.paddle.compile.passes.popart import EXECUTABLE, RUNTIME
from ipu_conformance.emulator.paddle.errors import PreconditionNotMet
from ipu_conformance.emulator.paddle.run import model_runtime
from ipu_conformance.emulator.paddle.run.device import DEVICE


def is_compiled(program: Any) -> bool:
    """Whether a Program runs on the device: a copy of a compiled one does too."""
    if getattr(program, EXECUTABLE, None) is not None:
        return True
    if not hasattr(program, "global_block"):
        return False
    # Stock programs come by here in every run, so their ops are only counted.
    ops = program.global_block().ops
    return len(ops) == 1 and ops[0].type == RUNTIME


def run(
    executor: Any, program: Any, *, feed: Any, fetch_list: Any, scope: Any, return_numpy: bool, **unused: Any
) -> List[Any]:
    """One run of a compiled program."""
    if executor._closed:
        raise RuntimeError("Attempted to use a closed Executor")
    executable = getattr(program, EXECUTABLE, None) or DEVICE.executable
    if executable is None:
        raise PreconditionNotMet("No program is on the device: compile this program before running it")
    names = [name if isinstance(name, str) else name.name for name in executor._check_fetch_list(fetch_list)]
    for name in names:
        refusals.FETCH(name=name, fetches=executable.fetches)
    feeds = _one_feed(feed)
    request = model_runtime.request_of(executable, feeds)
    if hasattr(program, "lr_scheduler"):
        _schedule(program.lr_scheduler, global_scope() if scope is None else scope)
    if environment.compile_only():
        warnings.warn("IPU_COMPILE_ONLY is set: the program was compiled and is not run", stacklevel=4)
        results = [executable.fetcher.nothing(executable.fetches[name]) for name in names]
    else:
        outputs = DEVICE.run(executable, feeds if request is None else request.feeds)
        results = [executable.fetch(name, outputs) for name in names]
    if request is not None:
        results = request.answer(results)
    return results if return_numpy else [subprograms.tensor(array) for array in results]


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
    core.get_variable_tensor(scope, scheduler._var_name).set(np.array([scheduler()], np.float32), core.CPUPlace())


def count(program: Any) -> None:
    """Tell a learning rate that counts the runs of its program of one more."""
    program = default_main_program() if program is None else program
    after_run = getattr(getattr(program, "lr_scheduler", None), "after_run", None)
    if after_run is not None:
        after_run()

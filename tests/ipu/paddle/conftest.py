"""What the cases of Paddle share."""

from __future__ import annotations

import importlib
from typing import Any, Iterator

import pytest

from ipu_conformance import check


def _programs() -> Any:
    """The driver's module of programs, which imports the framework."""
    return importlib.import_module("ipu_conformance.frameworks.paddle.programs")


@pytest.fixture
def paddle() -> Iterator[Any]:
    """The framework in dynamic mode; the mode, the place and the patches of strategies are put back afterwards.

    Every case draws the same numbers, whatever ran before it in its process.
    """
    module = importlib.import_module("paddle")
    module.seed(2021)
    compiler = module.base.compiler
    cache = importlib.import_module("paddle.jit.dy2static.program_translator").ProgramCache
    kept = cache.__getitem__, module.optimizer.lr.LRScheduler.step
    place = module.framework._current_expected_place_()
    module.disable_static()
    # Paddle writes the stack into every op; the case's own part of it is enough.
    with _programs().short_stacks():
        yield module
    cache.__getitem__, module.optimizer.lr.LRScheduler.step = kept
    compiler.IpuDynamicPatcher.patcher_cache.clear()
    module.disable_static()
    module.framework._set_expected_place(place)


@pytest.fixture
def static(paddle: Any) -> Iterator[Any]:
    """``paddle.static`` in static mode, with fresh programs, a fresh scope and names that start from 0."""
    paddle.enable_static()
    main, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
    guards = paddle.static.program_guard(main, startup), paddle.static.scope_guard(scope)
    with guards[0], guards[1], paddle.utils.unique_name.guard(), _programs().emptied(scope, startup):
        yield paddle.static
    paddle.disable_static()


@pytest.fixture
def strategy(static: Any) -> Any:
    """A new strategy, made in static mode."""
    return static.IpuStrategy()


@pytest.fixture
def ipu_build(paddle: Any) -> None:
    """The cases need an IPU build: on another, where many of them would pass, they fail."""
    for module in (paddle, paddle.device):
        check.equal(actual=module.is_compiled_with_ipu(), expected=True, what=f"is_compiled_with_ipu() of {module}")

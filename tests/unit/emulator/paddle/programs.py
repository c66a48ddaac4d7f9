"""Programs for the tests of single modules: on stock Paddle, and compiled for the device."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import paddle
from paddle.base import core, framework

from ipu_conformance.emulator import hook
from ipu_conformance.emulator.paddle.compile import subprograms
from ipu_conformance.emulator.paddle.run.device import DEVICE

Build = Callable[[], Any]
"""Makes the ops of a network from the feeds that it declares, and gives its loss."""


@contextlib.contextmanager
def static() -> Iterator[Tuple[Any, Any, Any]]:
    """A fresh program, its startup program and a scope in static mode."""
    program, startup, scope = paddle.static.Program(), paddle.static.Program(), core.Scope()
    paddle.enable_static()
    try:
        guards = paddle.static.program_guard(program, startup), paddle.static.scope_guard(scope)
        with guards[0], guards[1], framework.unique_name.guard():
            yield program, startup, scope
    finally:
        paddle.disable_static()


def run(program: Any, feed: Dict[str, np.ndarray], fetch: Sequence[str], scope: Any) -> List[np.ndarray]:
    """One run on stock Paddle."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    program = program.program() if isinstance(program, subprograms.Described) else program
    fetched: List[np.ndarray] = executor.run(program, feed=feed, fetch_list=list(fetch), scope=scope)
    return fetched


def record_of(build: Build, feeds: Sequence[str], optimizer: Any = None, **options: Any) -> Any:
    """The record of a network's compilation; with an optimizer it is trained."""
    hook.install("paddle")
    with static() as (program, startup, scope):
        loss = build()
        if optimizer is not None:
            optimizer().minimize(loss)
        paddle.static.Executor(paddle.CPUPlace()).run(startup)
        strategy = paddle.static.IpuStrategy()
        strategy.set_options({"is_training": optimizer is not None, "micro_batch_size": 2, **options})
        paddle.static.IpuCompiledProgram(program, scope=scope, ipu_strategy=strategy).compile(list(feeds), [loss.name])
        return DEVICE.executable.record


def layers(*places: Any, skip: bool = False, shared: bool = False) -> Build:
    """A chain of layers, each in the shard that is given; a skip adds the first one's result to the last one's."""

    def build() -> Any:
        made = paddle.static.data("x", [None, 4], "float32")
        first = None
        for number, (index, stage) in enumerate(places):
            with paddle.static.ipu_shard_guard(index, stage):
                name = "shared" if shared else f"w{number}"
                made = paddle.tanh(paddle.static.nn.fc(made, 4, weight_attr=name, bias_attr=f"b{number}"))
                first = made if first is None else first
        with paddle.static.ipu_shard_guard(*places[-1]):
            if skip:
                made = paddle.add(made, first)
            return paddle.mean(made)

    return build


PIPELINE = {"enable_manual_shard": True, "enable_pipelining": True, "enable_gradient_accumulation": True}
"""The options of a pipeline, beside the number of IPUs and the accumulation factor."""

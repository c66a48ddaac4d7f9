"""Programs compiled on the emulator, for the tests of what the compiler makes of them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence

import paddle
from paddle.base import core

from ipu_conformance.emulator import hook

from .static_mode import static

Build = Callable[[], Any]
"""Makes the ops of a network from the feeds that it declares, and gives its loss."""


def record_of(build: Build, feeds: Sequence[str], optimizer: Any = None, **options: Any) -> Any:
    """The record of a network's compilation; with an optimizer it is trained."""
    hook.install("paddle")
    with static() as (program, startup, scope):
        made = build()
        if optimizer is not None:
            optimizer().minimize(made)
        paddle.static.Executor(paddle.CPUPlace()).run(startup)
        strategy = paddle.static.IpuStrategy()
        given: Dict[str, Any] = {"is_training": optimizer is not None, "micro_batch_size": 2, **options}
        strategy.set_options(given)
        paddle.static.IpuCompiledProgram(program, scope=scope, ipu_strategy=strategy).compile(list(feeds), [made.name])
        return core.IpuBackend.get_instance().executable.record


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

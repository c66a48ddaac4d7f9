"""A regression whose arithmetic rounds nothing in float32, as a program; ``oracle.exact`` holds its steps."""

from __future__ import annotations

import warnings
from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np

from ipu_conformance.oracle.exact import REGRESSION_RATE as RATE
from ipu_conformance.oracle.exact import REGRESSION_START as START
from ipu_conformance.oracle.exact import Step, float32, half, inexact_in_half
from ipu_conformance.oracle.exact import regression_samples as samples
from ipu_conformance.oracle.exact import regression_step as step
from ipu_conformance.oracle.exact import regression_targets as targets

__all__ = [
    "RATE",
    "REDUCTIONS",
    "START",
    "Device",
    "Static",
    "Step",
    "build",
    "compiled",
    "float32",
    "half",
    "held",
    "minimize",
    "odd",
    "samples",
    "save_squares",
    "start",
    "step",
    "targets",
    "to_half",
]

REDUCTIONS = {"sum": 0, "mean": 1, "none": 2}
"""How a loss is reduced, by the numbers that ``identity_loss`` takes."""


def odd(count: int, first: int = 0) -> np.ndarray:
    """Samples that need more than the eleven bits of float16, and so do their products."""
    return inexact_in_half(samples(count, first))


class Static(NamedTuple):
    """The model in a static program."""

    main: Any
    startup: Any
    feeds: Sequence[str]
    out: Any
    loss: Any
    halves: Sequence[str]
    """What was turned into float16."""


def build(
    paddle: Any, *, size: int = 4, optimizer: Optional[Any] = None, half: Optional[str] = None, cut: bool = False
) -> Static:
    """Build the model into the current programs.

    ``half`` turns it into float16 before or after the optimizer, or by hand, by casts that lie in the model's stages.
    """
    narrow = (lambda value: paddle.cast(value, "float16")) if half == "by hand" else (lambda value: value)
    static, main = paddle.static, paddle.static.default_main_program()
    x = static.data("x", [size, 2], "float32")
    y = static.data("y", [size, 2], "float32")
    shard = static.ipu_shard_guard
    with shard(index=0 if cut else -1, stage=0 if cut else -1):
        weight = paddle.create_parameter(
            [2], "float32", name="w", default_initializer=paddle.nn.initializer.Assign(START.astype(np.float32))
        )
        out = narrow(x) * narrow(weight)
    with shard(index=1 if cut else -1, stage=1 if cut else -1):
        loss = paddle.mean(paddle.square(out - narrow(y)))
    halves: List[str] = []
    if half == "before":
        halves = to_half(paddle, main)
    if optimizer is not None:
        minimize(optimizer, loss)
    if half == "after":
        halves = to_half(paddle, main)
    return Static(main, static.default_startup_program(), ["x", "y"], out, loss, halves)


def minimize(optimizer: Any, loss: Any) -> None:
    """Add the optimizer to the program, without Paddle's advice against optimizers of float16 weights."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Accumulating with FP16")
        optimizer.minimize(loss)


def to_half(paddle: Any, program: Any, lists: Optional[Any] = None) -> List[str]:
    """Turn a program into float16 as users do, and give the names of what must follow in the scope."""
    if lists is None:
        lists = paddle.static.amp.CustomOpLists()
        lists.unsupported_list = set()
    return list(paddle.static.amp.cast_model_to_fp16(program, lists, use_fp16_guard=False))


class Device(NamedTuple):
    """A compiled program, run by the arrays of its feeds."""

    paddle: Any
    executor: Any
    program: Any
    fetches: Sequence[Any]

    def run(self, **feed: np.ndarray) -> List[np.ndarray]:
        """One run; the fetched arrays."""
        fetched: List[np.ndarray] = self.executor.run(self.program, feed=feed, fetch_list=list(self.fetches))
        return fetched

    def weights_to_host(self) -> None:
        """Bring the weights into the scope."""
        self.paddle.base.core.IpuBackend.get_instance().weights_to_host()


def compiled(
    paddle: Any, program: Any, feeds: Sequence[str], fetches: Sequence[Any], *, size: int = 4, **options: Any
) -> Device:
    """Compile a program for the device; ``options`` are those of the strategy."""
    strategy = paddle.static.IpuStrategy()
    strategy.set_options({"micro_batch_size": size, **options})
    names = [fetch if isinstance(fetch, str) else fetch.name for fetch in fetches]
    made = paddle.static.IpuCompiledProgram(program, ipu_strategy=strategy).compile(list(feeds), names)
    return Device(paddle, paddle.static.Executor(paddle.CPUPlace()), made, names)


def start(paddle: Any, built: Static) -> None:
    """Initialise the weights in the scope, in float16 where the program has them so."""
    paddle.static.Executor(paddle.CPUPlace()).run(built.startup)
    if built.halves:
        paddle.static.amp.cast_parameters_to_fp16(paddle.CPUPlace(), built.main, to_fp16_var_names=set(built.halves))


def held(paddle: Any, name: str = "w") -> np.ndarray:
    """What the host's scope holds of a variable."""
    return np.array(paddle.static.global_scope().find_var(name).get_tensor())


def save_squares(paddle: Any, folder: Any, size: int) -> str:
    """Save a model that squares its input, with a weight of ones, and give the prefix of its two files."""
    static = paddle.static
    x = static.data("x", [size, 2], "float32")
    ones = paddle.nn.initializer.Constant(1.0)
    out = paddle.square(x) * paddle.create_parameter([2], "float32", default_initializer=ones)
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())
    prefix = str(folder / "model")
    static.save_inference_model(prefix, [x], [out], executor)
    return prefix

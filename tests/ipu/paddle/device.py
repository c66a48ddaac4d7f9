"""Programs compiled for the device, and the ways to run and to read them."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List, Sequence

import numpy as np


class Device:
    """A program that was compiled in the global scope: the main program unless another is given."""

    def __init__(
        self, paddle: Any, fetches: Sequence[Any], strategy: Any, *, feeds: Sequence[str] = ("x",), program: Any = None
    ) -> None:
        self.paddle, self.feeds, self.fetches = paddle, list(feeds), list(fetches)
        self.executor = paddle.static.Executor(paddle.CPUPlace())
        compiled = paddle.static.IpuCompiledProgram(program, ipu_strategy=strategy)
        self.backend = compiled._backend
        names = [fetch if isinstance(fetch, str) else fetch.name for fetch in fetches]
        self.program = compiled.compile(self.feeds, names)

    def run(self, *arrays: Any, **feed: Any) -> List[np.ndarray]:
        """Feed arrays, in the order of the feeds or by name, and fetch once."""
        feed.update(zip(self.feeds, arrays))
        fetched: List[np.ndarray] = self.executor.run(self.program, feed=feed, fetch_list=self.fetches)
        return fetched

    def sync(self) -> None:
        """Bring the weights into the scope."""
        self.backend.weights_to_host()

    def value(self, name: str) -> np.ndarray:
        """One variable as the host has it."""
        return held(self.paddle, name)


def compiled(
    paddle: Any, fetches: Sequence[Any], *, feeds: Sequence[str] = ("x",), program: Any = None, size: int = 4,
    training: bool = False, **options: Any,
) -> Device:  # fmt: skip
    """A program for micro-batches of ``size`` samples; ``options`` are those of the strategy."""
    strategy = paddle.static.IpuStrategy()
    strategy.set_options({"micro_batch_size": size, "is_training": training, **options})
    return Device(paddle, fetches, strategy, feeds=feeds, program=program)


@contextlib.contextmanager
def fresh(paddle: Any) -> Iterator[None]:
    """Programs, a scope and names of their own."""
    static = paddle.static
    guards = static.program_guard(static.Program(), static.Program()), static.scope_guard(static.Scope())
    with guards[0], guards[1], paddle.utils.unique_name.guard():
        yield


def appended(
    paddle: Any, type: str, inputs: Any, slot: str = "Out", made: Any = "float32", shape: Any = None, **attributes: Any
) -> Any:  # fmt: skip
    """The output of an op that is written into the program with these attributes."""
    block = paddle.static.default_main_program().current_block()
    out = block.create_var(dtype=made, shape=shape)
    block.append_op(type=type, inputs=inputs, outputs={slot: out}, attrs=attributes)
    return out


def started(paddle: Any) -> Any:
    """An executor on the host that has run the startup program."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    return executor


def held(paddle: Any, name: str) -> np.ndarray:
    """One variable as the host's scope holds it."""
    return np.array(paddle.static.global_scope().find_var(name).get_tensor())


def save_model(paddle: Any, folder: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> str:
    """Initialise the weights, save the model from the inputs to the outputs, and give the prefix of its files."""
    prefix = str(folder / "model")
    paddle.static.save_inference_model(prefix, inputs, outputs, started(paddle))
    return prefix


def predictor_config(paddle: Any, prefix: str, *enabling: Any, **settings: Any) -> Any:
    """The configuration of a saved model's predictor on the IPU."""
    config = paddle.inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
    config.enable_ipu(*enabling)
    config.set_ipu_config(**settings)
    return config


def predicted(predictor: Any, x: Any) -> np.ndarray:
    """The output of a predictor for one input."""
    predictor.get_input_handle("x").copy_from_cpu(x)
    predictor.run()
    return np.asarray(predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu())

"""A net under training through ``IpuCompiledProgram``, run by run."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle

from ipu_conformance import frameworks
from ipu_conformance.frameworks.paddle.programs import FEEDS, Program, build
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import Array, RunConfig, Weights

Run = Callable[[Mapping[str, Array]], List[Any]]
PIPELINE_RECOMPUTATION = 3
"""PopART's type of recomputation that keeps what enters a stage and computes the rest again."""


def strategy(config: RunConfig, **changes: Any) -> Any:
    """The vendor's strategy for a configuration; ``changes`` are further options by name."""
    chosen = paddle.static.IpuStrategy()
    ipus = max(config.devices, default=config.number_of_stages - 1) + 1
    chosen.set_graph_config(
        num_ipus=ipus * config.replicas,
        is_training=config.training,
        micro_batch_size=config.micro_batch,
        enable_manual_shard=ipus > 1,
    )
    accumulating = config.gradient_accumulation > 1
    chosen.set_pipelining_config(
        enable_pipelining=_pipelined(config),
        batches_per_step=config.device_iterations,
        enable_gradient_accumulation=accumulating,
        accumulation_factor=config.gradient_accumulation,
    )
    options = {
        "random_seed": config.seed,
        "loss_scaling": float(config.loss_scale),
        "accumulation_and_replication_reduction_type": int(config.accumulation_reduction != "sum"),
    }
    if config.recompute:
        options["auto_recomputation"] = PIPELINE_RECOMPUTATION
    if config.replicas > 1:
        options.update(enable_replicated_graphs=True, replicated_graph_count=config.replicas)
    chosen.set_options({**options, **changes})
    return chosen


def compiled_for(program: Program, chosen: Any) -> Tuple[Any, Run]:
    """The compiled program of a net for a strategy, and the function that runs it once."""
    compiled = paddle.static.IpuCompiledProgram(program.main, scope=program.scope, ipu_strategy=chosen)
    feeds = list(FEEDS if program.config.training else FEEDS[:1])
    runnable = compiled.compile(feeds, [fetch.name for fetch in program.fetches])
    executor = paddle.static.Executor(paddle.IPUPlace())
    frameworks.observe("paddle", compiled)

    def run(feed: Mapping[str, Array]) -> List[Any]:
        fetched: List[Any] = executor.run(runnable, feed=dict(feed), fetch_list=program.fetches)
        return fetched

    return compiled, run


class Trainer:
    """A program that is compiled when it first runs, and again after anything else was on the device."""

    def __init__(self, program: Program, options: Mapping[str, Any]) -> None:
        self.program = program
        self.compiled: Any = None
        self._options = options
        self._run: Optional[Run] = None
        self._moves = 0

    def step(self, data: Data, step: int) -> Tuple[Array, Array]:
        """Losses and outputs of one run, at the learning rate of its step."""
        if self._run is None:
            self.compiled, self._run = compiled_for(self.program, strategy(self.program.config, **self._options))
        while self._moves < step:
            self._moves += 1
            if hasattr(self.program.rate, "step"):
                self.program.rate.step()
        logits, loss = self._run(self.program.feed(data, step))
        return array(loss), array(logits)

    def weights(self) -> Weights:
        """The trained weights, which are brought home first."""
        self._come_home()
        return self.program.weights()

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""
        self._come_home()
        return self.program.statistics()

    def evaluate(self, data: Data, step: int = 0) -> Array:
        """The outputs of a program without training that is given what was learned so far.

        There is one device: the program under training is compiled again afterwards, from what it left at home.
        """
        self._come_home()
        asked = self.program.config.inference()
        learned = self.program.main.state_dict(mode="param", scope=self.program.scope)
        self.compiled = self._run = None
        with build(self.program.net, asked) as asking:
            asking.main.set_state_dict(learned, asking.scope)
            _, run = compiled_for(asking, strategy(asked))
            return array(run(asking.feed(data, step))[0])

    def save(self, folder: Path) -> None:
        """Write what the program keeps from run to run."""
        self._come_home()
        paddle.static.save(self.program.main, str(folder / "model"))

    def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote; nothing has run yet."""
        paddle.static.load(self.program.main, str(folder / "model"))

    def _come_home(self) -> None:
        if self.compiled is not None:
            self.compiled._backend.weights_to_host()


@contextmanager
def training(
    net: Net, config: RunConfig, options: Optional[Mapping[str, Any]] = None, *, frozen: Sequence[str] = ()
) -> Iterator[Trainer]:
    """The net as a program, ready to be trained; ``options`` are further ones of the strategy.

    The layers ``frozen`` keep their weights.
    """
    with build(net, config, frozen=frozen) as program:
        yield Trainer(program, options or {})


def _pipelined(config: RunConfig) -> bool:
    return config.number_of_stages > 1 and config.schedule == "grouped"


def array(value: Any) -> Array:
    """A float64 copy of what the target returned."""
    return np.array(value, dtype=np.float64)

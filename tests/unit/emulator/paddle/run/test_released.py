"""What a finished program leaves behind: neither objects of the emulator nor memory of Paddle's."""

from __future__ import annotations

import gc
import weakref
from typing import Any, Tuple

import pytest
from paddle.base import core

from ipu_conformance.emulator.paddle.run.device import DEVICE
from ipu_conformance.frameworks.dialects import spoken
from ipu_conformance.nets import NETS, distinct_micro_batches
from ipu_conformance.run import RunConfig

pytestmark = pytest.mark.usefixtures("ipu_build")

NET = NETS["mlp"]()
CONFIGS = {
    "replicas": RunConfig(micro_batch=2, steps=2).with_counts(2, 4, 3),
    "pipeline": RunConfig(micro_batch=2, steps=2, recompute=True, stages=NET.cut(3)).with_counts(1, 5, 1),
}
for_paddle = pytest.mark.parametrize("config", [spoken("paddle", config) for config in CONFIGS.values()], ids=CONFIGS)


@pytest.fixture
def driver() -> Any:
    """The driver, which is imported after the emulator's hook."""
    import ipu_conformance.frameworks.paddle

    return ipu_conformance.frameworks.paddle


def allocated() -> int:
    """The bytes of Paddle's tensors on the host by its own count, which threads of runs would spoil as they end."""
    gc.collect()
    return int(core.host_memory_stat_current_value("Allocated", 0))


@for_paddle
def test_a_finished_program_leaves_no_tensor_behind(driver: Any, config: RunConfig) -> None:
    """The tensors of a program's replicas are gone after a reset, and those of its scope after the case."""

    def growth() -> Tuple[int, int, int, int]:
        """What a program has allocated when it is built, compiled, off the device and finished."""
        before = allocated()
        with driver.build(NET, config) as program:
            built = allocated() - before
            compiled, run = driver.compiled_for(program, driver.strategy(config))
            on_device = allocated() - before
            del compiled, run
            core.IpuBackend.get_instance().reset()
            reset = allocated() - before
        return built, on_device, reset, allocated() - before

    growth()  # the threads of programs that ran before give back what they hold when the next one is compiled
    weights, on_device, reset, finished = growth()

    assert on_device > (1 + config.replicas) * weights > 0
    assert (reset, finished) == (weights, 0)


@for_paddle
def test_what_was_on_the_device_is_released(driver: Any, config: RunConfig) -> None:
    """The executable of a finished case, its machine and all its programs are gone after the next compilation."""

    def train() -> None:
        driver.train(NET, config, distinct_micro_batches(NET, config))

    train()
    executable: Any = DEVICE.executable
    bound = list(executable.machine._programs.values())
    inner = (executable.machine, executable.engine, executable.record, executable.record.original, *bound)
    watched = [weakref.ref(thing) for thing in (executable, *inner)]
    del executable, bound, inner
    train()
    gc.collect()

    assert len(watched) > config.replicas + 5
    assert [watch() for watch in watched] == [None] * len(watched)

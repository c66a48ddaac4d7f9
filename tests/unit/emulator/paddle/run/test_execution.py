"""Compiled programs seen from inside the emulator: what they draw, what they leave behind, and what they executed."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Iterator, List

import numpy as np
import paddle
import pytest

from ipu_conformance.emulator.core import trace
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.paddle.api.backend import IpuBackend
from ipu_conformance.emulator.paddle.run.device import DEVICE

from ..programs import static

pytestmark = pytest.mark.usefixtures("ipu_build")


@contextlib.contextmanager
def compiled(build: Callable[[Any], List[Any]], *, shards: int = 1, **options: Any) -> Iterator[Any]:
    """A function that feeds ``x`` to a compiled program and gives its fetches; ``.device`` is what runs it."""
    with static() as (program, startup, scope):
        fetches = build(paddle.static.data("x", [None, 2], "float32"))
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup, scope=scope)
        strategy = paddle.static.IpuStrategy()
        strategy.set_graph_config(shards, bool(options.pop("is_training", False)), 1, shards > 1)
        strategy.set_options(options)
        made = paddle.static.IpuCompiledProgram(program, scope=scope, ipu_strategy=strategy)
        ready = made.compile(["x"], [fetch.name for fetch in fetches])

        def run(count: int, *, spoilt: bool = False) -> List[np.ndarray]:
            x = np.arange(1, count * 2 + 1, dtype=np.float32).reshape(count, 2)
            if spoilt:
                x[-1] = np.nan
            fetched: List[np.ndarray] = executor.run(ready, feed={"x": x}, fetch_list=fetches, scope=scope)
            return fetched

        run.device = DEVICE.executable  # type: ignore[attr-defined]
        yield run


def noisy(x: Any) -> List[Any]:
    """A program that adds random numbers."""
    return [paddle.add(x, paddle.uniform([2]))]


def trained(x: Any) -> List[Any]:
    """A program with one weight that trains."""
    weight = paddle.static.create_parameter([2], "float32", name="w")
    loss = paddle.mean(paddle.square(paddle.multiply(x, weight)))
    paddle.optimizer.Adam(0.5).minimize(loss)
    return [loss]


def piped(x: Any) -> List[Any]:
    """The same in two stages."""
    with paddle.static.ipu_shard_guard(index=0, stage=0):
        weight = paddle.static.create_parameter([2], "float32", name="w")
        value = paddle.tanh(paddle.multiply(x, weight))
    with paddle.static.ipu_shard_guard(index=1, stage=1):
        loss = paddle.mean(paddle.square(value))
    paddle.optimizer.Adam(0.5).minimize(loss)
    return [loss]


def test_a_seed_decides_what_is_drawn() -> None:
    """Two compilations with one seed draw the same, runs and micro-batches draw differently."""
    drawn = []
    for seed in (3, 3, 4):
        with compiled(noisy, random_seed=seed, batches_per_step=2) as run:
            drawn.append([run(2)[0], run(2)[0]])

    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0][0], drawn[0][1])
    noise = drawn[0][0].reshape(2, 2) - np.array([[1, 2], [3, 4]], np.float32)
    assert not np.array_equal(noise[0], noise[1])


def test_compiling_again_leaves_no_threads_behind() -> None:
    """The threads of replicas end with their program."""
    options = {"enable_replicated_graphs": True, "replicated_graph_count": 2, "num_ipus": 2}
    counts = []
    for _ in range(3):
        with compiled(trained, is_training=True, **options) as run:
            run(2)
            counts.append(threading.active_count())

    assert len(set(counts)) == 1


@pytest.mark.parametrize(
    ("build", "options", "count"),
    [
        (trained, {"batches_per_step": 3}, 3),
        (trained, {"enable_gradient_accumulation": True, "accumulation_factor": 3, "batches_per_step": 2}, 6),
        (piped, {"shards": 2, "enable_pipelining": True, "batches_per_step": 4}, 4),
        (piped, {"shards": 2, "enable_pipelining": True, "batches_per_step": 4, "auto_recomputation": 3}, 4),
        (piped, {"shards": 2, "batches_per_step": 2}, 2),
    ],
    ids=["batches", "accumulation", "pipeline", "recomputation", "shards"],
)
def test_a_run_executes_its_plan(build: Any, options: Any, count: int) -> None:
    """The trace of a run has the slots of the plan, in their order."""
    with compiled(build, is_training=True, **options) as run:
        run.device.tracing = True
        run(count)

        assert trace.compare(run.device.plan, run.device.last_trace) is None


def test_a_replica_has_a_scope_of_its_own() -> None:
    """A weight that is changed on one replica stays as it was on the other."""
    options = {"enable_replicated_graphs": True, "replicated_graph_count": 2, "num_ipus": 2}
    with compiled(trained, is_training=True, **options) as run:
        run.device.machine.set_weights(1, 0, {"w": np.array([5.0, 6.0], np.float32)})
        weights = [run.device.machine.read(["w"], replica)["w"].tolist() for replica in range(2)]

        assert weights[1] == [5.0, 6.0]
        assert weights[0] != weights[1]


def test_one_step_is_a_run_of_two_programs() -> None:
    """On one IPU without accumulation, forward and backward are a single program, and the update is another."""
    with compiled(trained, is_training=True) as run:
        run(1)
        run(1)

        assert [key.kind for _, key in run.device.machine._programs] == ["together", "update"]


@pytest.mark.parametrize(
    ("build", "options", "count"),
    [
        (trained, {}, 1),
        (trained, {"enable_replicated_graphs": True, "replicated_graph_count": 2, "num_ipus": 2}, 2),
        (piped, {"shards": 2, "enable_pipelining": True, "batches_per_step": 4}, 4),
        (trained, {"enable_gradient_accumulation": True, "accumulation_factor": 3}, 3),
    ],
    ids=["one IPU", "replicas", "pipeline", "accumulation"],
)
@pytest.mark.parametrize("fault", ["paddle-place-prints-cpu", "inert"])
def test_a_fault_elsewhere_changes_nothing(build: Any, options: Any, count: int, fault: str) -> None:
    """The programs that run, the losses and the weights are the same while a fault is on that the run does not meet."""
    catalogue.load("paddle")
    seen = []
    for names in ((), (fault,)):
        paddle.seed(5)
        with catalogue.inject(*names), compiled(build, is_training=True, **options) as run:
            losses = [np.asarray(run(count)[0]).tobytes() for _ in range(2)]
            machine = run.device.machine
            weights = [machine.weights(0, stage) for stage in range(len(machine.stages))]
            held = [{name: array.tobytes() for name, array in each.items()} for each in weights]
            seen.append((sorted(machine._programs), losses, held))

    assert seen[0] == seen[1]


def test_there_is_one_backend() -> None:
    """Every call gives the same backend."""
    assert IpuBackend.get_instance() is IpuBackend.get_instance() is paddle.base.core.IpuBackend.get_instance()


@pytest.mark.parametrize("strategy", [0, 1], ids=["running", "post"])
def test_a_run_that_failed_leaves_no_gradients_behind(strategy: int) -> None:
    """Where the last micro-batch is trapped, the next run updates as if the failed one had not been."""
    options = {
        "enable_gradient_accumulation": True,
        "accumulation_factor": 4,
        "enable_pipelining": True,
        "enable_floating_point_checks": True,
        "mean_accumulation_and_replication_reduction_strategy": strategy,
        "random_seed": 3,
    }
    losses = []
    for fails in (False, True):
        paddle.seed(5)
        with compiled(piped, shards=2, is_training=True, **options) as run:
            run(4)
            if fails:
                with pytest.raises(RuntimeError, match="Floating point exception"):
                    run(4, spoilt=True)
            losses.append([run(4)[0], run(4)[0]])

    np.testing.assert_array_equal(losses[0], losses[1])


def test_a_program_that_was_reset_says_so() -> None:
    """After a reset there is no program on the device, which is another reason than a newer one."""
    with compiled(trained, is_training=True) as run:
        run(1)
        IpuBackend.get_instance().reset()

        with pytest.raises(RuntimeError, match="holds no program, because it was reset"):
            run(1)

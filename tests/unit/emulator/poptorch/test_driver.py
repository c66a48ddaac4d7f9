"""The driver of PopTorch refuses what the vendor's API cannot express, and records what a run leaves behind."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from typing import Any, Dict

import pytest

from ipu_conformance import nets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.run import RunConfig, RunError, optimizer

CONFIG = RunConfig(device_iterations=2, gradient_accumulation=3, replicas=1, steps=2)
PAIRED = replace(CONFIG, stages=nets.mlp().cut(2), replicas=2)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The driver, on the emulated package."""
    emulated = importlib.import_module("ipu_conformance.emulator.poptorch.api")
    monkeypatch.setitem(sys.modules, "poptorch", emulated)
    return importlib.import_module("ipu_conformance.frameworks.poptorch")


REFUSED: Dict[str, Dict[str, Any]] = {
    "the optimizer adagrad": {"optimizer": optimizer("adagrad")},
    "gradient clipping by norm": {"clip_norm": 1.0},
    "different reductions": {"replica_reduction": "sum"},
    "the interleaved schedule": {"schedule": "interleaved"},
    "the output layout of paddle": {"output_layout": "paddle"},
    "one update for several device iterations": {"update": "run"},
    "a rate that changes on the device": {"rate_changes": "update"},
    "the learning rate inside the velocity": {"optimizer": optimizer("sgd", rate_in_velocity=True)},
    "epsilon inside the root": {"optimizer": optimizer("rmsprop", epsilon_inside=True)},
    "epsilon beside the uncorrected root": {"optimizer": optimizer("adam", epsilon_at="uncorrected")},
    "recomputation on request": {"recompute": True},
    "moments without bias correction": {"optimizer": optimizer("adam", bias_correction=False)},
    "a biased running variance": {"unbiased_statistics": False},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_vendor_has_no_words_for_is_refused(driver: Any, what: str) -> None:
    """The refusal names what was asked for, before anything runs."""
    net = nets.linear()
    config = replace(CONFIG, **REFUSED[what])

    with pytest.raises(RunError, match=what):
        driver.train(net, config, distinct_micro_batches(net, config))


def test_a_record_says_where_it_was_made(driver: Any) -> None:
    """The record of a run on the emulator holds the weights of every step and replica, and its trace."""
    net = nets.mlp()
    run = driver.train(net, PAIRED, distinct_micro_batches(net, PAIRED))

    assert (run.framework, run.target, run.net, run.config) == ("poptorch", "emulator", "mlp", PAIRED)
    assert [len(part or ()) for part in (run.weights_by_step, run.weights_by_replica)] == [2, 2]
    assert {slot.replica for slot in run.trace} == {0, 1}
    assert list(run.weights) == [weight.name for weight in net.weights]


def test_weights_of_steps_can_be_left_on_the_device(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them weights come home once, at the end."""
    executor = driver.poptorch.PoplarExecutor
    calls = []
    original = executor.copyWeightsToHost

    def counted(self: Any) -> None:
        calls.append(self)
        original(self)

    monkeypatch.setattr(executor, "copyWeightsToHost", counted)
    net = nets.linear()
    run = driver.train(net, CONFIG, distinct_micro_batches(net, CONFIG), weights_of_steps=False)

    assert run.weights_by_step is None
    assert len(calls) == 1


def test_a_vendor_s_package_is_not_looked_into(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the target is no emulator, what nobody can know is None."""
    monkeypatch.setattr(driver, "_EMULATED", False)
    net = nets.linear()
    run = driver.train(net, CONFIG, distinct_micro_batches(net, CONFIG))

    assert (run.weights_by_replica, run.trace) == (None, None)


@pytest.mark.parametrize(("schedule", "name"), [("grouped", "popart"), ("sequential", "sequential")])
def test_a_plan_follows_the_strategy(driver: Any, schedule: str, name: str) -> None:
    """Pipelined execution is planned by PopART's schedule, sharded execution one slot at a time."""
    plan = driver.plan_of(replace(PAIRED, schedule=schedule))

    assert (plan.schedule.name, plan.stages, plan.replicas, plan.updates) == (name, 2, 2, 2)

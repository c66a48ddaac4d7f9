"""The driver of Paddle refuses what the vendor's API cannot express, and its native runs are the oracle's."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Dict

import pytest

from ipu_conformance import check, nets
from ipu_conformance.emulator import hook
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs
from ipu_conformance.oracle.training.train import train as specified
from ipu_conformance.run import RunConfig, RunError, learning_rate, optimizer

CONFIG = RunConfig(
    device_iterations=2,
    gradient_accumulation=3,
    replicas=1,
    steps=2,
    learning_rate=learning_rate(base=0.25),
    output_layout="paddle",
    unbiased_statistics=False,
)
PAIRED = replace(CONFIG, stages=nets.mlp().cut(2), replicas=2)


@pytest.fixture
def driver() -> Any:
    """The driver, on the emulated build."""
    hook.install("paddle")
    return importlib.import_module("ipu_conformance.frameworks.paddle")


REFUSED: Dict[str, Dict[str, Any]] = {
    "Nesterov's momentum": {"optimizer": optimizer("sgd", momentum=0.5, nesterov=True)},
    "dampening": {"optimizer": optimizer("sgd", momentum=0.5, dampening=0.5)},
    "the learning rate inside the velocity": {"optimizer": optimizer("sgd", rate_in_velocity=True)},
    "the learning rate outside the velocity": {"optimizer": optimizer("rmsprop", epsilon_inside=True)},
    "epsilon outside the root": {"optimizer": optimizer("rmsprop", rate_in_velocity=True)},
    "epsilon inside the root": {"optimizer": optimizer("adagrad", epsilon_inside=True)},
    "epsilon beside the uncorrected root": {"optimizer": optimizer("adam", epsilon_at="uncorrected")},
    "epsilon beside the gradient or the denominator": {"optimizer": optimizer("adamax")},
    "a rate that decays with the count": {"optimizer": optimizer("adagrad", rate_decay=0.5)},
    "decoupled decay of this optimizer": {"optimizer": optimizer("adam", decoupled=True)},
    "coupled decay of adamw": {"optimizer": optimizer("adamw", decoupled=False)},
    "moments without bias correction": {"optimizer": optimizer("adam", bias_correction=False)},
    "a limit of weights' norms": {"optimizer": optimizer("lamb", max_weight_norm=1.0)},
    "a rate that changes on the device": {"rate_changes": "update"},
    "a schedule in pieces": {"learning_rate": learning_rate("exponential", every=2)},
    "pieces that include their boundary": {"learning_rate": learning_rate("piecewise", closed=True)},
    "different reductions": {"replica_reduction": "sum"},
    "the interleaved schedule": {"schedule": "interleaved"},
    "the output layout of poptorch": {"output_layout": "poptorch"},
    "one update for several batches of a step": {"update": "run"},
    "emptying a pipeline before an update": {"stages": (0, 1), "gradient_accumulation": 1},
    "recomputation on request": {"recompute": True},
    "an unbiased running variance": {"unbiased_statistics": True},
    "half precision": {"dtype": "float16"},
}


@pytest.mark.parametrize("way", ["train", "native"])
@pytest.mark.parametrize("what", REFUSED)
def test_what_the_vendor_has_no_words_for_is_refused(driver: Any, what: str, way: str) -> None:
    """The refusal names what was asked for, before anything runs."""
    net = nets.bn_convnet()
    config = replace(CONFIG, **REFUSED[what])

    with pytest.raises(RunError, match=what):
        getattr(driver, way)(net, config, distinct_micro_batches(net, config))


@pytest.mark.parametrize("name", ["bn_convnet", "dropout_net"])
def test_what_one_large_batch_cannot_show_has_no_native_run(driver: Any, name: str) -> None:
    """Micro-batches that depend on one another's absence, or on chance, are refused with a sentence."""
    net = nets.NETS[name]()

    with pytest.raises(RunError, match=name):
        driver.native(net, CONFIG, distinct_micro_batches(net, CONFIG))


@pytest.mark.parametrize("name", ["linear", "mlp", "convnet", "residual", "tied_weights"])
def test_a_native_run_is_the_oracle_s(driver: Any, name: str) -> None:
    """The stock executor, fed an update's samples at once, gives the oracle's losses, outputs and weights."""
    net = nets.NETS[name]()
    data = distinct_micro_batches(net, CONFIG)

    check.runs_equivalent(
        actual=driver.native(net, CONFIG, data),
        expected=specified(net, data, CONFIG),
        tolerance=runs.for_run(net, data, CONFIG),
    )


def test_a_record_says_where_it_was_made(driver: Any) -> None:
    """The record of a run on the emulator holds the weights of every step and replica, and its trace."""
    net = nets.mlp()
    run = driver.train(net, PAIRED, distinct_micro_batches(net, PAIRED))

    assert (run.framework, run.target, run.net, run.config) == ("paddle", "emulator", "mlp", PAIRED)
    assert len(run.weights_by_step) == PAIRED.steps
    assert len(run.weights_by_replica) == PAIRED.replicas
    assert set(run.weights) == {weight.name for weight in net.weights}
    assert run.trace
    assert run.environment["paddle"]


def test_the_mode_is_put_back(driver: Any) -> None:
    """A driver that ran in static mode leaves dynamic mode as it found it."""
    import paddle

    paddle.disable_static()
    net = nets.linear()
    driver.native(net, CONFIG, distinct_micro_batches(net, CONFIG))

    assert paddle.in_dynamic_mode()

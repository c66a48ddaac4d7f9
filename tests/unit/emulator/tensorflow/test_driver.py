"""The driver of TensorFlow refuses what the vendor's API cannot express, and its native runs are the oracle's."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Dict

import numpy as np
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
    steps=2,
    learning_rate=learning_rate(base=0.0625),
    accumulation_reduction="sum",
    replica_reduction="sum",
    output_layout="tensorflow",
)
PAIRED = replace(CONFIG, stages=nets.mlp().cut(2), replicas=2, gradient_accumulation=4)


@pytest.fixture
def driver() -> Any:
    """The driver, on the emulated build."""
    hook.install("tensorflow")
    return importlib.import_module("ipu_conformance.frameworks.tensorflow")


KERAS_ADAM = {"epsilon_at": "uncorrected"}
REFUSED: Dict[str, Dict[str, Any]] = {
    "lamb in this generation": {"optimizer": optimizer("lamb", weight_decay=0.0)},
    "dampening": {"optimizer": optimizer("sgd", momentum=0.5, dampening=0.5, rate_in_velocity=True)},
    "the learning rate outside the velocity": {"optimizer": optimizer("sgd", momentum=0.5)},
    "epsilon on this side of the root": {"optimizer": optimizer("adagrad")},
    "epsilon beside the corrected root": {"optimizer": optimizer("adam")},
    "epsilon beside the gradient or the norm": {"optimizer": optimizer("adamax")},
    "a rate that decays with the count": {"optimizer": optimizer("adagrad", rate_decay=0.5, epsilon_inside=True)},
    "decay that joins the gradient": {"optimizer": optimizer("adam", weight_decay=0.5, **KERAS_ADAM)},
    "moments without bias correction": {"optimizer": optimizer("adam", bias_correction=False, **KERAS_ADAM)},
    "this schedule on the device": {"learning_rate": learning_rate("noam"), "rate_changes": "update"},
    "pieces that end before their boundary": {"learning_rate": learning_rate("piecewise"), "rate_changes": "update"},
    "a mean over replicas": {"replicas": 2, "replica_reduction": "mean"},
    "the output layout of poptorch": {"output_layout": "poptorch"},
    "sums of outputs": {"output_mode": "sum"},
    "one update for several pipeline runs": {"update": "run"},
    "an update before a pipeline is empty": {"update": "micro_batch", "gradient_accumulation": 1},
    "a biased running variance": {"unbiased_statistics": False},
    "partial sums in half precision": {"partials": "float16"},
    "loss scaling": {"loss_scale": 2.0},
    "a device for each stage of one": {"devices": (0,)},
}


@pytest.mark.parametrize("way", ["train", "native"])
@pytest.mark.parametrize("what", REFUSED)
def test_what_the_vendor_has_no_words_for_is_refused(driver: Any, what: str, way: str) -> None:
    """The refusal names what was asked for, before anything runs."""
    net = nets.bn_convnet()
    config = replace(CONFIG, **REFUSED[what])

    with pytest.raises(RunError, match=what):
        getattr(driver, way)(net, config, distinct_micro_batches(net, config))


LEGACY: Dict[str, Dict[str, Any]] = {
    "adamw in this generation": {"optimizer": optimizer("adamw", weight_decay=0.0, **KERAS_ADAM)},
    "decoupled decay in this generation": {"optimizer": optimizer("sgd", weight_decay=0.5, decoupled=True)},
    "epsilon on this side of the root": {"optimizer": optimizer("rmsprop", epsilon_inside=True)},
}


@pytest.mark.parametrize("what", LEGACY)
def test_what_the_older_generation_lacks_is_refused(driver: Any, what: str) -> None:
    """Optimizers of TensorFlow 2.6 have fewer words, and place some epsilons elsewhere."""
    net = nets.linear()
    config = replace(CONFIG, **LEGACY[what])

    with pytest.raises(RunError, match=what):
        driver.train(net, config, distinct_micro_batches(net, config), legacy=True)


@pytest.mark.parametrize("name", ["bn_convnet", "dropout_net"])
def test_what_one_large_batch_cannot_show_has_no_native_run(driver: Any, name: str) -> None:
    """Micro-batches that depend on one another's absence, or on chance, are refused with a sentence."""
    net = nets.NETS[name]()

    with pytest.raises(RunError, match=name):
        driver.native(net, CONFIG, distinct_micro_batches(net, CONFIG))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", ["linear", "convnet", "residual"])
def test_a_native_run_is_the_oracle_s(driver: Any, name: str, reduction: str) -> None:
    """Stock Keras, fed an update's samples at once, gives the oracle's losses, outputs and weights."""
    net, config = nets.NETS[name](), replace(CONFIG, accumulation_reduction=reduction)
    data = distinct_micro_batches(net, config)

    check.runs_equivalent(
        actual=driver.native(net, config, data),
        expected=specified(net, data, config),
        tolerance=runs.for_run(net, data, config),
    )


def test_a_record_says_where_it_was_made(driver: Any) -> None:
    """The record of a run on the emulator holds the weights of every step and replica, and counts the updates."""
    net = nets.mlp()
    run = driver.train(net, PAIRED, distinct_micro_batches(net, PAIRED))

    assert (run.framework, run.target, run.net, run.config) == ("tensorflow", "emulator", "mlp", PAIRED)
    assert len(run.weights_by_step) == PAIRED.steps
    assert len(run.weights_by_replica) == PAIRED.replicas
    assert set(run.weights) == {weight.name for weight in net.weights}
    assert run.updates == PAIRED.steps * PAIRED.device_iterations
    assert run.environment["tensorflow"]


def test_a_net_with_dropout_drops(driver: Any) -> None:
    """What a net with dropout gives in training is not what the oracle gives with all values kept."""
    net = nets.dropout_net()
    data = distinct_micro_batches(net, CONFIG)
    kept = specified(net, data, CONFIG, masks=lambda layer, place, shape, rate: np.ones(shape))

    assert not np.allclose(driver.train(net, CONFIG, data).outputs[0], (kept.outputs or ())[0])

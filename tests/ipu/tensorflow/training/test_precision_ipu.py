"""Half precision: models in float16, or with some layers in it, train within what float16 explains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.run import learning_rate, optimizer

from ...training import Runs, cut, expected, ipus, tolerance
from .config import FACTORS, counted

HALF = replace(FACTORS, dtype="float16")
PIPELINED = replace(cut("mlp", counted(2, 4, 1), 2), dtype="float16")

pytestmark = pytest.mark.ipus(2)


@pytest.mark.parametrize("name", ["linear", "mlp", "residual", "tied_weights"])
def test_a_net_in_half_trains_as_specified(runs: Runs, name: str) -> None:
    """Weights and inputs in float16 give the oracle's run within the tolerance of float16."""
    runs.compare(name, HALF)


def test_convolutions_in_half_train_as_specified(runs: Runs) -> None:
    """Convolutions, whose sums may be held in float16, stay within the tolerance of such partial sums."""
    allowed = tolerance("convnet", replace(HALF, partials="float16"))

    check.runs_equivalent(actual=runs.train("convnet", HALF), expected=expected("convnet", HALF), tolerance=allowed)


@ipus(PIPELINED)
def test_a_pipeline_in_half_trains_as_specified(runs: Runs) -> None:
    """What stages hand on is float16 too."""
    runs.compare("mlp", PIPELINED)


REPLICATED = replace(counted(3, 1, 2), dtype="float16")


def test_replicas_in_half_train_as_specified(runs: Runs) -> None:
    """The sum over replicas is made in float16."""
    runs.compare("mlp", REPLICATED)


@pytest.mark.emulator
def test_replicas_in_half_hold_identical_weights(runs: Runs) -> None:
    """Replicas in float16 hold the same bits."""
    check.replicas_identical(runs.train("mlp", REPLICATED).weights_by_replica, step=REPLICATED.steps)


LAST = {"fc4": "float32"}
"""The last layer, and with it the loss, in float32."""


def test_layers_of_different_types_train_as_specified(runs: Runs) -> None:
    """A last layer in float32 after others in float16 stays within the tolerance of float16."""
    runs.compare("mlp", HALF, dtypes=LAST)


@pytest.mark.parametrize("last", [False, True], ids=["half", "last-single"])
def test_weights_are_kept_in_the_type_of_their_layer(runs: Runs, last: bool) -> None:
    """Weights of a layer in float16 hold what float16 can, those of one in float32 more than that."""
    run = runs.train("mlp", HALF, dtypes=LAST) if last else runs.train("mlp", HALF)
    coarse = {name for name, value in (run.weights or {}).items() if (np.float16(value) == value).all()}

    assert coarse == {name for name in run.weights or {} if not (last and name.startswith("fc4"))}


ADAM = optimizer("adam", beta1=0.5, beta2=0.75, epsilon=0.0625, epsilon_at="uncorrected")


def test_adam_in_half_steps_as_specified(runs: Runs) -> None:
    """Moments and steps of Adam are made in float16 as well."""
    config = replace(HALF, optimizer=ADAM, learning_rate=learning_rate(base=0.03125))

    runs.compare("mlp", config, ["losses", "weights"])


def test_half_is_coarser_than_single(runs: Runs) -> None:
    """A run in float16 differs from the one in float32, from the same weights and data that both hold exactly."""
    half, single = runs.train("mlp", HALF), runs.train("mlp", FACTORS)

    assert not (half.losses[0] == single.losses[0]).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_types_come_back_as_they_were(runs: Runs, dtype: str) -> None:
    """Variables and predictions have the type of the model."""
    driver, net = runs.driver, nets.linear()
    config = counted(1, 1, 2, training=False, dtype=dtype)
    data = nets.distinct_micro_batches(net, config)
    with driver.build(net, config) as built:
        predicted = built.model.predict(driver.dataset(built, data, 0, config.micro_batch), verbose=0)

    assert {variable.dtype.name for variable in built.model.trainable_variables} == {dtype}
    assert predicted.dtype == np.dtype(dtype)

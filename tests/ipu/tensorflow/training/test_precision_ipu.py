"""Half precision in Keras: layers have types of their own, and convolutions may hold their sums in float16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipu_conformance import check, nets

from ...training import Runs, expected, tolerance
from .config import FACTORS, counted

HALF = replace(FACTORS, dtype="float16")
LAST = {"fc4": "float32"}
"""The last layer, and with it the loss, in float32."""

pytestmark = pytest.mark.ipus(2)


def test_convolutions_in_half_train_as_specified(runs: Runs) -> None:
    """Convolutions, whose sums may be held in float16, stay within the tolerance of such partial sums."""
    allowed = tolerance("convnet", replace(HALF, partials="float16"))

    check.runs_equivalent(actual=runs.train("convnet", HALF), expected=expected("convnet", HALF), tolerance=allowed)


def test_layers_of_different_types_train_as_specified(runs: Runs) -> None:
    """A last layer in float32 after others in float16 stays within the tolerance of float16."""
    runs.compare("mlp", HALF, dtypes=LAST)


@pytest.mark.parametrize("last", [False, True], ids=["half", "last-single"])
def test_weights_are_kept_in_the_type_of_their_layer(runs: Runs, last: bool) -> None:
    """Weights of a layer in float16 hold what float16 can, those of one in float32 more than that."""
    run = runs.train("mlp", HALF, dtypes=LAST) if last else runs.train("mlp", HALF)
    coarse = {name for name, value in (run.weights or {}).items() if (np.float16(value) == value).all()}

    single = {name for name in run.weights or {} if last and name.startswith("fc4")}
    check.equal(actual=coarse, expected=set(run.weights or {}) - single, what="the weights that float16 holds")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_types_come_back_as_they_were(runs: Runs, dtype: str) -> None:
    """Variables and predictions have the type of the model."""
    driver, net = runs.driver, nets.linear()
    config = counted(1, 1, 2, training=False, dtype=dtype)
    data = nets.distinct_micro_batches(net, config)
    with driver.build(net, config) as built:
        predicted = built.model.predict(driver.dataset(built, data, 0, config.micro_batch), verbose=0)

    kinds = {variable.dtype.name for variable in built.model.trainable_variables}
    check.equal(actual=kinds, expected={dtype}, what="the types of the variables")
    check.dtype(actual=predicted, expected=dtype, what="the prediction")

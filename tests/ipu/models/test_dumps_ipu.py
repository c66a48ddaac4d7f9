"""The dump of a compiled model, executed with the oracle's functions, computes what the device returned."""

from __future__ import annotations

import pytest

from ipu_conformance import check
from ipu_conformance.frameworks import Driver
from ipu_conformance.nets import MODELS, distinct_micro_batches
from ipu_conformance.run import RunConfig, RunRecord

from ..training.executed import told
from ..training.frame import outputs_as_specified
from .rows import config_for, each_row, inferred, inferring, ran, tolerance

UNROLLED = {"lstm": "a dump without a loop"}
"""What TensorFlow lacks of the dumps of models: the interpreter does not go through loops."""
each_dumped = pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=pytest.mark.unable("tensorflow", UNROLLED[model]) if model in UNROLLED else ())
        for model in MODELS
    ],
)


def _told(framework: Driver, model: str, config: RunConfig, engine: str = "oracle") -> RunRecord:
    __tracebackhide__ = True
    net = MODELS[model]()
    return told(ran(framework, model, config), net, distinct_micro_batches(net, config), engine)


@each_dumped
@each_row
def test_the_executed_dump_of_a_model_is_what_the_device_did(framework: Driver, model: str, row: str) -> None:
    """Losses, outputs and weights of three updates are the device's, however IPUs share them."""
    config = config_for(framework, model, row)

    check.runs_equivalent(
        actual=_told(framework, model, config),
        expected=ran(framework, model, config),
        tolerance=tolerance(model, config),
        fields=["losses", "outputs", "weights"],
        net=MODELS[model](),
    )


@each_dumped
def test_the_executed_dump_of_a_model_infers_as_the_device(framework: Driver, model: str) -> None:
    """The outputs of the dump of an inference are the device's."""
    config = inferring(framework)
    record = ran(framework, model, config)

    _, allowed = inferred(model, config)
    outputs = _told(framework, model, config).outputs
    outputs_as_specified(outputs, dict(enumerate(record.outputs or ())), allowed)

"""The dump of a compiled model, executed with the oracle's functions, computes what the device returned."""

from __future__ import annotations

import pytest

from ipu_conformance import check
from ipu_conformance.ir import isomorphic, normal
from ipu_conformance.nets import MODELS
from ipu_conformance.run import RunConfig, RunRecord

from ..training.executed import dump_of, shown, told
from ..training.forms import graph_of
from ..training.frame import Runs, data_of, inferred, outputs_as_specified, tolerance
from .rows import config_for, each_dumped_row, each_model, each_model_but, inferring, ran

WRITTEN_OUT = {
    "lstm": {"tensorflow": "an LSTM in one op"},
    "transformer": {"tensorflow": "norms, attention and gelu in one form"},
}
"""What TensorFlow lacks to have graphs compared: Keras writes these in ops that the normal form leaves apart."""
ELSEWHERE = {
    "lstm": {"tensorflow": "recurrent steps in ops of ONNX"},
    "transformer": dict.fromkeys(("poptorch", "paddle", "tensorflow"), "norms in ops of ONNX"),
    "unet": {"tensorflow": "images made larger in ops of ONNX"},
}
"""What dumps of inferences lack for a runtime of ONNX: PopART has a norm of its own, Keras slices of TensorFlow's."""


def _told(runs: Runs, model: str, config: RunConfig, engine: str = "oracle") -> RunRecord:
    __tracebackhide__ = True
    net = MODELS[model]()
    return told(ran(runs, model, config), net, data_of(net, config), engine)


@each_dumped_row
def test_the_executed_dump_of_a_model_is_what_the_device_did(runs: Runs, model: str, row: str) -> None:
    """Losses, outputs and weights of three updates are the device's, however IPUs share them."""
    config = config_for(runs.framework, model, row)

    check.runs_equivalent(
        actual=_told(runs, model, config),
        expected=ran(runs, model, config),
        tolerance=tolerance(MODELS[model](), config),
        fields=["losses", "outputs", "weights"],
        net=MODELS[model](),
    )


@each_model
def test_the_executed_dump_of_a_model_infers_as_the_device(runs: Runs, model: str) -> None:
    """The outputs of the dump of an inference are the device's."""
    _infers_as_the_device(runs, model, "oracle")


@pytest.mark.requires("onnxruntime")
@each_model_but(ELSEWHERE)
def test_the_executed_dump_of_a_model_infers_as_the_device_elsewhere(runs: Runs, model: str) -> None:
    """So they are on ONNX Runtime, which shares no line with the oracle."""
    _infers_as_the_device(runs, model, "onnxruntime")


def _infers_as_the_device(runs: Runs, model: str, engine: str) -> None:
    __tracebackhide__ = True
    config = inferring(runs.framework)
    record = ran(runs, model, config)

    _, allowed = inferred(MODELS[model](), config)
    outputs = _told(runs, model, config, engine).outputs
    outputs_as_specified(outputs, dict(enumerate(record.outputs or ())), allowed)


@each_model_but(WRITTEN_OUT)
def test_the_dump_of_a_model_is_its_graph(runs: Runs, model: str) -> None:
    """Up to names, placement and the ways of frameworks to write one thing, it has the model's ops and no others."""
    net, config = MODELS[model](), inferring(runs.framework)
    dump = shown(dump_of(ran(runs, model, config), net))

    turned = runs.framework == "tensorflow"  # where images have their channels last
    found = normal(dump, turn_inputs=turned, unplaced=True)
    outcome = isomorphic(normal(graph_of(net, config.micro_batch), unplaced=True), found)
    check.holds(outcome.verdict == "isomorphic", f"the dump of {model} is not the model's graph: {outcome.sentence}")

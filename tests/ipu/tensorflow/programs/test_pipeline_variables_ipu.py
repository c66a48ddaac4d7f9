"""Pipelines of graphs: variables that stages make themselves, and the old name of their count."""

from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device

COUNT = 4


def piped(graph: Device, stages: List[Any], **settings: Any) -> Any:
    """What micro-batches 1, 2, 3 and 4 leave, and the names and values of the variables."""
    queue, out = graph.open(2).infeed(np.arange(1, COUNT + 1, dtype=np.int32)), graph.outfeed()
    settings.update(infeed_queue=queue, outfeed_queue=out)
    go = graph.compile(lambda: graph.ipu.pipelining_ops.pipeline(stages, **settings))
    taken = out.dequeue()
    go()
    values = {variable.name: variable for variable in graph.tf.compat.v1.global_variables()}
    return np.ravel(graph.session.run(taken)).tolist(), graph.session.run(values)


def adding(tf: Any, name: str, value: int) -> Any:
    """A stage that makes a variable of whole numbers, as programs of TensorFlow 1 do, and adds it."""
    return lambda x: x + tf.compat.v1.get_variable(name, initializer=value, use_resource=True)


@pytest.mark.parametrize("scope", ["", "inner"])
def test_stages_make_variables_of_whole_numbers(tf: Any, graph: Device, scope: str) -> None:
    """A stage that is built for several micro-batches makes its variable once, whatever the type of its first value."""
    add = adding(tf, "w", 3)

    def first(x: Any) -> Any:
        with tf.compat.v1.variable_scope(scope or tf.compat.v1.get_variable_scope()):
            return add(x)

    found = piped(graph, [first, adding(tf, "v", 5)], gradient_accumulation_count=COUNT)

    expected = [9, 10, 11, 12], {f"{scope}/w:0" if scope else "w:0": 3, "v:0": 5}
    check.equal(actual=found, expected=expected, what="what the pipeline leaves, and its variables")


@pytest.mark.emulator
def test_the_count_has_an_old_name(tf: Any, graph: Device) -> None:
    """Programs of SDK 1.x call the number of micro-batches ``pipeline_depth``."""
    found, _ = piped(graph, [adding(tf, "w", 3), adding(tf, "v", 5)], pipeline_depth=COUNT)

    check.equal(actual=found, expected=[9, 10, 11, 12], what="what the pipeline leaves")


def test_a_pipeline_that_does_not_fit_has_its_outfeed(tf: Any, graph: Device) -> None:
    """A dequeue can be built before the run; the run fails by its count, and leaves nothing."""
    stages, error = [adding(tf, "w", 3), adding(tf, "v", 5)], tf.errors.FailedPreconditionError
    with check.raises(error, match="must be a multiple of 2", what="a run of 3 micro-batches"):
        piped(graph, stages, gradient_accumulation_count=3)

"""Pipelines of graphs: variables that stages make themselves, and the old name of their count."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import pytest

from ipu_conformance import check

COUNT = 4


def piped(tf: Any, ipu: Any, configure: Any, stages: List[Any], **settings: Any) -> Any:
    """What micro-batches 1, 2, 3 and 4 leave, and the names and values of the variables."""
    v1 = tf.compat.v1
    configure(2)
    with tf.Graph().as_default(), v1.Session() as session:
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(1, COUNT + 1, output_type=tf.int32))
        out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def program() -> Any:
            return ipu.pipelining_ops.pipeline(stages, infeed_queue=queue, outfeed_queue=out, **settings)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu.ipu_compiler.compile(program)
        taken = out.dequeue()
        session.run([queue.initializer, v1.global_variables_initializer()])
        session.run(compiled)
        values: Dict[str, Any] = session.run({variable.name: variable for variable in v1.global_variables()})
        return np.ravel(session.run(taken)).tolist(), values


def adding(tf: Any, name: str, value: int) -> Any:
    """A stage that makes a variable of whole numbers, as programs of TensorFlow 1 do, and adds it."""
    return lambda x: x + tf.compat.v1.get_variable(name, initializer=value, use_resource=True)


@pytest.mark.parametrize("scope", ["", "inner"])
def test_stages_make_variables_of_whole_numbers(tf: Any, ipu: Any, configure: Any, scope: str) -> None:
    """A stage that is built for several micro-batches makes its variable once, whatever the type of its first value."""
    add = adding(tf, "w", 3)

    def first(x: Any) -> Any:
        with tf.compat.v1.variable_scope(scope or tf.compat.v1.get_variable_scope()):
            return add(x)

    found = piped(tf, ipu, configure, [first, adding(tf, "v", 5)], gradient_accumulation_count=COUNT)

    expected = [9, 10, 11, 12], {f"{scope}/w:0" if scope else "w:0": 3, "v:0": 5}
    check.equal(actual=found, expected=expected, what="what the pipeline leaves, and its variables")


@pytest.mark.emulator
def test_the_count_has_an_old_name(tf: Any, ipu: Any, configure: Any) -> None:
    """Programs of SDK 1.x call the number of micro-batches ``pipeline_depth``."""
    found, _ = piped(tf, ipu, configure, [adding(tf, "w", 3), adding(tf, "v", 5)], pipeline_depth=COUNT)

    check.equal(actual=found, expected=[9, 10, 11, 12], what="what the pipeline leaves")


@pytest.mark.emulator
def test_the_count_has_one_name_at_a_time(tf: Any, ipu: Any) -> None:
    """The old and the new name of the count are not given together."""
    with check.raises(ValueError, match="pipeline_depth", what="a pipeline with both names of its count"):
        ipu.pipelining_ops.pipeline([lambda x: x] * 2, pipeline_depth=4, gradient_accumulation_count=8)


def test_a_pipeline_that_does_not_fit_has_its_outfeed(tf: Any, ipu: Any, configure: Any) -> None:
    """A dequeue can be built before the run; the run fails by its count, and leaves nothing."""
    stages = [adding(tf, "w", 3), adding(tf, "v", 5)]
    with check.raises(
        tf.errors.FailedPreconditionError, match="must be a multiple of 2", what="a run of 3 micro-batches"
    ):
        piped(tf, ipu, configure, stages, gradient_accumulation_count=3)

"""Stages of pipelines that are more than one function or more than one batch."""

from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, check_trained, counts, samples
from .chain import Chain

BATCHES = 3


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("named", [False, True], ids=["default", "named"])
def test_a_stage_runs_several_batches(device: Device, replicas: int, named: bool) -> None:
    """With batch_serialization_iterations every execution of a stage takes so many batches; all of a run are summed."""
    options = {"pipeline_schedule": "Sequential", "device_mapping": [0, 0]} if named else {"device_mapping": None}
    chain = Chain(device, 1, replicas, batch_serialization_iterations=BATCHES, **options)
    chain.names = ["w0", "w1"]
    record = chain.train(2, 2, replicas, fed=samples(2 * BATCHES * 2 * replicas))

    check_trained(record, 2, counts(2, 2 * BATCHES, replicas))


def test_functions_of_one_stage_get_the_same(device: Device) -> None:
    """A stage that is a list of functions hands on the outputs of all of them, in order, to be trained as any other."""
    ops = device.open(4).ipu.pipelining_ops
    names, fed, count = ["w0", "w1", "w2"], samples(12), 12
    device.declare(**dict(zip(names, START)))

    def weight(place: int) -> Any:
        return device.variable(names[place], START[place])

    def optimizer_function(loss: Any, *rest: Any) -> Any:
        return ops.OptimizerFunctionOutput(device.tf.compat.v1.train.GradientDescentOptimizer(RATE), loss)

    stages: List[Any] = [
        lambda x: x * weight(0),
        [lambda x: x * weight(1), lambda x: [x + 1, x * weight(2)]],
        lambda first, second, third: (first + 2 * third, second),
    ]
    mapping = [0, [1, 2], 3]
    losses, second = device.pipe(stages, count, fed, device_mapping=mapping, optimizer_function=optimizer_function)

    x, (w0, w1, w2) = fed.astype(np.float64), START[:3]
    check.identical(actual=losses, expected=np.float32(x * w0 * (w1 + 2 * w2)), what="the first and the third output")
    check.identical(actual=second, expected=np.float32(x * w0 + 1), what="the second output")
    slopes = [w1 + 2 * w2, w0, 2 * w0]
    expected = np.asarray([start - RATE * x.sum() * slope for start, slope in zip(START, slopes)], np.float32)
    check.identical(actual=np.asarray(device.read(names)), expected=expected, what="the weights after the update")


@pytest.mark.emulator  # the vendor's sources show it of the last stage alone
@pytest.mark.parametrize("count", [6, 12])
def test_stages_enqueue_themselves(device: Device, count: int) -> None:
    """A stage may enqueue to an outfeed of its own: one entry for each micro-batch; the last one needs no outputs."""
    queue, (first, last) = device.open(2).infeed(samples(count)), (device.outfeed(), device.outfeed())

    def opening(x: Any) -> Any:
        return x + 1, first.enqueue({"x": x})

    stages = [opening, lambda x: x * 3, lambda x: last.enqueue(x)]
    device.run(lambda: device.ipu.pipelining_ops.pipeline(stages, count, infeed_queue=queue, device_mapping=[0, 1, 0]))

    expected = samples(count)
    check.identical(actual=device.dequeue(first)["x"], expected=expected, what="what the first stage enqueues")
    check.identical(actual=device.dequeue(last), expected=(expected + 1) * 3, what="what the last stage enqueues")


def test_options_of_what_is_not_there_are_ignored(device: Device) -> None:
    """A pipeline that does not train takes options for its backward stages and does nothing with them."""
    kind, words = device.open(2).ipu.pipelining_ops.PipelineStageOptions, {"availableMemoryProportion": "0.3"}
    settings = {"backward_propagation_stages_poplar_options": [kind(matmul_options=words) for _ in range(3)]}
    outfed = device.pipe([lambda x: x * 3, lambda x: x + 5], 4, samples(4), **settings)

    check.identical(actual=outfed, expected=samples(4) * 3 + 5, what="the outfeed")
    check.equal(actual=kind(matmul_options=words).matmul_options, expected=words, what="matmul_options")
